"""`gateway healthcheck`: asks /health/ready of a running gateway, for containers and scripts."""

import http.client
import sys
from urllib.parse import urlsplit

from gateway.config import Address
from gateway.sockets import reachable


def check(where: str | Address, *, timeout_s: float) -> int:
    """0 if the gateway is ready, else 1 with the reason on standard error."""
    try:
        host, port = _target(where)
    except ValueError as error:
        print(f"gateway: --url: {error}", file=sys.stderr)
        return 1
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/health/ready")
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"gateway: {host}:{port} does not answer: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != 200:
        print(f"gateway: {host}:{port} is not ready (status {status})", file=sys.stderr)
        return 1
    return 0


def _target(where: str | Address) -> tuple[str, int]:
    """Host and port. Raises ValueError for a URL that cannot be asked."""
    if isinstance(where, Address):
        return reachable(where.host), where.port
    url = urlsplit(where if "//" in where else f"//{where}")
    if url.scheme not in ("", "http") or not url.hostname:
        raise ValueError("expected http://HOST:PORT")
    return url.hostname, url.port or 80
