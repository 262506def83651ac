"""The page of upstreams: which endpoints get requests, why others do not, and how their requests ended."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from aiohttp import web

from gateway.api.ops_pages import Route, readable
from gateway.api.request import Authorise, parse_query
from gateway.api.views import list_answer
from gateway.contracts.storage.store import Json

UPSTREAMS: Final = "/context/upstreams"

#: What an endpoint does now: `up`, it gets requests; `unhealthy`, its health checks fail; `open` and `half-open`, its
#: breaker; `pausing`, it requested a pause; `unreachable`, the last connection attempt failed; `unknown`, no worker has
#: reported on it.
EndpointState: TypeAlias = Literal["up", "unhealthy", "open", "half-open", "pausing", "unreachable", "unknown"]
#: Outcomes of requests that were not sent, and outcomes that do not count as a failure of an upstream.
_NOT_SENT: Final = ("unavailable", "limited")
_HARMLESS: Final = ("ok", "cancelled", *_NOT_SENT)
STATES: Final[tuple[EndpointState, ...]] = get_args(EndpointState)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFacts:
    """An endpoint in all workers: the state is the worst one among them.

    `retry_in_s`: when breaker or pause let a request through, in seconds; None: at once, or once its health checks
    pass. `under_way` are requests now, of which each worker sends it `most` at a time (None: any number). `tries` are
    counted by outcome, `ejections` by reason, and `answers` by status, since the gateway started. These, and
    `under_way`, are None for the single endpoint of an upstream without rules: the numbers of the upstream are its own.
    `last_status` is the status of its last answer, the largest of all workers; None: there was none. `quirks` come from
    the configuration, and `learnt` are the quirks that this worker learnt, by model.
    """

    name: str
    url: str
    state: EndpointState
    retry_in_s: float | None
    under_way: int | None
    most: int | None
    weight: int
    models: Sequence[str]
    tries: Mapping[str, int] | None
    ejections: Mapping[str, int] | None
    answers: Mapping[str, int] | None = None
    last_status: int | None = None
    quirks: Sequence[str] = ()
    learnt: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFacts:
    """An upstream in all workers. Counts begin at the start of the gateway: by outcome and by reason.

    `queued`: requests that wait for a place. `fallback`: upstreams that take its requests while it cannot.
    """

    name: str
    idle: int
    busy: int
    queued: int
    balance: str
    fallback: Sequence[str]
    requests: Mapping[str, int]
    retries: Mapping[str, int]
    refused: Mapping[str, int]
    endpoints: Sequence[EndpointFacts]

    @property
    def not_sent(self) -> int:
        """Return how many requests were refused, because no endpoint could take them or a limit was reached."""
        return sum(self.requests.get(outcome, 0) for outcome in _NOT_SENT)

    @property
    def sent(self) -> int:
        """Return how many requests were sent, retries included."""
        return sum(self.requests.values()) - self.not_sent

    @property
    def failed(self) -> int:
        """Return how many of them failed."""
        return sum(count for outcome, count in self.requests.items() if outcome not in _HARMLESS)


class UpstreamPages:
    """The page of one worker. `upstreams` returns the facts of this moment."""

    def __init__(self, upstreams: Callable[[], Awaitable[Sequence[UpstreamFacts]]], *, authorise: Authorise) -> None:
        self._upstreams = upstreams
        self._authorise = authorise

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*readable(UPSTREAMS, self._get)]

    async def _get(self, request: web.Request) -> web.Response:
        self._authorise(request, "admin")
        parse_query(request)
        return list_answer([upstream_view(one) for one in await self._upstreams()])


def upstream_view(upstream: UpstreamFacts) -> Json:
    """Return an upstream with its endpoints."""
    return {
        "object": "upstream",
        "name": upstream.name,
        "balance": upstream.balance,
        "fallback": list(upstream.fallback),
        "connections": {"busy": upstream.busy, "idle": upstream.idle},
        "queued": upstream.queued,
        "sent": upstream.sent,
        "failed": upstream.failed,
        "not_sent": upstream.not_sent,
        "requests": dict(upstream.requests),
        "retries": dict(upstream.retries),
        "refused": dict(upstream.refused),
        "endpoints": [
            {
                "name": one.name,
                "url": one.url,
                "state": one.state,
                "retry_in_s": None if one.retry_in_s is None else round(one.retry_in_s, 3),
                "under_way": one.under_way,
                "concurrent": one.most,
                "weight": one.weight,
                "models": list(one.models),
                "tries": None if one.tries is None else dict(one.tries),
                "ejections": None if one.ejections is None else dict(one.ejections),
                "answers": None if one.answers is None else dict(sorted(one.answers.items())),
                "last_status": one.last_status,
                "quirks": list(one.quirks),
                "learnt_quirks": {model: list(names) for model, names in one.learnt.items()},
            }
            for one in upstream.endpoints
        ],
    }
