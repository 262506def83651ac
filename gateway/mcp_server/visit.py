"""One HTTP request of an MCP client: who sends it, what it may use, and whether its client still waits."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from gateway.context.steering import read_end_user
from gateway.http.request_head import RequestHead
from gateway.lanes.keys import Identity
from gateway.lanes.local import note

#: The key of a visit in the scope that the SDK passes on.
SCOPE_KEY: Final = "gateway.visit"
#: The visit of the task that reads a request. The SDK looks up the schema of a called tool before any handler.
CURRENT: ContextVar["Visit | None"] = ContextVar("visit", default=None)


@dataclass(slots=True, eq=False)
class Visit:
    """One request. `service`: its path narrows it to that service. `gone` is set once its client has left.

    `owed` are the results that the answer is to bring, by a text that only the part with the result has. Each value is
    called once that part has left for the client.
    """

    request: web.Request
    head: RequestHead
    identity: Identity
    service: str | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    owed: dict[bytes, Callable[[], None]] = field(default_factory=dict)

    @property
    def session_id(self) -> str | None:
        """Return the session of the older era that the request belongs to, as its client names it."""
        return self.request.headers.get("mcp-session-id")

    @property
    def user(self) -> str | None:
        """Return the end user whom the request names. Raises GatewayError (invalid_header)."""
        return read_end_user(self.head)

    def note(self, **facts: object) -> None:
        """Add facts to the request's line in the access log."""
        note(self.request, **facts)


def visit_of(ctx: Any) -> Visit:
    """Return the visit of a message. `ctx` is the SDK's context of a handler."""
    visit: Visit = ctx.request.scope[SCOPE_KEY]
    return visit
