"""The beginning of workflow runs that are requested on their pages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import orjson
from aiohttp import web

from gateway.api.ops_pages import REQUEST_ID
from gateway.api.workflows import StartedRun, WorkflowRunRequest
from gateway.auth.keyring import Identify
from gateway.context.context_headers import parse_context_headers
from gateway.context.lane import ContextLane
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.records import replace
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.store import Json
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import get_head
from gateway.model.call import ModelCall
from gateway.runs.idempotency_key import RequestKey, hash_request
from gateway.runs.live_run import LiveRun
from gateway.runs.run_id import generate_run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRuns:
    """The implementation of `workflows.Begin`. `current` returns the lane and the model core in use.

    `admit` raises when the gateway is full.
    """

    current: Callable[[], tuple[ContextLane, ModelCall]]
    identify: Identify
    admit: Callable[[], None]

    async def __call__(self, wanted: WorkflowRunRequest, request: web.Request) -> StartedRun:
        """Begin a new run, or return the run of an earlier request with the same Idempotency-Key."""
        self.admit()
        lane, core = self.current()
        head = get_head(request)
        async with lane.open_use():
            exchange, request_key = await self._read_request(lane, core, head, wanted, path=request.path)
            run = lane.runs.find(request_key)
            if run is None:
                stored = await lane.earlier(request_key, wanted.caller)
                if stored is not None and not _may_run_again(stored):
                    return StartedRun(stored.id, _return_at_once)
                run = await lane.begin(exchange, request_key, detached=wanted.detached)
            request[REQUEST_ID] = run.request_id
            return await _wait_until_stored(lane, run, detached=wanted.detached)

    async def _read_request(
        self, lane: ContextLane, core: ModelCall, head: RequestHead, wanted: WorkflowRunRequest, *, path: str
    ) -> tuple[Exchange, RequestKey]:
        """Return the exchange to run, and the key by which repeated requests are the same."""
        body: Json = {"messages": []} if wanted.model is None else {"model": wanted.model, "messages": []}
        candidates = core.list_candidates(body)
        identity = self.identify(head, candidates.has_key, "context")
        candidates.filter_allowed(identity.caller)
        run_id, caller = generate_run_id(), identity.caller
        key = head.find_value(b"idempotency-key")
        content = orjson.dumps([wanted.parameters, wanted.conversation, wanted.model], option=orjson.OPT_SORT_KEYS)
        if key is None:
            request_key = RequestKey(run_id, None, repeats=False, size_bytes=len(content))
        else:
            same = hash_request(
                tenant=caller.tenant,
                caller=caller.name,
                path=path,
                steering=parse_context_headers(head),
                content=content,
            )
            repeatable = caller.tenant, caller.name, key.decode("latin-1")
            request_key = RequestKey(same, repeatable, repeats=False, size_bytes=len(content))
        asked = await lane.build_exchange(head, body, identity=identity, run_id=run_id, request_key=request_key)
        # No client reads a stream here: who waits for a person is told to.
        approvals: Literal["turn", "reject"] = "reject" if asked.steering.approvals == "reject" else "turn"
        exchange = replace(
            asked,
            conversation=wanted.conversation or asked.conversation,
            job=replace(asked.job, workflow=wanted.use),
            steering=replace(asked.steering, approvals=approvals),
        )
        return exchange, request_key


async def _wait_until_stored(lane: ContextLane, run: LiveRun, *, detached: bool) -> StartedRun:
    """Wait until the run is in the store. Raises the run's error if it ends before."""
    if detached:
        await run.on_record()
        return StartedRun(run.exchange.id, run.wait_until_ended)
    lane.runs.join(run)

    async def wait_until_ended() -> None:
        await _wait_and_leave(lane, run)

    try:
        await run.on_record()
    except BaseException as error:
        lane.runs.remove_client(run, whole=isinstance(error, GatewayError))
        raise
    return StartedRun(run.exchange.id, wait_until_ended)


async def _wait_and_leave(lane: ContextLane, run: LiveRun) -> None:
    whole = False
    try:
        await run.wait_until_ended()
        whole = True
        run.transcript.reraise()
    finally:
        lane.runs.remove_client(run, whole=whole)


def _may_run_again(run: StoredRun) -> bool:
    """Return whether a repeated request begins the run anew: it ended without result and without effects."""
    return run.state in ("failed", "interrupted", "cancelled") and not run.effects


async def _return_at_once() -> None:
    """Return at once: the run is in the store, and another request or worker drives it."""
