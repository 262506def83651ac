"""The transport of a server over streamable HTTP: the life of one connection, with its tokens and its session."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final

import httpx2
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.transport_context import TransportContext

from gateway.contracts.plugin import Clock
from gateway.mcp.server_facts import ServerEndpoint
from gateway.mcp.transport.guarded_network import GuardedNetwork
from gateway.mcp.transport.http_client import Sender
from gateway.mcp.transport.http_dispatcher import HttpDispatcher
from gateway.mcp.transport.oauth import OAuthTokenSource

MAX_BYTES: Final = 32 << 20  # of one answer or event, as of a line over standard output
#: How long a server may take to accept a message other than a request: an answer to it, or a notification.
ACCEPT_S: Final = 30.0


class HttpTransport:
    """A `types.Channel` over HTTP, for one connection; `lost` gets the reason why it cannot go on."""

    skipped_lines = 0
    stderr = ()
    returncode = None

    def __init__(
        self, endpoint: ServerEndpoint, *, lost: Callable[[str], None], clock: Clock, accept_limit_s: float = ACCEPT_S
    ) -> None:
        self._endpoint = endpoint
        self._accept_limit_s = accept_limit_s
        self._lost = lost
        self._clock = clock
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Dispatcher[TransportContext]:
        endpoint = self._endpoint
        web = GuardedNetwork(private_networks=endpoint.private_networks, max_bytes=MAX_BYTES)
        self._resources.push_async_callback(web.aclose)
        sender = Sender(endpoint, web, self._build_token_source(web))
        dispatcher = HttpDispatcher(sender, limit_bytes=MAX_BYTES, accept_limit_s=self._accept_limit_s, lost=self._lost)
        self._resources.push_async_callback(dispatcher.aclose)
        return dispatcher

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    def _build_token_source(self, web: GuardedNetwork) -> OAuthTokenSource | None:
        if self._endpoint.oauth is None:
            return None
        resource = str(httpx2.URL(self._endpoint.url).copy_with(query=None, fragment=None))
        return OAuthTokenSource(self._endpoint.oauth, resource=resource, web=web, clock=self._clock)
