"""Arguments that several commands for operators share, and the way from a command line to a running gateway."""

import argparse
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from gateway.cli.commands import Commands, add_printing, list_own_arguments, load_configuration
from gateway.cli.operator.remote import Remote, find_given_key
from gateway.config import Address
from gateway.jsontext import strict_json

URL_HELP: Final = "the gateway's address (default: as configured); its key: GATEWAY_API_KEY"
_SHA256 = re.compile("[0-9a-f]{64}")


def add_asking(
    commands: Commands,
    name: str,
    function: Callable[..., Iterator[str]],
    text: str,
    *,
    example: str,
    admin: bool = False,
) -> argparse.ArgumentParser:
    """Add a command that queries a running gateway; `admin`: at its address for administration, if it has one.

    The configuration is read for the first request: wrong usage is reported before its problems.

    `function` takes a Remote, and each argument of the parser by the name of its destination.
    """

    def run_remote_command(args: argparse.Namespace) -> Iterator[str]:
        return function(build_remote(args, admin=admin), **list_own_arguments(args))

    parser = add_printing(commands, name, run_remote_command, text, example=example)
    parser.add_argument("--url", help=URL_HELP)
    return parser


def build_remote(args: argparse.Namespace, *, admin: bool = False) -> Remote:
    """Return the gateway that a command line means; `admin`: its address for administration, if it has one."""

    @cache
    def find_gateway_address() -> str | Address:
        settings = load_configuration(args, checked=False).settings
        return args.url or (settings.admin.listen if admin else None) or settings.listen

    return Remote(find_gateway_address, find_given_key())


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, as `as_json`."""
    parser.add_argument("--json", dest="as_json", action="store_true", help="for scripts: one JSON object a line")


def parse_sha256(text: str) -> str:
    """Parse a SHA-256."""
    if not _SHA256.fullmatch(text.lower()):
        raise argparse.ArgumentTypeError("expected a SHA-256: 64 hexadecimal digits")
    return text.lower()


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object, or `@` and the file that holds it."""
    try:
        value = strict_json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]!r} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return value


def read_json_file(text: str) -> dict[str, Any]:
    """Parse the name of a file that holds a JSON object."""
    return parse_json_object(f"@{text}")
