"""HTTP to a running gateway, for the commands that ask one."""

import http.client
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.config import Address
from gateway.sockets import reachable

_MOST_SHOWN = 500


class RemoteError(Exception):
    """The gateway cannot be asked, or refuses; the text is for a person."""


def connection_to(where: str | Address, *, timeout_s: float) -> http.client.HTTPConnection:
    """Not open yet. Raises ValueError for a URL that cannot be asked."""
    if isinstance(where, Address):
        return http.client.HTTPConnection(reachable(where.host), where.port, timeout=timeout_s)
    url = urlsplit(where if "//" in where else f"//{where}")
    if url.scheme not in ("", "http", "https") or not url.hostname or url.path not in ("", "/"):
        raise ValueError("expected http://HOST:PORT")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    return kind(url.hostname, url.port, timeout=timeout_s)


def post(
    where: str | Address, path: str, body: Mapping[str, object], *, headers: Mapping[str, str], timeout_s: float
) -> dict[str, object]:
    """The JSON object of the answer. Raises RemoteError."""
    try:
        connection = connection_to(where, timeout_s=timeout_s)
    except ValueError as error:
        raise RemoteError(f"--url: {error}") from None
    place = f"{connection.host}:{connection.port}"
    try:
        connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        status, content = response.status, response.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise RemoteError(f"{place} does not answer: {error}") from None
    finally:
        connection.close()
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise RemoteError(f"{place} answered {status}, and not as a gateway does: is it one?")
    if status != http.client.OK:
        raise RemoteError(f"{place} answered {status}: {_message_of(answer)}")
    return answer


def _message_of(answer: Mapping[str, object]) -> str:
    error = answer.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return message[:_MOST_SHOWN] if isinstance(message, str) else "without saying why"
