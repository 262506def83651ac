"""The page of upstreams: their endpoints, why some get no requests, and how requests ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.console.visit import ADMIN, Page, Visit, see_other
from gateway.contracts.store import Json

#: States of endpoints: in words, and the class of the badge.
STATES: Final[Mapping[str, tuple[str, str]]] = {
    "up": ("gets requests", "running"),
    "unhealthy": ("fails its health checks", "error"),
    "open": ("breaker open", "error"),
    "half-open": ("breaker half-open", "starting"),
    "pausing": ("pauses, as it asked", "starting"),
    "unreachable": ("not reachable", "error"),
    "unknown": ("not asked yet", "stopped"),
}
#: Outcomes of requests, in words.
OUTCOMES: Final[Mapping[str, str]] = {
    "ok": "answered",
    "cancelled": "left by the client",
    "error": "answered with 5xx",
    "connect": "no connection",
    "timeout": "timed out",
    "reset": "reset",
    "truncated": "cut",
    "invalid": "not HTTP",
    "unavailable": "not sent",
    "limited": "over a limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownUpstream:
    """One upstream: the facts of the API. `outcomes` are those that happened, in words, `retried` all reasons."""

    facts: Json
    outcomes: list[tuple[str, int]]
    retried: int


class Upstreams:
    """The page of upstreams, below that of the status. `now_s` returns the Unix time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def pages(self) -> tuple[Page, ...]:
        return (Page("GET", "/status/upstreams", self._upstreams, ADMIN), Page("GET", "/upstreams", _lead, ADMIN))

    async def _upstreams(self, visit: Visit) -> web.Response:
        found = (await visit.api.get("context", "upstreams"))["data"]
        return await visit.page_in_parts(
            "upstreams.html",
            part="upstreams_now.html",
            title="Upstreams",
            upstreams=[shown_upstream(one) for one in found],
            read_at=self._now_s(),
            states=STATES,
        )


def shown_upstream(facts: Json) -> ShownUpstream:
    """Return an upstream of the API as it is shown."""
    counts: Mapping[str, int] = facts["requests"]
    outcomes = [(word, counts[outcome]) for outcome, word in OUTCOMES.items() if counts.get(outcome)]
    return ShownUpstream(facts=facts, outcomes=outcomes, retried=sum(facts["retries"].values()))


async def _lead(_visit: Visit) -> web.Response:
    """Lead from the address that people guess."""
    return see_other("status", "upstreams")
