"""The pages of runs: their steps, cancelling, resuming, settling unknown calls; the audit log; the summary."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final, get_args

import orjson
from aiohttp import web
from pydantic import Field

from gateway.api.decisions import ApiContext, carried_out, go_on, still_answered, written
from gateway.api.operating.tables import AUDIT_COLUMNS, COLUMNS, audit_row, is_table, run_row, table_answer
from gateway.api.request import (
    LIMIT_MOST,
    VIEWING,
    Body,
    body_of,
    gone,
    limit_of,
    number_of,
    query_of,
    read_user,
    time_of,
    via_of,
    word_of,
)
from gateway.api.site import Route, readable
from gateway.api.views import audit_view, json_answer, page_answer, run_view, summary_view, whole_run_view
from gateway.approvals.approvals import OF_RUN
from gateway.contracts.caller import Caller
from gateway.contracts.journal import RunKind, RunState, StoredRun
from gateway.contracts.lists import NarrowedRuns
from gateway.contracts.store import Json
from gateway.errors import GatewayError
from gateway.runs import settle

RUNS, AUDIT, SUMMARY = "/context/runs", "/context/audit", "/context/summary"
STATES: Final[tuple[RunState, ...]] = get_args(RunState)
KINDS: Final[tuple[RunKind, ...]] = get_args(RunKind)
#: Words in which a run that waits in memory differs from what is stored of it; so many are looked at for them.
_SHOWN: Final = ("running", "awaiting_approval")
LOOKED_AT = 200
#: What a list is narrowed by.
_NARROWING: Final = ("state", "conversation", "kind", "caller", "workflow", "since", "until")
#: A person's word on a call is short; a result of a tool is shown to a model up to this much.
RESULT_CHARS = 32_768


class SettlementBody(Body):
    """A person's statement about a call with an unknown outcome. It is empty for a run that is only to go on."""

    step: int | None = Field(default=None, ge=0)
    outcome: settle.Outcome | None = Field(default=None, alias="as")
    result: str | None = Field(default=None, max_length=RESULT_CHARS)
    trusted: bool = False  # no stranger wrote it


