"""One HTTP request of an MCP client: who sends it, what it may use, and whether its client still waits."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from gateway.auth.keyring import Identity
from gateway.context.context_headers import read_end_user
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import add_log_facts
from gateway.mcp_server.media import MediaTypes, read_accept

#: The key of a visit in the scope that the SDK passes on.
SCOPE_KEY: Final = "gateway.visit"
#: The visit of the task that reads a request. The SDK looks up the schema of a called tool before any handler.
CURRENT: ContextVar["ClientRequest | None"] = ContextVar("visit", default=None)


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request. `service`: its path narrows it to that service. `gone` is set once its client has left.

    `begins`: it is an `initialize` of the older era, whose version is in its body, whatever its header. `reads`: the
    media types that its client reads. `is_stream`: its answer is a stream and nothing else.

    `is_forwarded`: another worker received it from its client, and passed it on. `is_request`: its message wants an
    answer.

    `owed` are the results that the answer is to bring, by a text that only the part with the result has. Each value is
    called once that part has left for the client.
    """

    request: web.Request
    head: RequestHead
    identity: Identity
    service: str | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    owed: dict[bytes, Callable[[], None]] = field(default_factory=dict)
    begins: bool = False
    is_stream: bool = False
    is_forwarded: bool = False
    is_request: bool = False
    reads: MediaTypes = field(init=False)

    def __post_init__(self) -> None:
        accept = ",".join(self.request.headers.getall("accept", ()))
        self.reads = read_accept(accept or None)

    @property
    def version(self) -> str | None:
        """Return the version of the protocol that the header names; None: the older era's, which may do without."""
        return None if self.begins else self.request.headers.get("mcp-protocol-version")

    @property
    def is_of_older_era(self) -> bool:
        return self.version is None or self.version in HANDSHAKE_PROTOCOL_VERSIONS

    @property
    def takes_answer(self) -> bool:
        """Return whether the client accepts the answer to its POST, as events or as one JSON message."""
        return self.request.method == "POST" and (self.reads.events or (self.reads.json and not self.is_stream))

    @property
    def is_of_known_version(self) -> bool:
        return self.is_of_older_era or self.version in MODERN_PROTOCOL_VERSIONS

    def read(self, message: object) -> None:
        """Note whether the message begins a session or a stream of changes."""
        method, params = (message.get(key) if isinstance(message, Mapping) else None for key in ("method", "params"))
        meta = params.get("_meta") if isinstance(params, Mapping) else None
        is_newer = isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta
        self.begins = method == "initialize" and not is_newer
        self.is_stream = method == "subscriptions/listen"
        self.is_request = method is not None and isinstance(message, Mapping) and "id" in message

    @property
    def session_id(self) -> str | None:
        """Return the session of the older era that the request belongs to, as its client names it."""
        return self.request.headers.get("mcp-session-id")

    @property
    def user(self) -> str | None:
        """Return the end user whom the request names. Raises GatewayError (invalid_header)."""
        return read_end_user(self.head)

    def add_log_facts(self, **facts: object) -> None:
        """Add facts to the request's line in the access log."""
        add_log_facts(self.request, **facts)


def get_client_request(ctx: Any) -> ClientRequest:
    """Return the HTTP request that brought a message. `ctx` is the SDK's context of a handler."""
    visit: ClientRequest = ctx.request.scope[SCOPE_KEY]
    return visit
