"""The list of runs, newest first, and the ways to narrow it."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.request import VIEWING, Page, Visit
from gateway.console.sorting import Key, sort_rows
from gateway.console.timeline import measure_duration_s
from gateway.contracts.storage.store import Json

SHOWN: Final = 50
STATES: Final = (
    "running",
    "awaiting_approval",
    "awaiting_client",
    "unknown",
    "completed",
    "rejected",
    "expired",
    "failed",
    "interrupted",
    "cancelled",
)
KINDS: Final = ("chat", "workflow", "tool")
#: What a list is narrowed by, besides times: `gateway.api.runs` has the same words.
_WORDS: Final = ("state", "kind", "caller", "workflow", "conversation")
_TIMES: Final = ("since", "until")
#: What the runs of a page can be sorted by.
COLUMNS: Final[Mapping[str, Key]] = {
    **{name: itemgetter(name) for name in ("state", "caller", "conversation", "pending")},
    "kind": lambda run: (run["kind"], run["workflow"] or run["tool"] or ""),
    "begun": itemgetter("created_at"),
    "took": itemgetter("lasted_s"),
}
_UNIX = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,6})?")
#: Errors of the API that are about what the reader entered.
_ENTERED: Final = (400, 422)


class RunList:
    """The page of all runs of a tenant. `now_s` returns the Unix time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        return (Page("GET", "/runs", self._list, VIEWING), Page("GET", "/runs/csv", _build_table, VIEWING))

    async def _list(self, visit: Visit) -> web.Response:
        query = visit.query
        listed: Json = {"data": [], "next": None}
        status, problem = 200, None
        try:
            listed = await visit.api.get(
                "context", "runs", limit=SHOWN, after=query.get("after"), **_parse_filters(visit)
            )
        except ApiError as error:
            if error.status not in _ENTERED:
                raise
            status, problem = error.status, error.message
        now_s = self._now_s()
        runs = [{**run, "lasted_s": measure_duration_s(run, run["created_at"], now_s=now_s)} for run in listed["data"]]
        return await visit.render_page(
            "runs.html",
            title="Runs",
            status=status,
            runs=sort_rows(runs, query.get("sort"), COLUMNS),
            following=listed["next"],
            states=STATES,
            kinds=KINDS,
            narrowing={name: query[name] for name in (*_WORDS, *_TIMES) if name in query},
            problem=problem,
        )


async def _build_table(visit: Visit) -> web.StreamResponse:
    """Return the table of all runs that fit, as the page is narrowed."""
    return await visit.stream_table("context", "runs", file="runs.csv", **_parse_filters(visit))


def _parse_filters(visit: Visit) -> dict[str, str | int | None]:
    """Return what the query narrows the list by, as the API takes it. Raises ApiError about a time."""
    try:
        times = {name: parse_time(visit.query, name) for name in _TIMES}
    except ValueError as error:
        text = visit.t("{0} is not a time: write it like 2026-01-31T08:00.", str(error))
        raise ApiError(400, {"code": "invalid_field", "message": text}) from None
    return {**{name: visit.query.get(name) for name in _WORDS}, **times}


def parse_time(query: Mapping[str, str], name: str) -> str | None:
    """Return a time of a form as Unix seconds, None if the form has none. Raises ValueError.

    A form sends `2026-01-31T08:00` in UTC; a link may have Unix seconds.
    """
    text = query.get(name)
    if text is None or _UNIX.fullmatch(text):
        return text
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(text) from None
    return f"{(at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp():.0f}"
