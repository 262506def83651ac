"""The share of each key in what one worker serves at a time: sessions of the older era, and subscriptions.

Without it one client that forgets its sessions, or opens them on purpose, keeps all others out.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from gateway.contracts.errors import GatewayError
from gateway.mcp_server.bridge import Application, Receive
from gateway.mcp_server.client_request import SCOPE_KEY, ClientRequest
from gateway.mcp_server.media import Message, Send

#: The part of all that one key may have.
PART: Final = 4
_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
#: The calls of a session that has been ended are cancelled within this time.
_ENDING_S: Final = 30.0
_RETRY_S: Final = 10


def compute_share(most: int) -> int:
    """Return how many of `most` one key may have."""
    return max(1, most // PART)


def get_owner(visit: ClientRequest) -> tuple[str, str]:
    """Return the tenant and the name of the key of a request."""
    caller = visit.identity.caller
    return caller.tenant, caller.name


class KeyPlaces:
    """The things of one kind that keys have at the moment. `what` names them in an error."""

    def __init__(self, what: str, *, most: int) -> None:
        self._what = what
        self._share = compute_share(most)
        self._taken: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def take_place(self, owner: tuple[str, str]) -> Iterator[None]:
        """Take a place of this key. Raises GatewayError (overloaded): its share is used up."""
        if self._taken[owner] >= self._share:
            raise build_used_up_error(self._what, self._share)
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


@dataclass(slots=True)
class _Session:
    used_s: float
    requests: int = 0  # that are being answered


@dataclass(slots=True)
class _Owner:
    """The sessions of one key, the one that was used last at the end, and how many more are being opened."""

    sessions: "OrderedDict[str, _Session]" = field(default_factory=OrderedDict)
    opening: int = 0


class SessionShares:
    """An application in front of the SDK's, which sees to the shares of keys in `most` sessions.

    `ending` has the sessions that are being ended, so that their calls are not taken for cancelled ones. `forget` is
    called with each of them.
    """

    def __init__(
        self, app: Application, *, most: int, idle_s: float, ending: set[str], forget: Callable[[str], None]
    ) -> None:
        self._app = app
        self._most = most
        self._idle_s = idle_s
        self._ending = ending
        self._forget = forget
        self._owners: dict[tuple[str, str], _Owner] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Open or use a session within the share of its key, or pass the request on without one."""
        fields = dict(scope["headers"])
        owner = get_owner(scope[SCOPE_KEY])
        session_id, version = fields.get(_SESSION), fields.get(_VERSION, b"").decode("latin-1")
        if session_id is not None:
            await self._use_session(owner, session_id.decode("latin-1"), scope, receive, send)
        elif scope["method"] == "POST" and (not version or version in HANDSHAKE_PROTOCOL_VERSIONS):
            await self._open_session(owner, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open_session(
        self, key: tuple[str, str], scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Let a session be opened. Raises GatewayError (overloaded)."""
        self._drop_ended_sessions()
        owner = self._owners.setdefault(key, _Owner())
        owner.opening += 1
        try:
            if len(owner.sessions) + owner.opening > compute_share(self._most):
                await self._make_room(owner, scope)

            async def send_and_watch(message: Message) -> None:
                is_open = message["type"] == "http.response.start" and message["status"] < 400
                if is_open and (session_id := dict(message["headers"]).get(_SESSION)) is not None:
                    owner.sessions[session_id.decode("latin-1")] = _Session(_get_now_s())
                await send(message)

            await self._app(scope, receive, send_and_watch)
        finally:
            owner.opening -= 1
            self._drop_if_unused(key, owner)

    async def _use_session(
        self, key: tuple[str, str], session_id: str, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Pass on a request in a session, which is in use meanwhile."""
        owner = self._owners.get(key, _Owner())
        session = owner.sessions.get(session_id, _Session(0.0))
        is_over = False

        async def send_and_watch(message: Message) -> None:
            nonlocal is_over
            if message["type"] == "http.response.start":
                is_over = message["status"] == 404 or (scope["method"] == "DELETE" and message["status"] < 300)
            await send(message)

        session.requests += 1
        try:
            await self._app(scope, receive, send_and_watch)
        finally:
            session.requests -= 1
            session.used_s = _get_now_s()
            if is_over:
                owner.sessions.pop(session_id, None)
            elif session_id in owner.sessions:
                owner.sessions.move_to_end(session_id)
            self._drop_if_unused(key, owner)

    async def _make_room(self, owner: _Owner, scope: MutableMapping[str, Any]) -> None:
        """End the session of a key that has not been used for the longest time. Raises GatewayError (overloaded)."""
        session_id = next((name for name, session in owner.sessions.items() if not session.requests), None)
        if session_id is None:
            raise build_used_up_error("sessions", compute_share(self._most))
        del owner.sessions[session_id]
        self._ending.add(session_id)
        asyncio.get_running_loop().call_later(_ENDING_S, self._ending.discard, session_id)
        headers = [(name, value) for name, value in scope["headers"] if name in (b"host", b"accept")]
        headers.append((_SESSION, session_id.encode("latin-1")))
        await self._app({**scope, "method": "DELETE", "headers": headers}, _receive_empty_body, _ignore_message)
        self._forget(session_id)

    def _drop_ended_sessions(self) -> None:
        """Forget sessions that have ended unused, once there are too many to be all alive."""
        if sum(len(owner.sessions) for owner in self._owners.values()) <= 2 * self._most:
            return
        since_s = _get_now_s() - self._idle_s
        for key, owner in list(self._owners.items()):
            for name, session in list(owner.sessions.items()):
                if not session.requests and session.used_s < since_s:
                    del owner.sessions[name]
            self._drop_if_unused(key, owner)

    def _drop_if_unused(self, key: tuple[str, str], owner: _Owner) -> None:
        if not owner.sessions and not owner.opening and self._owners.get(key) is owner:
            del self._owners[key]


def build_used_up_error(what: str, share: int) -> GatewayError:
    """Return the error for a key that has used its whole share."""
    return GatewayError(
        "overloaded",
        f"This key has {share} open {what}, which is its share: close some, or raise 'mcp.serve.sessions.most'.",
        retry_after_s=_RETRY_S,
    )


def _get_now_s() -> float:
    return asyncio.get_running_loop().time()


async def _receive_empty_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _ignore_message(message: Message) -> None:
    del message
