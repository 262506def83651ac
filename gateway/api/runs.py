"""The pages of runs: their steps, cancelling, resuming, settling unknown calls; the audit log; the summary."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final, get_args

import orjson
from aiohttp import web
from pydantic import Field

from gateway.api.admin.csv_export import AUDIT_COLUMNS, COLUMNS, audit_row, is_table, run_row, stream_table
from gateway.api.decisions import ApiContext, carry_out, convert_store_errors, resume_runs, still_answered
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import (
    VIEWING,
    RequestBody,
    build_stale_cursor_error,
    get_via,
    parse_limit,
    parse_query,
    parse_query_choice,
    parse_query_number,
    parse_query_time,
    read_body,
    read_user,
)
from gateway.api.views import (
    RunView,
    audit_view,
    build_json_answer,
    build_page_answer,
    build_summary_view,
    build_whole_run_view,
    run_view,
)
from gateway.approvals.approvals import OF_RUN
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import RunKind, RunState, StoredRun
from gateway.contracts.storage.list_queries import NarrowedRuns
from gateway.runs import run_resolution

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


class SettlementBody(RequestBody):
    """A person's statement about a call with an unknown outcome. It is empty for a run that is only to go on."""

    step: int | None = Field(default=None, ge=0)
    outcome: run_resolution.Outcome | None = Field(default=None, alias="as")
    result: str | None = Field(default=None, max_length=RESULT_CHARS)
    trusted: bool = False  # it contains no untrusted text


