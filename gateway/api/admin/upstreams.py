"""The page of upstreams: which endpoints get requests, why others do not, and how their requests ended."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from aiohttp import web

from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import Authorise, parse_query
from gateway.api.views import list_answer
from gateway.contracts.views import View

UPSTREAMS: Final = "/context/upstreams"

#: What an endpoint does now: `up`, it gets requests; `unhealthy`, its health checks fail; `open` and `half-open`, its
#: breaker; `pausing`, it requested a pause; `unreachable`, the last connection attempt failed; `unknown`, no worker has
#: reported on it.
EndpointState: TypeAlias = Literal["up", "unhealthy", "open", "half-open", "pausing", "unreachable", "unknown"]


class EndpointView(View, frozen=True, kw_only=True):
    """An endpoint in all workers: the state is the worst one among them.

    `retry_in_s`: when breaker or pause let a request through, in seconds; null: at once, or once its health checks
    pass. `under_way` are requests now, of which each worker sends it `concurrent` at a time (null: any number).
    `tries` are counted by outcome, `ejections` by reason, and `answers` by status, since the gateway started. These,
    and `under_way`, are null for the single endpoint of an upstream without rules: the numbers of the upstream are its
    own. `last_status` is the status of its last answer, the largest of all workers; null: there was none. `quirks` come
    from the configuration, and `learnt_quirks` are the quirks that the worker of this answer learnt, by model.
    """

    name: str
    url: str
    state: EndpointState
    retry_in_s: float | None
    under_way: int | None
    concurrent: int | None
    weight: int
    models: Sequence[str]
    tries: Mapping[str, int] | None
    ejections: Mapping[str, int] | None
    answers: Mapping[str, int] | None
    last_status: int | None
    quirks: Sequence[str]
    learnt_quirks: Mapping[str, Sequence[str]]


class ConnectionsView(View, frozen=True):
    """The connections to an upstream in all workers."""

    busy: int
    idle: int


class UpstreamView(View, frozen=True, kw_only=True):
    """An upstream in all workers. Counts begin at the start of the gateway: by outcome and by reason.

    `queued`: requests that wait for a place. `fallback`: upstreams that take its requests while it cannot. `sent`:
    requests that were sent, retries included, and `failed` those of them that failed. `not_sent`: requests that were
    refused, because no endpoint could take them or a limit was reached.
    """

    object: Literal["upstream"] = "upstream"
    name: str
    balance: str
    fallback: Sequence[str]
    connections: ConnectionsView
    queued: int
    sent: int
    failed: int
    not_sent: int
    requests: Mapping[str, int]
    retries: Mapping[str, int]
    refused: Mapping[str, int]
    endpoints: list[EndpointView]


class UpstreamPages:
    """The page of one worker. `upstreams` returns the views of this moment."""

    def __init__(self, upstreams: Callable[[], Awaitable[Sequence[UpstreamView]]], *, authorise: Authorise) -> None:
        self._upstreams = upstreams
        self._authorise = authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*build_readable_routes(UPSTREAMS, self._serve_upstreams)]

    async def _serve_upstreams(self, request: web.Request) -> web.Response:
        self._authorise(request, "admin")
        parse_query(request)
        return list_answer(await self._upstreams())