class RunPages:
    """The run pages of one worker."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        one = RUNS + "/{id}"
        return [
            *readable(RUNS, self._list),
            *readable(one, self._get),
            *readable(AUDIT, self._audit),
            *readable(SUMMARY, self._summary),
            ("POST", one + "/cancel", self._cancel),
            ("POST", one + "/resume", self._settle),
        ]

    async def _list(self, request: web.Request) -> web.StreamResponse:
        caller = self._api.authorise(request, *VIEWING)
        query = query_of(request, *_NARROWING, "after", "limit", "format")
        if is_table(query):
            return await table_answer(request, COLUMNS, self._rows(request, query), file="runs.csv")
        views, following = await self._page(query, caller, limit=limit_of(query))
        return page_answer(views, following=following)

    async def _rows(self, request: web.Request, query: Mapping[str, str]) -> AsyncIterator[Sequence[Sequence[object]]]:
        """Yield the rows of all runs that fit, some at a time, as long as the key may see them."""
        after = query.get("after")
        while True:
            caller = self._api.authorise(request, *VIEWING)
            place = {} if after is None else {"after": after}
            views, after = await self._page({**query, **place}, caller, limit=LIMIT_MOST)
            yield [run_row(view) for view in views]
            if after is None:
                return

    async def _page(self, query: Mapping[str, str], caller: Caller, *, limit: int) -> tuple[Sequence[Json], str | None]:
        """Return some runs that fit, newest first, and the `after` of those that follow, None at the end."""
        wanted, after = word_of(query, "state", STATES), query.get("after")
        found, following = await self._chosen(query, tenant=caller.tenant, wanted=wanted, limit=limit)
        if (
            after is not None
            and not found
            and following is None
            and await self._api.store.run(after, tenant=caller.tenant) is None
        ):
            raise gone("after")
        views: list[Json] = []
        for at, run in enumerate(found):
            view = run_view(run, pending=await self._pending(run))
            if wanted in (None, view["state"]):
                views.append(view)
            if len(views) == limit:
                following = run.id if at + 1 < len(found) else following
                break
        return views, following

    async def _get(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        query_of(request)
        store, run_id, tenant = self._api.store, request.match_info["id"], caller.tenant
        run = await store.run(run_id, tenant=tenant)
        if run is None:
            raise settle.not_found()
        await self._api.approvals().expire_due(tenant=tenant)
        steps, approvals = await asyncio.gather(
            store.steps(run_id, tenant=tenant), store.approvals(tenant=tenant, run_id=run_id, limit=OF_RUN)
        )
        return json_answer(whole_run_view(run, steps=steps, approvals=approvals))

    async def _cancel(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        query_of(request)
        run_id = request.match_info["id"]
        with written("that a run is cancelled"):
            run = await settle.cancel(
                self._api.store,
                run_id,
                caller=caller,
                via=via_of(request),
                clock=self._api.clock,
                tracer=self._api.tracer,
            )
        self._api.feed.nudge()
        return json_answer(run_view(run, pending=0))

    async def _settle(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        query_of(request)
        body = await body_of(request, SettlementBody, caller)
        if body == SettlementBody():
            return await self._go_on(request.match_info["id"], caller)
        if body.step is None or body.outcome is None:
            missing = "step" if body.step is None else "as"
            raise GatewayError(
                "missing_field", "The body has only one of 'step' and 'as': send both, or send {}.", param=missing
            )
        if body.outcome == "retry" and body.result is not None:
            raise GatewayError(
                "invalid_field",
                "A call that runs again has a result of its own: leave 'result' out, or send another 'as'.",
                param="result",
            )
        settlement = settle.Settlement(
            step=body.step,
            outcome=body.outcome,
            via=via_of(request),
            result=body.result,
            trusted=body.trusted,
            user=read_user(request),
        )
        run = await carried_out(self._settled(request.match_info["id"], settlement, caller))
        pending = 0
        with still_answered("a settlement"):
            pending = await self._pending(run)
        return json_answer(run_view(run, pending=pending))

    async def _settled(self, run_id: str, settlement: settle.Settlement, caller: Caller) -> StoredRun:
        with written("what a person says about a call"):
            rules, clock = self._api.approvals().rules, self._api.clock
            run = await settle.resolve(self._api.store, run_id, settlement, caller=caller, rules=rules, clock=clock)
        self._api.feed.nudge()
        if run.state == "running":
            await go_on(self._api.resume, run)
        return run

    async def _go_on(self, run_id: str, caller: Caller) -> web.Response:
        """Resume a run without its client: it waits for that client, or for an upstream that had failed."""
        run = await self._api.store.run(run_id, tenant=caller.tenant)
        if run is None:
            raise settle.not_found()
        if run.state == "unknown":
            raise GatewayError(
                "invalid_field",
                "A call of this run has an unknown outcome: send its 'step', and the outcome in 'as'.",
                param="step",
            )
        if run.state != "awaiting_client":
            raise GatewayError(
                "run_not_waiting",
                f"The run is {run.state!r}, so it cannot be resumed: only a run in 'awaiting_client' can.",
            )
        if orjson.loads(run.request)["credential"]:
            raise GatewayError(
                "run_not_waiting", "The run needs its client's own key, which is not stored: send its request again."
            )
        await go_on(self._api.resume, run)
        self._api.feed.nudge()
        with still_answered("that a run is to go on"):
            run = await self._api.store.run(run_id, tenant=caller.tenant) or run
        return json_answer(run_view(run, pending=0))

    async def _summary(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        query_of(request)
        await self._api.approvals().expire_due(tenant=caller.tenant)
        return json_answer(summary_view(await self._api.store.tally(tenant=caller.tenant)))

    async def _audit(self, request: web.Request) -> web.StreamResponse:
        self._api.authorise(request, "admin")
        query = query_of(request, "after", "limit", "format")
        after = number_of(query, "after", default=0)
        if is_table(query):
            return await table_answer(request, AUDIT_COLUMNS, self._lines(request, after), file="audit.csv")
        limit = limit_of(query)
        rows = await self._api.store.audit(after=after, limit=limit + 1)
        following = str(rows[limit - 1].seq) if len(rows) > limit else None
        return page_answer([audit_view(row) for row in rows[:limit]], following=following)

    async def _lines(self, request: web.Request, after: int) -> AsyncIterator[Sequence[Sequence[object]]]:
        """Yield the rows of the audit log behind a line, some at a time, as long as the key may see them."""
        while True:
            self._api.authorise(request, "admin")
            rows = await self._api.store.audit(after=after, limit=LIMIT_MOST)
            yield [audit_row(row) for row in rows]
            if len(rows) < LIMIT_MOST:
                return
            after = rows[-1].seq

    async def _chosen(
        self, query: Mapping[str, str], *, tenant: str, wanted: str | None, limit: int
    ) -> tuple[Sequence[StoredRun], str | None]:
        """Return the runs that may be shown, newest first, and the id of the last one looked at; None: of all."""
        narrowed = _narrowed(query)
        some = partial(self._api.store.runs, tenant=tenant, after=query.get("after"))
        if wanted not in _SHOWN:
            narrowed["state"] = wanted
            page = await some(limit=limit, **narrowed)
            return page.runs, None if page.behind is None else page.behind[1]
        found: list[StoredRun] = []
        seen_until = (-math.inf, "")
        for state in _SHOWN if wanted == "awaiting_approval" else ("running",):
            narrowed["state"] = state
            page = await some(limit=LOOKED_AT, **narrowed)
            seen_until = max(seen_until, page.behind or seen_until)
            found += page.runs
        kept = sorted((run for run in found if _place(run) >= seen_until), key=_place, reverse=True)
        return kept, seen_until[1] or None

    async def _pending(self, run: StoredRun) -> int:
        """Return the number of pending approvals of the run; 0 for a run that is not under way."""
        if run.state not in _SHOWN:
            return 0
        return len(await self._api.store.approvals(tenant=run.tenant, run_id=run.id, state="pending", limit=OF_RUN))


def _narrowed(query: Mapping[str, str]) -> NarrowedRuns:
    """Return what a list is narrowed by, besides the state. Raises GatewayError (invalid_field)."""
    return {
        "conversation": query.get("conversation"),
        "kind": word_of(query, "kind", KINDS),
        "caller": query.get("caller"),
        "workflow": query.get("workflow"),
        "since_s": time_of(query, "since"),
        "until_s": time_of(query, "until"),
    }


def _place(run: StoredRun) -> tuple[float, str]:
    """Return the sort key of a run in a list, which is in descending order."""
    return run.created_s, run.id
