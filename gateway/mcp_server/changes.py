"""Changes of tools, prompts and resources, as they are reported to clients.

Clients of 2026-07-28 subscribe to them. Clients of the older era get them on the stream of their session.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.mcp_server.client_request import get_client_request
from gateway.mcp_server.quotas.sessions import KeyPlaces, get_owner

log = logging.getLogger("gateway")

#: Changes within so short a time are reported once.
PAUSE_S: Final = 0.2
#: A client that does not read is not waited for.
_SEND_S: Final = 5.0


class Changes:
    """The clients of one worker that want to hear of changes. `most` bounds their sessions and their subscriptions."""

    def __init__(self, *, most: int) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus, max_subscriptions=most)
        self._places = KeyPlaces("subscriptions", most=most)
        self._sessions: OrderedDict[str, ServerSession] = OrderedDict()
        self._most = most
        self._changed = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    async def listen(self, ctx: Any, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve one subscription to its end. Raises GatewayError (overloaded) and MCPError."""
        with self._places.take_place(get_owner(get_client_request(ctx))):
            return await self._listening(ctx, params)

    def follow(self, ctx: Any) -> None:
        """Report changes to the session of a message from now on, if it has one."""
        session_id = get_client_request(ctx).session_id
        if session_id is None or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        if session_id not in self._sessions:
            self._sessions[session_id] = ctx.session
            if len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session_id)

    def forget(self, session_id: str | None) -> None:
        """Report nothing to a session any more: it has ended."""
        if session_id is not None:
            self._sessions.pop(session_id, None)

    def announce_change(self) -> None:
        """Report soon that something has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Report changes until it is cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(PAUSE_S)
            self._changed.clear()
            for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
                await self._bus.publish(event)
            for session in list(self._sessions.values()):
                for send in (
                    session.send_tool_list_changed,
                    session.send_prompt_list_changed,
                    session.send_resource_list_changed,
                ):
                    self._send_soon(send)

    def close(self) -> None:
        """End all subscriptions. Idempotent."""
        self._listening.close()
        for sending in self._sending:
            sending.cancel()

    def _send_soon(self, send: Callable[[], Any]) -> None:
        """Send a notification in a task of its own."""
        task = asyncio.get_running_loop().create_task(_try_send(send))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)


async def _try_send(send: Callable[[], Any]) -> None:
    try:
        async with asyncio.timeout(_SEND_S):
            await send()
    except Exception as error:  # of one client: the others still get the change
        log.debug("a client was not told of changes: %s", type(error).__name__)