class RunPages:
    """The run pages of one worker."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        one = RUNS + "/{id}"
        return [
            *build_readable_routes(RUNS, self._list),
            *build_readable_routes(one, self._serve_run),
            *build_readable_routes(AUDIT, self._audit),
            *build_readable_routes(SUMMARY, self._serve_summary),
            ("POST", one + "/cancel", self._cancel),
            ("POST", one + "/resume", self._serve_resolution),
        ]

    async def _list(self, request: web.Request) -> web.StreamResponse:
        caller = self._api.authorise(request, *VIEWING)
        query = parse_query(request, *_NARROWING, "after", "limit", "format")
        if is_table(query):
            return await stream_table(request, COLUMNS, self._iterate_rows(request, query), file="runs.csv")
        views, following = await self._load_page(query, caller, limit=parse_limit(query))
        return build_page_answer(views, following=following)

    async def _iterate_rows(
        self, request: web.Request, query: Mapping[str, str]
    ) -> AsyncIterator[Sequence[Sequence[object]]]:
        """Yield the rows of all runs that fit, some at a time, as long as the key may see them."""
        after = query.get("after")
        while True:
            caller = self._api.authorise(request, *VIEWING)
            place = {} if after is None else {"after": after}
            views, after = await self._load_page({**query, **place}, caller, limit=LIMIT_MOST)
            yield [run_row(view) for view in views]
            if after is None:
                return

    async def _load_page(
        self, query: Mapping[str, str], caller: Caller, *, limit: int
    ) -> tuple[Sequence[RunView], str | None]:
        """Return a page of runs that fit, newest first, and the `after` of the next page, None at the end."""
        wanted, after = parse_query_choice(query, "state", STATES), query.get("after")
        found, following = await self._select_runs(query, tenant=caller.tenant, wanted=wanted, limit=limit)
        if (
            after is not None
            and not found
            and following is None
            and await self._api.store.run(after, tenant=caller.tenant) is None
        ):
            raise build_stale_cursor_error("after")
        views: list[RunView] = []
        for at, run in enumerate(found):
            view = run_view(run, pending=await self._count_pending(run))
            if wanted in (None, view.state):
                views.append(view)
            if len(views) == limit:
                following = run.id if at + 1 < len(found) else following
                break
        return views, following

    async def _serve_run(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        parse_query(request)
        store, run_id, tenant = self._api.store, request.match_info["id"], caller.tenant
        run = await store.run(run_id, tenant=tenant)
        if run is None:
            raise run_resolution.build_not_found_error()
        await self._api.approvals().expire_due(tenant=tenant)
        steps, approvals = await asyncio.gather(
            store.list_steps(run_id, tenant=tenant), store.list_approvals(tenant=tenant, run_id=run_id, limit=OF_RUN)
        )
        return build_json_answer(build_whole_run_view(run, steps=steps, approvals=approvals))

    async def _cancel(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        parse_query(request)
        run_id = request.match_info["id"]
        with convert_store_errors("that a run is cancelled"):
            run = await run_resolution.cancel(
                self._api.store,
                run_id,
                caller=caller,
                via=get_via(request),
                clock=self._api.clock,
                tracer=self._api.tracer,
            )
        self._api.feed.nudge()
        return build_json_answer(run_view(run, pending=0))

    async def _serve_resolution(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        parse_query(request)
        body = await read_body(request, SettlementBody, caller)
        if body == SettlementBody():
            return await self._resume_run(request.match_info["id"], caller)
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
        settlement = run_resolution.RunSettlement(
            step=body.step,
            outcome=body.outcome,
            via=get_via(request),
            result=body.result,
            trusted=body.trusted,
            user=read_user(request),
        )
        run = await carry_out(self._settle_call(request.match_info["id"], settlement, caller))
        pending = 0
        with still_answered("a settlement"):
            pending = await self._count_pending(run)
        return build_json_answer(run_view(run, pending=pending))

    async def _settle_call(self, run_id: str, settlement: run_resolution.RunSettlement, caller: Caller) -> StoredRun:
        with convert_store_errors("what a person says about a call"):
            rules, clock = self._api.approvals().rules, self._api.clock
            run = await run_resolution.resolve(
                self._api.store, run_id, settlement, caller=caller, rules=rules, clock=clock
            )
        self._api.feed.nudge()
        if run.state == "running":
            await resume_runs(self._api.resume, run)
        return run

    async def _resume_run(self, run_id: str, caller: Caller) -> web.Response:
        """Resume a run without its client: it waits for that client, or for an upstream that had failed."""
        run = await self._api.store.run(run_id, tenant=caller.tenant)
        if run is None:
            raise run_resolution.build_not_found_error()
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
        await resume_runs(self._api.resume, run)
        self._api.feed.nudge()
        with still_answered("that a run is to go on"):
            run = await self._api.store.run(run_id, tenant=caller.tenant) or run
        return build_json_answer(run_view(run, pending=0))

    async def _serve_summary(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, *VIEWING)
        parse_query(request)
        await self._api.approvals().expire_due(tenant=caller.tenant)
        return build_json_answer(build_summary_view(await self._api.store.tally(tenant=caller.tenant)))

    async def _audit(self, request: web.Request) -> web.StreamResponse:
        self._api.authorise(request, "admin")
        query = parse_query(request, "after", "limit", "format")
        after = parse_query_number(query, "after", default=0)
        if is_table(query):
            return await stream_table(
                request, AUDIT_COLUMNS, self._iterate_audit_lines(request, after), file="audit.csv"
            )
        limit = parse_limit(query)
        rows = await self._api.store.audit(after=after, limit=limit + 1)
        following = str(rows[limit - 1].seq) if len(rows) > limit else None
        return build_page_answer([audit_view(row) for row in rows[:limit]], following=following)

    async def _iterate_audit_lines(self, request: web.Request, after: int) -> AsyncIterator[Sequence[Sequence[object]]]:
        """Yield the rows of the audit log behind a line, some at a time, as long as the key may see them."""
        while True:
            self._api.authorise(request, "admin")
            rows = await self._api.store.audit(after=after, limit=LIMIT_MOST)
            yield [audit_row(row) for row in rows]
            if len(rows) < LIMIT_MOST:
                return
            after = rows[-1].seq

    async def _select_runs(
        self, query: Mapping[str, str], *, tenant: str, wanted: str | None, limit: int
    ) -> tuple[Sequence[StoredRun], str | None]:
        """Return the runs that may be shown, newest first, and the id of the last one looked at; None: of all."""
        narrowed = _read_narrowing(query)
        some = partial(self._api.store.list_runs, tenant=tenant, after=query.get("after"))
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
        kept = sorted((run for run in found if _get_sort_key(run) >= seen_until), key=_get_sort_key, reverse=True)
        return kept, seen_until[1] or None

    async def _count_pending(self, run: StoredRun) -> int:
        """Return the number of pending approvals of the run; 0 for a run that is not under way."""
        if run.state not in _SHOWN:
            return 0
        return len(
            await self._api.store.list_approvals(tenant=run.tenant, run_id=run.id, state="pending", limit=OF_RUN)
        )


def _read_narrowing(query: Mapping[str, str]) -> NarrowedRuns:
    """Return what a list is narrowed by, besides the state. Raises GatewayError (invalid_field)."""
    return {
        "conversation": query.get("conversation"),
        "kind": parse_query_choice(query, "kind", KINDS),
        "caller": query.get("caller"),
        "workflow": query.get("workflow"),
        "since_s": parse_query_time(query, "since"),
        "until_s": parse_query_time(query, "until"),
    }


def _get_sort_key(run: StoredRun) -> tuple[float, str]:
    """Return the sort key of a run in a list, which is in descending order."""
    return run.created_s, run.id
