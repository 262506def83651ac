"""`gateway healthcheck`: asks /health/ready of a running gateway, for containers and scripts."""

import http.client
import sys

from gateway.cli.operator.remote import connection_to
from gateway.config import Address


def check(where: str | Address, *, timeout_s: float) -> int:
    """Return 0 if the gateway is ready, else 1 with the reason on standard error."""
    try:
        connection = connection_to(where, timeout_s=timeout_s)
    except ValueError as error:
        print(f"gateway: --url: {error}", file=sys.stderr)
        return 1
    place = f"{connection.host}:{connection.port}"
    try:
        connection.request("GET", "/health/ready")
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"gateway: {place} does not answer: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != 200:
        print(f"gateway: {place} is not ready (status {status})", file=sys.stderr)
        return 1
    return 0
