"""The command `gateway`: what it can be told, and one line instead of a traceback when that cannot be done.

Exit codes: 0 done, 1 refused or failed (the reason is on standard error), 2 wrong usage.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway import __version__
from gateway.build import check_files
from gateway.config import ConfigError, Loaded, load

DEFAULT_FILE = Path("gateway.yaml")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code."""
    _open_closed_streams()
    parser = _parser()
    args = parser.parse_args(_with_default_command(list(sys.argv[1:] if argv is None else argv)))
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except ConfigError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def run(args: argparse.Namespace) -> int:
    # Imported here: `gateway --help` and `gateway check-config` need no server.
    from gateway.server import Server
    from gateway.sockets import ListenError

    loaded = _load(args)
    try:
        return Server(loaded, load=lambda: _load(args), join=args.reuse_port).run()
    except ListenError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1


def check_config(args: argparse.Namespace) -> int:
    loaded = _load(args)
    settings = loaded.settings
    upstreams = ", ".join(f"{u.name} ({u.base_url})" for u in settings.upstreams) or "the built-in demo model"
    print(f"{loaded.file or 'defaults, no file'}: ok")
    print(f"  listen      {settings.listen}, workers {settings.workers}")
    print(f"  upstreams   {upstreams}")
    print(f"  keys        {', '.join(key.name for key in settings.keys) or 'none: loopback only'}")
    return 0


def selftest(_args: argparse.Namespace) -> int:
    from gateway.selftest import run_selftest  # it brings the test upstream along, which `run` never needs

    return asyncio.run(run_selftest())


def healthcheck(args: argparse.Namespace) -> int:
    from gateway.healthcheck import check  # the other commands need no HTTP client

    settings = _load(args).settings
    address = settings.admin.listen or settings.listen
    return check(args.url or address, timeout_s=args.timeout)


def _open_closed_streams() -> None:
    """A standard stream that was closed for us would give its number to the next socket; it becomes /dev/null."""
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


def _load(args: argparse.Namespace) -> Loaded:
    """The configuration as the command line names it; warnings go to standard error."""
    file = args.config
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    flags = {name: getattr(args, name, None) for name in ("listen", "port", "workers", "upstream")}
    loaded = load(file, environ=os.environ, flags=flags)
    check_files(loaded.settings)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return loaded


def _with_default_command(argv: list[str]) -> list[str]:
    """`gateway` and `gateway --port 9000` mean `run`."""
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

    _command(commands, "check-config", check_config, "say what is wrong with the configuration, or that it is good")
    p = _command(commands, "selftest", selftest, "prove on this machine that passthrough is unchanged")
    p = _command(commands, "healthcheck", healthcheck, "ask a running gateway whether it is ready (for containers)")
    p.add_argument("--url", help="the gateway's address (default: as configured)")
    p.add_argument("--timeout", type=_seconds, default=3.0, metavar="S", help="seconds to wait (default: 3)")
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
