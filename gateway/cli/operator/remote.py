"""HTTP to a running gateway, for the commands that send requests to one."""

import http.client
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from gateway.cli.commands import CommandError
from gateway.cli.formatting import View, format_word, list_views
from gateway.config import Address
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.caller import CLI_AGENT
from gateway.server.sockets import choose_reachable_host

_MOST_SHOWN = 500
_TIMEOUT_S = 30.0


class RemoteError(CommandError):
    """The gateway does not answer, or refuses the request."""


def find_given_key() -> str | None:
    """Return the key of GATEWAY_API_KEY, if there is one."""
    return os.environ.get("GATEWAY_API_KEY", "").strip() or None


def check_key(key: str | None) -> None:
    """Check that a key can be sent. Raises RemoteError."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise RemoteError("GATEWAY_API_KEY contains a character that no key has: set it again")


def build_connection(where: str | Address, *, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection that is not open yet. Raises ValueError unless the URL is http(s)://HOST:PORT."""
    if isinstance(where, Address):
        return http.client.HTTPConnection(choose_reachable_host(where.host), where.port, timeout=timeout_s)
    url = urlsplit(where if "//" in where else f"//{where}")
    if url.scheme not in ("", "http", "https") or not url.hostname or url.path not in ("", "/"):
        raise ValueError("expected http://HOST:PORT")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    return kind(url.hostname, url.port, timeout=timeout_s)


def explain_silence(place: str, error: Exception) -> str:
    """Return the text about a gateway at `place` (HOST:PORT) that gave no answer, with the next step."""
    if isinstance(error, ConnectionRefusedError):
        return (
            f"{place} does not answer: nothing listens there. Start it with `gateway run`, or name another one (--url)"
        )
    return f"{place} does not answer: {getattr(error, 'strerror', None) or error}"


@dataclass(frozen=True, slots=True)
class Remote:
    """A gateway, and the key for requests to it. A function for `where` is called before each request."""

    where: str | Address | Callable[[], str | Address]
    key: str | None

    def get(self, *path: str, **query: str | int | None) -> dict[str, object]:
        """Return the answer of a page; parts of the query that are None are left out. Raises RemoteError."""
        return self.send_request("GET", _build_target(path) + _query(query))

    def iterate_entries(self, *path: str, most: int | None = None, **query: str | None) -> Iterator[View]:
        """Yield the entries of a list, page by page, up to `most`. Raises RemoteError."""
        after: str | None = None
        while True:
            limit = LIMIT_MOST if most is None else min(LIMIT_MOST, most)
            answer = self.get(*path, **query, after=after, limit=limit)
            found = list_views(answer.get("data"))
            yield from found
            most = None if most is None else most - len(found)
            after = following if isinstance(following := answer.get("next"), str) else None
            if after is None or most == 0:
                return

    def post(self, *path: str, **body: object) -> dict[str, object]:
        """Return the answer to a body, from which None values are left out. Raises RemoteError."""
        return self.send_request(
            "POST", _build_target(path), {name: value for name, value in body.items() if value is not None}
        )

    def begin(
        self, *path: str, body: Mapping[str, object], wait: bool, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, object]:
        """Return the answer to a body that begins something; `wait`: for its end. Raises RemoteError."""
        prefer = {} if wait else {"Prefer": "respond-async"}
        return self.send_request("POST", _build_target(path), body, headers=prefer, timeout_s=timeout_s)

    def delete(self, *path: str, **query: str | None) -> dict[str, object]:
        """Return the answer; parts of the query that are None are left out. Raises RemoteError."""
        return self.send_request("DELETE", _build_target(path) + _query(query))

    def delete_each(self, paths: Iterable[Sequence[str]], *, done: str) -> Iterator[str]:
        """Delete what stands at each path, and yield its last part with the word `done`.

        Raises RemoteError for paths that could not be deleted, after all were tried.
        """
        refused = []
        for path in paths:
            shown_id = format_word({"id": path[-1]}, "id")
            try:
                self.delete(*path)
            except RemoteError as error:
                refused.append(f"{shown_id}: {error}")
            else:
                yield f"{shown_id}  {done}"
        if refused:
            raise RemoteError("; ".join(refused))

    def send_request(
        self,
        method: str,
        target: str,
        body: Mapping[str, object] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> dict[str, object]:
        """Return the JSON object of the answer; of one without content an empty object. Raises RemoteError."""
        check_key(self.key)
        sent = {**(headers or {}), "User-Agent": CLI_AGENT} | ({} if self.key is None else {"X-Gateway-Key": self.key})
        content = None
        if body is not None:
            content, sent = json.dumps(body).encode(), {"Content-Type": "application/json", **sent}
        try:
            connection = build_connection(self.where() if callable(self.where) else self.where, timeout_s=timeout_s)
        except ValueError as error:
            raise RemoteError(f"--url: {error}") from None
        place, doubt = f"{connection.host}:{connection.port}", ""
        try:
            connection.connect()
            if method != "GET":
                doubt = "; it may be done all the same, now or later: look before you repeat it"
            connection.request(method, target, content, sent)
            response = connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise RemoteError(explain_silence(place, error) + doubt) from None
        finally:
            connection.close()
        if status == http.client.NO_CONTENT:
            return {}
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise RemoteError(f"{place} answered {status} without a JSON object: check that it is a gateway")
        if status not in (http.client.OK, http.client.CREATED, http.client.ACCEPTED):
            raise RemoteError(
                f"{place} answered {status}: {get_error_message(answer.get('error'))}{_advise_next_step(answer)}"
            )
        return answer


def _build_target(path: tuple[str, ...]) -> str:
    """Return the path, quoted: any text given as an id stays one part of it."""
    return "".join("/" + quote(part, safe="", errors="surrogateescape") for part in path)


def _query(query: Mapping[str, str | int | None]) -> str:
    kept = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(kept, errors='surrogateescape')}" if kept else ""


def _advise_next_step(answer: Mapping[str, object]) -> str:
    """Return advice about the key of this command: the gateway's message names headers, and a command has none."""
    error = answer.get("error")
    match error.get("code") if isinstance(error, dict) else None:
        case "missing_api_key":
            return " (here: export GATEWAY_API_KEY=... with a key of the gateway)"
        case "invalid_api_key" | "scope_missing":
            return " (the key is the one in GATEWAY_API_KEY)"
        case _:
            return ""


def get_error_message(error: object) -> str:
    """Return the gateway's message about an error, with the field that it concerns."""
    facts = error if isinstance(error, dict) else {}
    message, param = facts.get("message"), facts.get("param")
    if not isinstance(message, str):
        return "no reason given"
    return (f"{param}: {message}" if isinstance(param, str) else message)[:_MOST_SHOWN]
