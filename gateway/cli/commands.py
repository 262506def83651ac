"""Helpers that every command of `gateway` is declared with: parser, example, configuration, files, printed lines."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gateway.config import LoadedConfig

DEFAULT_FILE = Path("gateway.yaml")
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class CommandError(Exception):
    """A command has failed; the text is for a person."""


class WrongUsage(Exception):  # noqa: N818  (the user's mistake, printed below the usage of the command)
    """Options that do not go together; the text names them."""


def add_group(commands: Commands, name: str, text: str) -> Commands:
    """Add a word that commands stand below, such as `runs`."""
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: Commands, name: str, function: Callable[[argparse.Namespace], int], text: str, *, example: str
) -> argparse.ArgumentParser:
    """Add a command that returns its exit code. Its help ends with the example."""
    parser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=function)
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default: gateway.yaml if present)"
    )
    return parser


def add_printing(
    commands: Commands, name: str, lines: Callable[[argparse.Namespace], Iterator[str]], text: str, *, example: str
) -> argparse.ArgumentParser:
    """Add a command that yields the lines to print, or raises CommandError or WrongUsage."""

    def run(args: argparse.Namespace) -> int:
        try:
            for line in lines(args):
                print_now(f"{line}\n")
        except WrongUsage as error:
            parser.error(str(error))
        return 0

    parser = add_command(commands, name, run, text, example=example)
    return parser


def add_reading(
    commands: Commands, name: str, function: Callable[..., Iterator[str]], text: str, *, example: str
) -> argparse.ArgumentParser:
    """Add a command that needs the configuration and no gateway.

    `function` takes the configuration, and each argument of the parser by the name of its destination.
    """

    def run_command(args: argparse.Namespace) -> Iterator[str]:
        return function(load_configuration(args, checked=False), **list_own_arguments(args))

    return add_printing(commands, name, run_command, text, example=example)


def list_own_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that not every command takes, by the names of their destinations."""
    return {name: value for name, value in vars(args).items() if name not in ("command", "config", "url")}


def load_configuration(args: argparse.Namespace, *, checked: bool = True, warned: bool = True) -> "LoadedConfig":
    """Load the configuration as the command line names it; warnings go to standard error, if `warned`.

    Not `checked`: for a command that queries a running gateway; it needs no plugins, and imports none.
    """
    file = args.config
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    flags = {name: getattr(args, name, None) for name in ("listen", "port", "workers", "upstream")}
    # Imported here: the configuration, the lane and its HTTP library take a second, and `gateway version` reads none.
    from gateway.config import load
    from gateway.registry.check import check_plugins
    from gateway.server.lanes.passthrough import check_files
    from gateway.workflows.folder import load_workflows

    loaded = load(file, environ=os.environ, flags=flags, checks=(check_plugins,) if checked else ())
    check_files(loaded.settings)
    found = load_workflows(loaded.settings.workflows).warnings if checked else ()
    for warning in (*loaded.warnings, *found) if warned else ():
        print(f"warning: {warning}", file=sys.stderr)
    return loaded


def write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet. Raises CommandError if it is, or if it cannot be written."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise CommandError(f"{str(file)!r} is there already: it stays as it is. Name another file") from None
    except OSError as error:
        raise CommandError(f"{str(file)!r} cannot be written: {error.strerror}") from None


def print_now(text: str) -> None:
    """Print at once: a program that writes line by line waits for each answer."""
    print(text, end="", flush=True)


def read_input_lines() -> Iterable[str]:
    """Return the lines of standard input, whatever its bytes are."""
    return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace", newline="\n")


def iterate_leaf_commands(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield the commands that do something, each with its words behind `gateway`."""
    below = list_subcommands(parser)
    if not below and path:
        yield path, parser
    for name, command in below.items():
        yield from iterate_leaf_commands(command, (*path, name))


def check_command(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End with exit code 2 if a word is an unknown command where one is expected, and suggest the nearest one."""
    for word in words:
        commands = list_subcommands(parser)
        if not commands or word.startswith("-"):
            return
        if word not in commands:
            # Imported here: words for a mistake in the configuration, which it brings along.
            from gateway.config.messages import suggest_nearest
            from gateway.config.problems import quote_word

            hint = suggest_nearest(word, list(commands)) or f": expected one of {', '.join(commands)}"
            parser.error(f"there is no command {quote_word(word)}{hint}")
        parser = commands[word]


def list_subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers right below this one by their words."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
