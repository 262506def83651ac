"""The inbox: the calls that wait for a person, narrowed, sorted or in groups, and news of them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from gateway.console.api_client import Api, ApiError
from gateway.console.event_hub import Live, PageView, format_sse_frame
from gateway.console.pages.approvals.approval import BASES
from gateway.console.rendering import TemplateRenderer
from gateway.console.request import CONSOLE, VIEWING, Page, Visit, link, see_other
from gateway.console.static import build_static_url
from gateway.contracts.storage.store import Json

SHOWN: Final = 50
#: Orders of calls, in words; the first one is the usual one.
ORDERS: Final[Mapping[str, str]] = {
    "urgency": "most urgent first",
    "oldest": "oldest first",
    "newest": "newest first",
}
#: What the calls of a group share, in words.
GROUPINGS: Final[Mapping[str, str]] = {"call": "equal calls", "tool": "tool", "caller": "caller"}
#: Ages of calls, in seconds, in words.
AGES: Final[Mapping[str, str]] = {
    "300": "more than 5 minutes",
    "3600": "more than an hour",
    "86400": "more than a day",
}
#: What the inbox is narrowed by.
NARROWING: Final = ("q", "tool", "caller", "assigned", "equal_to", "age")
#: Errors of the API that are about what the reader entered.
_ENTERED: Final = (400, 422)


class Inbox:
    """The page of all calls that wait. `live` sends news to open pages, `now_s` returns the Unix time."""

    def __init__(self, rendering: TemplateRenderer, live: Live, now_s: Callable[[], float]) -> None:
        self._rendering = rendering
        self._live = live
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        return (Page("GET", "", self._show_inbox), Page("GET", "/live", self._stream_news, VIEWING))

    async def _show_inbox(self, visit: Visit) -> web.Response:
        if not visit.may(*VIEWING):  # a key of operators only
            return see_other("status")
        order = _read_word(visit, "order", ORDERS) or "urgency"
        group = _read_word(visit, "group", GROUPINGS)
        narrowed = parse_filters(visit.query, self._now_s())
        status, problem = 200, None
        try:
            listed, summary = await asyncio.gather(
                _list_groups(visit.api, group, narrowed) if group else _list_calls(visit, order, narrowed),
                visit.api.get("context", "summary"),
            )
        except ApiError as error:
            if error.status not in _ENTERED or not visit.query:
                raise
            status, problem, listed = error.status, error.message, {"data": [], "next": None}
            summary = await visit.api.get("context", "summary")
        return visit.render_answer(
            "inbox.html",
            status=status,
            title=visit.t("Inbox"),
            bases=BASES,
            summary=summary,
            pending=summary["pending"],
            approvals=[] if group else listed["data"],
            groups=listed["data"] if group else [],
            more_groups=listed.get("more", False),
            following=listed.get("next"),
            narrowing={name: visit.query[name] for name in NARROWING if name in visit.query},
            choices={"order": ORDERS, "group": GROUPINGS, "age": AGES},
            order=order,
            group=group,
            problem=problem,
        )

    async def _stream_news(self, visit: Visit) -> web.StreamResponse:
        async def count() -> bytes:
            return format_sse_frame("count", str((await visit.api.get("context", "summary"))["pending"]))

        return await self._live.stream_news(visit, count)

    async def render_event(self, event: Json, api: Api, view: PageView) -> bytes:
        """Return the frames of an event for open inboxes (`gateway.console.event_hub.Render`)."""
        if event["event"] not in ("approval.required", "approval.partly_approved", "approval.resolved"):
            return b""
        pending = (await api.get("context", "summary"))["pending"]
        count = format_sse_frame("count", str(pending))
        if event["event"] == "approval.resolved":
            return format_sse_frame("resolved", event["data"]["approval_id"]) + count
        frame = {"static": build_static_url, "console": CONSOLE, "link": link, "bases": BASES}
        card = {**frame, "approval": event["data"], "decides": view.decides}
        fresh = format_sse_frame("approval", self._rendering.render("card.html", view.language, card)) + count
        # A card that is there already makes room for the one with its first approval.
        return (
            fresh
            if event["event"] == "approval.required"
            else format_sse_frame("resolved", event["data"]["id"]) + fresh
        )


def parse_filters(query: Mapping[str, str], now_s: float) -> dict[str, str | int | None]:
    """Return what a list of the API is narrowed by, of the query of a page of the console."""
    narrowed: dict[str, str | int | None] = {name: query.get(name) for name in NARROWING if name != "age"}
    age = query.get("age", "")
    return {**narrowed, "until": f"{now_s - int(age):.0f}" if age in AGES else None}


async def _list_calls(visit: Visit, order: str, narrowed: Mapping[str, str | int | None]) -> Json:
    after = visit.query.get("after")
    return await visit.api.get(
        "context", "approvals", status="pending", order=order, limit=SHOWN, after=after, **narrowed
    )


async def _list_groups(api: Api, by: str, narrowed: Mapping[str, str | int | None]) -> Json:
    return await api.get("context", "approvals", "groups", by=by, limit=SHOWN, **narrowed)


def _read_word(visit: Visit, name: str, words: Mapping[str, str]) -> str | None:
    """Return the word of a choice that the query makes; None for another one."""
    word = visit.query.get(name)
    return word if word in words else None
