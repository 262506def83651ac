"""The command `gateway`: its arguments, and one line instead of a traceback if a command fails.

A command stands in its own module, with its arguments (`add`). The commands here need much code of the gateway, which
they import when they run, or the parser itself. Of all of them only the one that the command line names is imported: a
gateway keeps for life what its start has loaded. Without such a name, in help and in completion, all of them are.

Exit codes: 0 done, 1 refused or failed (the reason is on standard error), 2 wrong usage.
"""

import argparse
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gateway import __version__
from gateway.cli.commands import (
    CommandError,
    Commands,
    add_command,
    add_printing,
    check_command,
    list_subcommands,
    load_configuration,
    print_now,
    read_input_lines,
)
from gateway.cli.gc_tuning import collector_off
from gateway.features.registry import list_features, load_part

PROFILES = ("literal", "standard", "hardened")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    _open_closed_streams()
    words = _with_default_command(list(sys.argv[1:] if argv is None else argv))
    with collector_off():
        parser = _build_parser(words[0])
        check_command(parser, words)
        args = parser.parse_args(words)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except CommandError as error:
        from gateway.approvals.escaping import escape_line  # only a command that fails shows another's text

        print(f"gateway: {escape_line(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the pipe has seen enough; the flush at exit must not fail for it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except _import_config_error() as error:  # Python evaluates this line only when a command has raised something else
        print(error, file=sys.stderr)
    return 1


def _import_config_error() -> type[Exception]:
    from gateway.config import ConfigError  # the configuration, which `gateway version` does not read

    return ConfigError


def run(args: argparse.Namespace) -> int:
    with collector_off():
        # Imported here: `gateway --help` and `gateway check-config` need no server.
        from gateway.server.serve import GatewayServer
        from gateway.server.sockets import ListenError

        loaded = load_configuration(args)
    try:
        return GatewayServer(loaded, load=lambda: load_configuration(args), join=args.reuse_port).run()
    except ListenError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1


def check_config(args: argparse.Namespace) -> Iterator[str]:
    # Imported here: no other command shows a configuration, or builds its plugins without running it.
    import asyncio

    from gateway.cli.api_probe import describe_apis
    from gateway.cli.check_config import describe_config
    from gateway.cli.replicas import describe_replicas
    from gateway.server.dry_start import rehearse_start

    loaded = load_configuration(args)
    described = describe_config(loaded, warnings=asyncio.run(rehearse_start(loaded)))
    replicas = () if args.replicas is None else [*describe_replicas(loaded, args.replicas)]
    return itertools.chain(described, replicas, describe_apis(loaded.settings) if args.probe else ())


def show_version(_args: argparse.Namespace) -> Iterator[str]:
    yield f"twolane {__version__}"


def show_help(args: argparse.Namespace) -> Iterator[str]:
    parser = _build_parser()
    for word in args.words:
        below = list_subcommands(parser)
        if word not in below:
            raise CommandError(f"there is no command {word!r}; there are {', '.join(below) or 'none below it'}")
        parser = below[word]
    yield parser.format_help().rstrip()


def scan(_args: argparse.Namespace) -> int:
    from gateway.cli.scan import scan_lines  # the scanner of model output, which starting a server must not wait for

    return scan_lines(read_input_lines(), print_now)


def assess(args: argparse.Namespace) -> int:
    # Imported here: the gate brings all tools and assessors along, of which a server needs only the enabled ones.
    import asyncio

    from gateway.cli.assess import assess_lines
    from gateway.server.offline_gate import build_offline_gate, list_asking_services

    settings = load_configuration(args).settings
    if args.profile is not None:
        settings = settings.model_copy(update={"risk": settings.risk.model_copy(update={"profile": args.profile})})
    gate, specs = asyncio.run(build_offline_gate(settings))
    return assess_lines(read_input_lines(), print_now, gate=gate, specs=specs, asking=list_asking_services(settings))


def start_selftest(_args: argparse.Namespace) -> int:
    import asyncio

    from gateway.testing.selftest import run_selftest  # it brings the test upstream along, which `run` never needs

    return asyncio.run(run_selftest())


def _open_closed_streams() -> None:
    """Open closed standard streams as /dev/null; else the next socket would get their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _with_default_command(argv: list[str]) -> list[str]:
    """Add the default command: `gateway` and `gateway --port 9000` mean `run`."""
    if argv and (not argv[0].startswith("-") or argv[0] in ("-h", "--help", "--version")):
        return argv
    return ["run", *argv]


def _add_run(commands: Commands) -> None:
    p = add_command(
        commands,
        "run",
        run,
        "serve requests until SIGTERM or Ctrl-C (a second one stops at once)",
        example="gateway run --port 9000 --upstream https://api.openai.com/v1",
    )
    p.add_argument("--listen", metavar="HOST:PORT", help="listen here instead of the configured address")
    p.add_argument("--port", metavar="N", help="listen on this port of the configured address; 0: any free one")
    p.add_argument("--workers", metavar="N", help="worker processes")
    p.add_argument("--upstream", metavar="URL", help="one upstream instead of the configured ones")
    p.add_argument("--reuse-port", action="store_true", help="join a gateway on the same port (rolling restart)")


def _add_check_config(commands: Commands) -> None:
    p = add_printing(
        commands,
        "check-config",
        check_config,
        "check the configuration, and report every problem in it",
        example="gateway check-config -c /etc/gateway/gateway.yaml",
    )
    text = "check that the store has room for so many gateways, and show what they share; this connects to the store"
    p.add_argument(
        "--probe", action="store_true", help="find out which APIs the upstreams speak, by requests without a model"
    )
    p.add_argument("--replicas", type=_parse_count, metavar="N", help=text)


def _parse_count(text: str) -> int:
    """Return a number from 1 on. Raises ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _add_selftest(commands: Commands) -> None:
    add_command(
        commands,
        "selftest",
        start_selftest,
        "prove on this machine that passthrough is unchanged",
        example="gateway selftest",
    )


def _add_scan(commands: Commands) -> None:
    add_command(
        commands,
        "scan",
        scan,
        "find the tool calls in model output, one JSON line on standard input each",
        example="gateway scan < answers.jsonl",
    )


def _add_assess(commands: Commands) -> None:
    text = "print the gate's verdict on tool calls, one JSON line on standard input each"
    p = add_command(commands, "assess", assess, text, example="gateway assess --profile hardened < calls.jsonl")
    p.add_argument("--profile", choices=PROFILES, help="profile instead of the configured one (risk.profile)")


def _add_version(commands: Commands) -> None:
    add_printing(commands, "version", show_version, "show the version", example="gateway version")


def _add_help(commands: Commands) -> None:
    p = add_printing(
        commands, "help", show_help, "show the help of a command", example="gateway help approvals approve"
    )
    p.add_argument("words", nargs="*", metavar="COMMAND", help="the command, such as: approvals list")


def _add_completion(commands: Commands) -> None:
    from gateway.cli.completion import SHELLS, build_completion  # what writes the scripts, which no other command needs

    def complete(args: argparse.Namespace) -> Iterator[str]:
        yield build_completion(_build_parser(), args.shell).rstrip()

    p = add_printing(
        commands,
        "completion",
        complete,
        "write a script that completes commands and options in a shell",
        example="gateway completion bash > ~/.local/share/bash-completion/completions/gateway",
    )
    p.add_argument("shell", choices=SHELLS, help="your shell")


def _defer_import(module: str) -> Callable[[Commands], None]:
    """Return a function that imports the module of a command, and adds it."""

    def add(commands: Commands) -> None:
        importlib.import_module(f"gateway.cli.{module}").add(commands)

    return add


def _defer_feature(name: str) -> Callable[[Commands], None]:
    """Return a function that imports the command of a feature, and adds it."""

    def add(commands: Commands) -> None:
        load_part(name, "command").add_commands(commands)

    return add


#: The commands of the core, in the order of the help, with the functions that add them.
_COMMANDS: Final[Mapping[str, Callable[[Commands], None]]] = {
    "run": _add_run,
    "init": _defer_import("init"),
    "check-config": _add_check_config,
    "doctor": _defer_import("doctor.command"),
    "selftest": _add_selftest,
    "healthcheck": _defer_import("healthcheck"),
    "explain": _defer_import("explain"),
    "scan": _add_scan,
    "assess": _add_assess,
    "approvals": _defer_import("operator.approvals"),
    "runs": _defer_import("operator.runs"),
    "memories": _defer_import("operator.memories"),
    "keys": _defer_import("operator.keys"),
    "upstreams": _defer_import("operator.upstreams"),
    "workflows": _defer_import("operator.workflows"),
    "mcp": _defer_import("operator.mcp"),
    "audit": _defer_import("audit"),
    "backup": _defer_import("backup"),
    "store": _defer_import("store"),
    "plugin": _defer_import("plugin_new"),
    "import": _defer_import("litellm.command"),
    "version": _add_version,
    "help": _add_help,
    "completion": _add_completion,
}


def _build_parser(name: str = "") -> argparse.ArgumentParser:
    """Return the parser of the command of this name; if there is none, that of all commands."""
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="Twolane: an OpenAI-compatible gateway. Point any client's base URL at it.",
        epilog="Without a command: run. Exit codes: 0 done, 1 failed (reason on standard error), 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=f"twolane {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in _choose_commands(name):
        add(commands)
    return parser


def _choose_commands(name: str) -> Iterable[Callable[[Commands], None]]:
    """Return the function that adds the command of this name; if there is none, those of all commands.

    The command of a feature has the name of its folder. In the help it stands behind the one that it names (`AFTER`).
    """
    of_features = list_features("command")
    if name in of_features:
        return (_defer_feature(name),)
    if name in _COMMANDS:
        return (_COMMANDS[name],)
    adding = dict(_COMMANDS)
    for feature in sorted(of_features):
        place = list(adding).index(load_part(feature, "command").AFTER) + 1
        before = list(adding.items())
        adding = dict([*before[:place], (feature, _defer_feature(feature)), *before[place:]])
    return adding.values()
