"""Begins runs of workflows that are asked for on their pages."""

from collections.abc import Callable
from dataclasses import replace

from aiohttp import web

from gateway.contracts import Json
from gateway.lanes.admin import REQUEST_ID
from gateway.lanes.chat import Identify, head_of
from gateway.lanes.context import ContextLane, new_run_id
from gateway.lanes.workflows import Begun, Wanted
from gateway.pipeline.model import ModelCore
from gateway.runs.live import Asking, LiveRun


class WorkflowRuns:
    """`lanes.workflows.Begin`. `current` gives the lane and the model core of the configuration in use."""

    def __init__(self, *, current: Callable[[], tuple[ContextLane, ModelCore]], identify: Identify) -> None:
        self._current = current
        self._identify = identify

    async def __call__(self, wanted: Wanted, request: web.Request) -> Begun:
        lane, core = self._current()
        head = head_of(request)
        body: Json = {"messages": []} if wanted.model is None else {"model": wanted.model, "messages": []}
        has_key = core.target_of(body).pool.endpoint.api_key is not None
        identity = self._identify(head, has_key, "context")
        run_id = request[REQUEST_ID] = new_run_id()
        asked = await lane.exchange(head, body, identity=identity, run_id=run_id)
        exchange = replace(
            asked,
            workflow=wanted.use,
            conversation=wanted.conversation or asked.conversation,
            # Nobody reads a stream here: who waits for a person is told to.
            approvals="reject" if asked.approvals == "reject" else "turn",
            fingerprint=run_id,
        )
        asking = Asking(run_id, None, repeats=False)
        run = lane.begin(exchange, asking, detached=wanted.detached)
        if wanted.detached:
            await run.on_record()
            return Begun(run_id, run.ended)
        lane.runs.join(run)

        async def over() -> None:
            await _to_its_end(lane, run)

        try:
            await run.on_record()
        except BaseException:
            lane.runs.leave(run, whole=False)
            raise
        return Begun(run_id, over)


async def _to_its_end(lane: ContextLane, run: LiveRun) -> None:
    whole = False
    try:
        await run.ended()
        whole = True
        run.transcript.reraise()
    finally:
        lane.runs.leave(run, whole=whole)
