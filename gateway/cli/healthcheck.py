"""`gateway healthcheck`: requests /health/ready of a running gateway, for containers and scripts."""

import argparse
import http.client
import sys

from gateway.cli.commands import Commands, add_command, load_configuration
from gateway.cli.operator.remote import build_connection, explain_silence
from gateway.config import Address


def add(commands: Commands) -> None:
    """Add `gateway healthcheck`."""
    text = "check whether a running gateway is ready (for containers)"
    p = add_command(
        commands,
        "healthcheck",
        _check_configured,
        text,
        example="gateway healthcheck --url http://127.0.0.1:8080 --timeout 1",
    )
    p.add_argument("--url", help="the gateway's address (default: as configured)")
    p.add_argument("--timeout", type=_parse_seconds, default=3.0, metavar="S", help="seconds to wait (default: 3)")


def _parse_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def _check_configured(args: argparse.Namespace) -> int:
    settings = load_configuration(args, checked=False).settings
    return check(args.url or settings.admin.listen or settings.listen, timeout_s=args.timeout)


def check(where: str | Address, *, timeout_s: float) -> int:
    """Return 0 if the gateway is ready, else 1 with the reason on standard error."""
    try:
        connection = build_connection(where, timeout_s=timeout_s)
    except ValueError as error:
        print(f"gateway: --url: {error}", file=sys.stderr)
        return 1
    place = f"{connection.host}:{connection.port}"
    try:
        connection.request("GET", "/health/ready")
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"gateway: {explain_silence(place, error)}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != 200:
        print(f"gateway: {place} is not ready (status {status})", file=sys.stderr)
        return 1
    return 0
