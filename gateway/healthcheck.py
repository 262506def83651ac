"""`gateway healthcheck`: asks /health/ready of a running gateway, for containers and scripts."""

import http.client
import sys
from urllib.parse import urlsplit

from gateway.config import Address
from gateway.sockets import reachable


def check(where: str | Address, *, timeout_s: float) -> int:
    """0 if the gateway is ready, else 1 with the reason on standard error."""
    if isinstance(where, str):
        url = urlsplit(where if "//" in where else f"//{where}")
        host, port = url.hostname or "127.0.0.1", url.port or 80
    else:
        host, port = reachable(where.host), where.port
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/health/ready")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        print(f"gateway: {host}:{port} does not answer: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != 200:
        print(f"gateway: {host}:{port} is not ready (status {status})", file=sys.stderr)
        return 1
    return 0
