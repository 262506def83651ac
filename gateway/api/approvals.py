"""The pages of approvals: pending calls, and decisions on them.

An approval does not exist for another tenant, whatever its key may do. `Approvals` checks the rules of a decision.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, cast, get_args

from aiohttp import web
from msgspec import UNSET, UnsetType
from pydantic import Field

from gateway.api.decisions import ApiContext, DecisionBody, carry_out, resume_runs
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import (
    VIEWING,
    RequestBody,
    build_stale_cursor_error,
    get_via,
    parse_limit,
    parse_query,
    parse_query_choice,
    parse_query_time,
    read_body,
    read_user,
)
from gateway.api.views import (
    CallGroupView,
    RefusalView,
    build_decided_view,
    build_error_view,
    build_group_view,
    build_groups_answer,
    build_json_answer,
    build_page_answer,
    list_answer,
    preview_view,
)
from gateway.approvals.approval_struct import ApprovalView, NotedApprovalView, build_noted_view
from gateway.approvals.chat_replies import COMMENT_CHARS
from gateway.approvals.decision import Decision, build_not_found_error
from gateway.contracts.api_bounds import BATCH_MOST
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Approval, ApprovalState, NoteWrite
from gateway.contracts.storage.list_queries import ApprovalGrouping, ApprovalOrder, NarrowedApprovals
from gateway.contracts.storage.store import Json
from gateway.contracts.views import View, fill_view

APPROVALS = "/context/approvals"
STATES: Final[tuple[ApprovalState, ...]] = get_args(ApprovalState)
ORDERS: Final[tuple[ApprovalOrder, ...]] = get_args(ApprovalOrder)
GROUPINGS: Final[tuple[ApprovalGrouping, ...]] = get_args(ApprovalGrouping)
#: What narrows pending approvals only: of all of them there are too many to look at each.
OF_PENDING: Final = ("tool", "caller", "assigned", "q", "equal_to", "since", "until")
QUERY_CHARS: Final = 200
NAME_CHARS: Final = 100
NOTE_CHARS: Final = 500
#: The name that stands for the key of the request.
ME: Final = "me"
#: So many characters of arguments are in one answer, and all of one call in any case: a page of calls of a megabyte
#: each took the event loop seconds, and memory several times its size.
PAGE_CHARS: Final = 4_000_000
WAIT_MOST_S = 60.0
_SECONDS = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,3})?", re.ASCII)


class OneApprovalView(NotedApprovalView, frozen=True, kw_only=True):
    """An approval with the JSON Schema of its tool's parameters, if there is such a tool."""

    parameters: Json | None


class BatchEntryView(View, frozen=True, kw_only=True):
    """The outcome of one decision of a batch, as if it were a request of its own."""

    id: str
    status: int
    approval: ApprovalView | UnsetType = UNSET
    error: RefusalView | UnsetType = UNSET


class BatchItem(RequestBody):
    """One approval of a batch."""

    id: str
    sha256: str | None = None


class Batch(RequestBody):
    """One decision on the approvals that are listed, and on no other."""

    decision: Literal["approve", "reject"]
    approvals: list[BatchItem] = Field(min_length=1, max_length=BATCH_MOST)
    reason: str | None = Field(default=None, max_length=COMMENT_CHARS)


class Assignment(RequestBody):
    """The name of the one who is to decide on an approval: any, `me` for the key of the request, or null."""

    to: str | None = Field(min_length=1, max_length=NAME_CHARS)


class Note(RequestBody):
    """A note on an approval."""

    text: str = Field(min_length=1, max_length=NOTE_CHARS)


