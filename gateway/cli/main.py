"""The command `gateway`: its arguments, and one line instead of a traceback if a command fails.

Exit codes: 0 done, 1 refused or failed (the reason is on standard error), 2 wrong usage.
"""

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from gateway import __version__
from gateway.approvals.escaping import shown
from gateway.cli.collector import collector_off
from gateway.cli.examples import add_examples, subcommands
from gateway.cli.formatting import CommandError
from gateway.cli.operator.arguments import OperatorCommands
from gateway.config import ConfigError, Loaded, load
from gateway.registry.check import check_plugins
from gateway.server.passthrough_lane import check_files
from gateway.workflows.folder import load_workflows

DEFAULT_FILE = Path("gateway.yaml")
PROFILES = ("literal", "standard", "hardened")
SHELL_NAMES = ("bash", "zsh", "fish")
PLUGIN_KINDS = ("stages", "tools", "assessors")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    _open_closed_streams()
    args = _parser().parse_args(_with_default_command(list(sys.argv[1:] if argv is None else argv)))
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except ConfigError as error:
        print(error, file=sys.stderr)
    except CommandError as error:
        print(f"gateway: {shown(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads us has seen enough; the flush at exit must not fail for it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def run(args: argparse.Namespace) -> int:
    with collector_off():
        # Imported here: `gateway --help` and `gateway check-config` need no server.
        from gateway.server.serve import Server
        from gateway.server.sockets import ListenError

        loaded = _load(args)
    try:
        return Server(loaded, load=lambda: _load(args), join=args.reuse_port).run()
    except ListenError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1


def check_config(args: argparse.Namespace) -> int:
    # Imported here: no other command shows a configuration, or builds its plugins without running it.
    from gateway.cli.check_config import described
    from gateway.cli.rehearsal import rehearse

    loaded = _load(args)
    for line in described(loaded, warnings=asyncio.run(rehearse(loaded))):
        print(line)
    return 0


def init(args: argparse.Namespace) -> Iterator[str]:
    from gateway.cli.init import write_configuration  # only this command writes a configuration

    return write_configuration(args.config or DEFAULT_FILE)


def backup(args: argparse.Namespace) -> Iterator[str]:
    from gateway.cli.backup import back_up  # only this command copies a store

    return back_up(_load(args, checked=False), args.file)


def version(_args: argparse.Namespace) -> Iterator[str]:
    yield f"twolane {__version__}"


def help_(args: argparse.Namespace) -> Iterator[str]:
    parser = _parser()
    for word in args.words:
        below = subcommands(parser)
        if word not in below:
            raise CommandError(f"there is no command {word!r}; there are {', '.join(below) or 'none below it'}")
        parser = below[word]
    yield parser.format_help().rstrip()


def complete(args: argparse.Namespace) -> Iterator[str]:
    from gateway.cli.completion import completion  # only this command writes scripts

    yield completion(_parser(), args.shell).rstrip()


def explain(args: argparse.Namespace) -> int:
    from gateway.cli.explain import explain as explain_text  # the other commands need no HTTP client

    settings = _load(args, checked=False).settings
    text = "".join(_input()) if args.text == "-" else args.text
    key = os.environ.get("GATEWAY_API_KEY", "").strip() or None
    return explain_text(text, args.url or settings.listen, prompt=args.prompt, chain=args.chain, key=key)


def scan(_args: argparse.Namespace) -> int:
    from gateway.cli.scan import scan_lines  # the scanner of model output, which starting a server must not wait for

    return scan_lines(_input(), _print)


def assess(args: argparse.Namespace) -> int:
    # Imported here: the gate brings all tools and assessors along, of which a server needs those that are on.
    from gateway.cli.assess import assess_lines
    from gateway.cli.assess_gate import offline_gate

    settings = _load(args).settings
    if args.profile is not None:
        settings = settings.model_copy(update={"risk": settings.risk.model_copy(update={"profile": args.profile})})
    gate, specs = asyncio.run(offline_gate(settings))
    return assess_lines(_input(), _print, gate=gate, specs=specs)


def plugin_new(args: argparse.Namespace) -> int:
    from gateway.cli.plugin_new import write_and_tell  # it brings texts along that only this command needs

    return write_and_tell(args.kind, args.name, folder=_load(args, checked=False).settings.plugins.folder)


def selftest(_args: argparse.Namespace) -> int:
    from gateway.cli.selftest import run_selftest  # it brings the test upstream along, which `run` never needs

    return asyncio.run(run_selftest())


def healthcheck(args: argparse.Namespace) -> int:
    from gateway.cli.healthcheck import check  # the other commands need no HTTP client

    settings = _load(args, checked=False).settings
    address = settings.admin.listen or settings.listen
    return check(args.url or address, timeout_s=args.timeout)


def _open_closed_streams() -> None:
    """Open closed standard streams as /dev/null; else the next socket would get their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def _load(args: argparse.Namespace, *, checked: bool = True) -> Loaded:
    """Load the configuration as the command line names it; warnings go to standard error.

    Not `checked`: for a command that asks a running gateway; it needs no plugins, and imports none.
    """
    file = args.config
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    flags = {name: getattr(args, name, None) for name in ("listen", "port", "workers", "upstream")}
    loaded = load(file, environ=os.environ, flags=flags, checks=(check_plugins,) if checked else ())
    check_files(loaded.settings)
    found = load_workflows(loaded.settings.workflows).warnings if checked else ()
    for warning in (*loaded.warnings, *found):
        print(f"warning: {warning}", file=sys.stderr)
    return loaded


def _input() -> Iterable[str]:
    """Return the lines of standard input, whatever its bytes are."""
    return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace", newline="\n")


def _print(text: str) -> None:
    """Print at once: a program that writes line by line waits for each answer."""
    print(text, end="", flush=True)


def _with_default_command(argv: list[str]) -> list[str]:
    """Add the default command: `gateway` and `gateway --port 9000` mean `run`."""
    if argv and (not argv[0].startswith("-") or argv[0] in ("-h", "--help", "--version")):
        return argv
    return ["run", *argv]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="Twolane: an OpenAI-compatible gateway. Point any client's base URL at it.",
        epilog="Without a command: run. Exit codes: 0 done, 1 failed (reason on standard error), 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=f"twolane {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    p = _command(commands, "run", run, "serve requests until SIGTERM or Ctrl-C (a second one stops at once)")
    p.add_argument("--listen", metavar="HOST:PORT", help="listen here instead of the configured address")
    p.add_argument("--port", metavar="N", help="listen on this port of the configured address; 0: any free one")
    p.add_argument("--workers", metavar="N", help="worker processes")
    p.add_argument("--upstream", metavar="URL", help="one upstream instead of the configured ones")
    p.add_argument("--reuse-port", action="store_true", help="join a gateway on the same port (rolling restart)")

    _printing(commands, "init", init, "write a commented configuration to begin with")
    _command(commands, "check-config", check_config, "say what is wrong with the configuration, or that it is good")
    p = _command(commands, "selftest", selftest, "prove on this machine that passthrough is unchanged")
    p = _command(commands, "healthcheck", healthcheck, "ask a running gateway whether it is ready (for containers)")
    p.add_argument("--url", help="the gateway's address (default: as configured)")
    p.add_argument("--timeout", type=_seconds, default=3.0, metavar="S", help="seconds to wait (default: 3)")

    p = _command(commands, "explain", explain, "show what a running gateway would ask the model, without asking it")
    p.add_argument("text", nargs="?", default="-", metavar="TEXT", help="message of a user (default: -, read it)")
    p.add_argument("--url", help="the gateway's address (default: as configured); its key: GATEWAY_API_KEY")
    p.add_argument("--prompt", metavar="ID", help="base prompt instead of the configured one")
    p.add_argument("--chain", metavar="NAME", help="chain instead of the configured one")
    _command(commands, "scan", scan, "find the tool calls in model output, one JSON line on standard input each")
    p = _command(
        commands, "assess", assess, "say what the gate would do with calls, one JSON line on standard input each"
    )
    p.add_argument("--profile", choices=PROFILES, help="profile instead of the configured one (risk.profile)")
    OperatorCommands(_printing, load=lambda args: _load(args, checked=False)).add_to(commands)
    p = _printing(commands, "backup", backup, "copy the store while gateways use it, and check the copy")
    p.add_argument("file", type=Path, metavar="FILE", help="the copy, which must not be there yet")
    p = commands.add_parser("plugin", help="write a plugin of your own", description="Write a plugin of your own.")
    kinds = p.add_subparsers(title="commands", metavar="COMMAND", required=True)
    p = _command(
        kinds, "new", plugin_new, "write a working plugin into the folder of your plugins, and its test beside it"
    )
    p.add_argument("kind", choices=PLUGIN_KINDS, help="what it is")
    p.add_argument("name", metavar="NAME", help="a Python identifier: the name of the file, and of the plugin")
    _printing(commands, "version", version, "show the version")
    p = _printing(commands, "help", help_, "show the help of a command")
    p.add_argument("words", nargs="*", metavar="COMMAND", help="the command, such as: approvals list")
    p = _printing(commands, "completion", complete, "write a script that completes commands and options in a shell")
    p.add_argument("shell", choices=SHELL_NAMES, help="your shell")
    add_examples(parser)
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    function: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.set_defaults(command=function)
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default: gateway.yaml if present)"
    )
    return parser


def _printing(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    function: Callable[[argparse.Namespace], Iterator[str]],
    text: str,
) -> argparse.ArgumentParser:
    """Add a command that yields its lines, or raises CommandError."""

    def told(args: argparse.Namespace) -> int:
        for line in function(args):
            _print(f"{line}\n")
        return 0

    return _command(commands, name, told, text)
