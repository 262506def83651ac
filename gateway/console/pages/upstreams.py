"""The page of upstreams: their endpoints, why some get no requests, and how requests ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from aiohttp import web

from gateway.console.request import ADMIN, Page, Visit, see_other
from gateway.console.sorting import Key, sort_rows
from gateway.contracts.storage.store import Json

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

#: What the endpoints of an upstream can be sorted by; worse states stand behind better ones.
COLUMNS: Final[Mapping[str, Key]] = {
    "endpoint": itemgetter("name"),
    "state": lambda endpoint: list(STATES).index(endpoint["state"]),
    "busy": itemgetter("under_way"),
    "sent": lambda endpoint: _sum_counts(endpoint["tries"]),
    "failed": lambda endpoint: None if endpoint["tries"] is None else endpoint["tries"].get("failed", 0),
    "out": lambda endpoint: _sum_counts(endpoint["ejections"]),
    "last": itemgetter("last_status"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownUpstream:
    """One upstream: the facts of the API, and its endpoints in the order of the page.

    `outcomes` are the ones that happened, in words, `retried` all reasons.
    """

    facts: Json
    endpoints: Sequence[Json]
    outcomes: list[tuple[str, int]]
    retried: int


class Upstreams:
    """The page of upstreams, below that of the status. `now_s` returns the Unix time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        return (
            Page("GET", "/status/upstreams", self._show_upstreams, ADMIN),
            Page("GET", "/upstreams", _redirect_to_status, ADMIN),
        )

    async def _show_upstreams(self, visit: Visit) -> web.Response:
        found = (await visit.api.get("context", "upstreams"))["data"]
        return await visit.render_page_in_parts(
            "upstreams.html",
            part="upstreams_now.html",
            title="Upstreams",
            upstreams=[build_upstream_row(one, visit.query.get("sort")) for one in found],
            read_at=self._now_s(),
            states=STATES,
        )


def build_upstream_row(facts: Json, sort: str | None = None) -> ShownUpstream:
    """Return an upstream of the API as it is shown. `sort` is a word of `COLUMNS`, with `-` for the largest first."""
    counts: Mapping[str, int] = facts["requests"]
    outcomes = [(word, counts[outcome]) for outcome, word in OUTCOMES.items() if counts.get(outcome)]
    endpoints = sort_rows(facts["endpoints"], sort, COLUMNS)
    retried = sum(facts["retries"].values())
    return ShownUpstream(facts=facts, endpoints=endpoints, outcomes=outcomes, retried=retried)


def _sum_counts(counts: Mapping[str, int] | None) -> int | None:
    return None if counts is None else sum(counts.values())


async def _redirect_to_status(_visit: Visit) -> web.Response:
    """Lead from the address that people guess."""
    return see_other("status", "upstreams")