class ApprovalPages:
    """The approval pages of one worker."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api
        self._closing = False
        self._waiting: set[asyncio.Event] = set()

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        one = APPROVALS + "/{id}"
        return [
            *build_readable_routes(APPROVALS, self._list),
            *build_readable_routes(APPROVALS + "/groups", self._serve_groups),
            *build_readable_routes(one, self._serve_approval),
            *build_readable_routes(one + "/preview", self._preview),
            ("POST", APPROVALS + "/batch", self._decide_all),
            ("POST", one + "/assign", self._assign),
            ("POST", one + "/notes", self._serve_note),
            ("POST", one, self._decide),
        ]

    async def close(self) -> None:
        """Answer all waiting requests now. Idempotent."""
        self._closing = True
        for news in self._waiting:
            news.set()

    async def _list(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        query = parse_query(request, "status", "conversation", "run", *OF_PENDING, "order", "after", "limit")
        after, limit = query.get("after"), parse_limit(query)
        order, narrowed = _parse_order(query), _read_narrowing(query, caller)
        if after is not None and await self._api.store.get_approval(after, tenant=caller.tenant) is None:
            raise build_stale_cursor_error("after")
        await self._api.approvals().expire_due(tenant=caller.tenant)
        approvals = await self._api.store.list_approvals(
            tenant=caller.tenant,
            order=order,
            after=after,
            limit=limit + 1,
            **narrowed,
        )
        page = _take_page(approvals[:limit])
        following = page[-1].id if len(page) < len(approvals) else None
        return build_page_answer([build_noted_view(approval) for approval in page], following=following)

    async def _serve_groups(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        query = parse_query(request, "by", "conversation", "run", *OF_PENDING, "limit")
        by = cast("ApprovalGrouping", parse_query_choice(query, "by", GROUPINGS) or "call")
        narrowed = _read_narrowing({**query, "status": "pending"}, caller)
        limit, store = parse_limit(query), self._api.store
        await self._api.approvals().expire_due(tenant=caller.tenant)
        groups = await store.list_approval_groups(tenant=caller.tenant, by=by, limit=limit + 1, **narrowed)
        shown: list[CallGroupView] = []
        chars = 0
        for group in groups[:limit]:
            if (first := await store.get_approval(group.first, tenant=caller.tenant)) is None:
                continue
            chars += _count_chars(first)
            if shown and chars > PAGE_CHARS:
                return build_groups_answer(shown, more=True)
            shown.append(build_group_view(group, first, by=by))
        return build_groups_answer(shown, more=len(groups) > limit)

    async def _serve_approval(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        wait_s = _parse_wait(parse_query(request, "wait").get("wait"))
        approval = await self._get_approval(request.match_info["id"], caller)
        if approval.state == "pending" and wait_s:
            approval = await self._wait_until_decided(approval, caller, wait_s=wait_s)
        entry = self._api.catalog().find_by_name(approval.tool)
        parameters = None if entry is None else entry.spec.parameters
        return build_json_answer(fill_view(OneApprovalView, build_noted_view(approval), parameters=parameters))

    async def _preview(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, "approve")
        parse_query(request)
        approval = await self._get_approval(request.match_info["id"], caller)
        return build_json_answer(preview_view(await self._api.previews.preview_call(approval, self._api.catalog())))

    async def _decide(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        parse_query(request)
        decision = await read_body(request, DecisionBody, caller)
        wish = decision.to_decision(get_via(request), user=read_user(request))
        approval = await carry_out(self._api.decide_and_resume(request.match_info["id"], wish, caller=caller))
        return build_json_answer(build_decided_view(approval))

    async def _decide_all(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, "approve")
        parse_query(request)
        batch = await read_body(request, Batch, caller)
        same = Decision(
            approve=batch.decision == "approve", via=get_via(request), comment=batch.reason, user=read_user(request)
        )
        wishes = [(one.id, replace(same, sha256=one.sha256)) for one in batch.approvals]
        made = await carry_out(self._decide_each(wishes, caller))
        return list_answer(
            [_build_entry_view(listed.id, one) for listed, one in zip(batch.approvals, made, strict=True)]
        )

    async def _decide_each(
        self, wishes: Sequence[tuple[str, Decision]], caller: Caller
    ) -> Sequence[Approval | GatewayError]:
        made = await asyncio.gather(*(self._try_decide(approval_id, wish, caller) for approval_id, wish in wishes))
        await resume_runs(self._api.resume, *(one for one in made if isinstance(one, Approval)))
        return made

    async def _try_decide(self, approval_id: str, wish: Decision, caller: Caller) -> Approval | GatewayError:
        try:
            return await self._api.decide(approval_id, wish, caller=caller)
        except GatewayError as error:
            return error

    async def _assign(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, "approve")
        parse_query(request)
        to = (await read_body(request, Assignment, caller)).to
        return await self._store_note(request, caller, assigned=caller.name if to == ME else to or "")

    async def _serve_note(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, "approve")
        parse_query(request)
        return await self._store_note(request, caller, text=(await read_body(request, Note, caller)).text)

    async def _store_note(
        self, request: web.Request, caller: Caller, *, assigned: str | None = None, text: str | None = None
    ) -> web.Response:
        word = NoteWrite(
            approval_id=request.match_info["id"],
            tenant=caller.tenant,
            by=caller.name,
            via=get_via(request),
            now_s=self._api.clock.time(),
            assigned=assigned,
            text=text,
        )
        return build_json_answer(build_noted_view(await self._api.store_note(word)))

    async def _get_approval(self, approval_id: str, caller: Caller) -> Approval:
        """Return the approval, expired first if its time is over. Raises GatewayError (approval_not_found)."""
        approval = await self._api.store.get_approval(approval_id, tenant=caller.tenant)
        if approval is not None and approval.state == "pending" and approval.expires_s <= self._api.clock.time():
            await self._api.approvals().expire()
            approval = await self._api.store.get_approval(approval_id, tenant=caller.tenant)
        if approval is None:
            raise build_not_found_error()
        return approval

    async def _wait_until_decided(self, approval: Approval, caller: Caller, *, wait_s: float) -> Approval:
        """Return the approval once it is not pending any more, or as it is after `wait_s`."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        ends_s = loop.time() + wait_s
        self._waiting.add(news)
        try:
            async with self._api.feed.subscribe(lambda _: news.set(), run_id=approval.run_id):
                while True:
                    news.clear()
                    approval = await self._get_approval(approval.id, caller)
                    left_s = min(ends_s - loop.time(), approval.expires_s - self._api.clock.time())
                    if approval.state != "pending" or loop.time() >= ends_s or self._closing:
                        return approval
                    timer = loop.call_later(max(left_s, 0.0), news.set)
                    try:
                        await news.wait()
                    finally:
                        timer.cancel()
        finally:
            self._waiting.discard(news)


def _take_page(found: Sequence[Approval]) -> Sequence[Approval]:
    """Return the first of these approvals, as many as one answer holds."""
    chars = 0
    for number, approval in enumerate(found):
        chars += _count_chars(approval)
        if number and chars > PAGE_CHARS:
            return found[:number]
    return found


def _count_chars(approval: Approval) -> int:
    return len(approval.arguments) + len(approval.edited or "")


def _build_entry_view(approval_id: str, made: Approval | GatewayError) -> BatchEntryView:
    if isinstance(made, GatewayError):
        return BatchEntryView(id=approval_id, status=made.facts.status, error=build_error_view(made))
    return BatchEntryView(id=approval_id, status=200, approval=build_decided_view(made))


def _parse_order(query: Mapping[str, str]) -> ApprovalOrder:
    """Return the order of a list. Raises GatewayError (invalid_field)."""
    order = parse_query_choice(query, "order", ORDERS)
    if order == "urgency" and query.get("status") != "pending":
        raise GatewayError(
            "invalid_field",
            "Only pending approvals have an urgency: send 'status=pending' too, or another 'order'.",
            param="order",
        )
    return cast("ApprovalOrder", order or "oldest")


def _read_narrowing(query: Mapping[str, str], caller: Caller) -> NarrowedApprovals:
    """Return what a list is narrowed by. Raises GatewayError (invalid_field)."""
    given = next((name for name in OF_PENDING if name in query), None)
    if given is not None and query.get("status") != "pending":
        text = f"Only pending approvals are narrowed by {given!r}: send 'status=pending' too."
        raise GatewayError("invalid_field", text, param=given)
    if len(query.get("q", "")) > QUERY_CHARS:
        text = f"The text to look for is too long: send {QUERY_CHARS} characters at most."
        raise GatewayError("invalid_field", text, param="q")
    return {
        "state": parse_query_choice(query, "status", STATES),
        "conversation": query.get("conversation"),
        "run_id": query.get("run"),
        "tool": query.get("tool"),
        "caller": query.get("caller"),
        "assigned": caller.name if query.get("assigned") == ME else query.get("assigned"),
        "text": query.get("q"),
        "equal_to": query.get("equal_to"),
        "since_s": parse_query_time(query, "since"),
        "until_s": parse_query_time(query, "until"),
    }


def _parse_wait(text: str | None) -> float:
    """Return the seconds to wait. Raises GatewayError (invalid_field)."""
    if text is None:
        return 0.0
    if _SECONDS.fullmatch(text) is None or float(text) > WAIT_MOST_S:
        raise GatewayError(
            "invalid_field",
            f"The value of 'wait' is not valid: send a number of seconds from 0 to {WAIT_MOST_S:g}.",
            param="wait",
        )
    return float(text)
