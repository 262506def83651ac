"""The outcome of a run: the word of its metric, and the errors that a run ends with by itself."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

import orjson

from gateway.agent.call_loop import CallLoop
from gateway.agent.loop import Action, Finish, Loop
from gateway.agent.progress import PARKED, get_unfinished_results, restore_planned_call
from gateway.agent.run_context import RunContext
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Exchange
from gateway.contracts.plugin import Counters
from gateway.contracts.storage.journal import ENDED, RunState, StoredRun
from gateway.contracts.storage.store import Json, StoreError
from gateway.contracts.tracing.context import RunTrace
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.id_scrubbing import defuse

log = logging.getLogger("gateway")

#: The outcome, for now, of a run that waits for the store.
LEFT = "left"
_OUTCOMES: Mapping[str, str] = MappingProxyType(
    {
        "agent_timeout": "timeout",
        "agent_iteration_limit": "limit",
        "agent_malformed_tool_call": "parse_failed",
        "workflow_failed": "failed",
    }
)


def get_run_outcome(error: GatewayError) -> str:
    """Return the word for a run that ended with this error, or `error` if the error is not about the run itself."""
    return _OUTCOMES.get(error.code, "error")


def record_run_end(
    loop: Loop | WorkflowLoop | CallLoop,
    outcome: str,
    counters: Counters,
    *,
    trace: RunTrace | None,
    run: StoredRun | None,
    is_lost: bool,
) -> None:
    """Count a run that is over here, and record its outcome in its trace.

    `run` is how it is stored; `is_lost`: another owner has it or a request cancelled it, and the span is sent there.
    """
    is_over = outcome not in (*PARKED, LEFT)
    if trace is not None:
        trace.outcome = outcome
        was_left = outcome == "cancelled" and run is not None and run.state not in ENDED
        is_parked = run is not None and run.state in PARKED
        trace.goes_on = not is_over or is_lost or was_left or is_parked
    if not is_over:
        return
    outcome = "rejected" if outcome == "expired" else outcome
    if isinstance(loop, CallLoop):
        counters.count("tool_runs", outcome=outcome)
    elif isinstance(loop, WorkflowLoop):
        counters.count("workflow_runs", workflow=loop.workflow.name, outcome=outcome)
    else:
        counters.count("agent_runs", outcome=outcome)
        counters.observe("agent_run_steps", loop.asked)


async def store_unfinished_turn(context: RunContext, *, is_completed: bool = False) -> None:
    """Store the hidden turns of a run that was cancelled or failed behind an effect, or whose answer was ended.

    The model of a later turn must see its calls: what was begun is not undone. A run that has another owner goes on
    there. `is_completed`: a stage above has ended its answer, so that the run is over, with the answer so far.
    """
    progress, recorder, loop = context.progress, context.record, context.loop
    if is_completed:
        answer = build_stored_answer(
            Finish("", "content_filter"), said=progress.said, usage=progress.usage.build_chunk()
        )
        with suppress(GatewayError):  # it is not ours any more, or goes on once our lease is over
            await recorder.end_run("completed", answer=answer)
    run = recorder.run
    if run is None or not run.effects or not isinstance(loop, Loop):
        return
    try:
        stored = await context.parts.store.run(run.id, tenant=run.tenant)
    except StoreError as error:
        log.warning("hidden turns of run %s are not kept: %s", run.id, error)
        return
    if stored is None or stored.state not in ENDED:
        return
    if progress.is_open:
        steps = [recorder.steps[number] for number in progress.rounds[-1][1]]
        planned = [restore_planned_call(step, context.parts.in_use.judge, recorder.exchange) for step in steps]
        loop.handle_results(planned, get_unfinished_results(steps))
    await context.hidden.store(loop.hidden, ())


def defuse_end(action: Action) -> Action:
    """Return the action with its text defused, so that a tool's or a model's text cannot pass for the gateway's own."""
    return replace(action, text=defuse(action.text)) if isinstance(action, Finish) and action.text else action


def build_stored_answer(finish: Finish, *, said: Sequence[str], usage: Json) -> bytes:
    """Return the answer of a turn as JSON for the store; `usage` is the chunk with its tokens."""
    return orjson.dumps(
        {
            "content": "".join(said),
            "tool_calls": finish.tool_calls,
            "finish_reason": finish.reason,
            "usage": usage["usage"],
            "context": usage.get("context", {}),
        }
    )


def build_last_chunks(
    finish: Finish, run: Exchange, state: RunState, *, usage: Json, context: Json, asked: Json | None
) -> list[Chunk]:
    """Return the chunks behind the text of a turn: the client's calls, the end, the tokens with facts about the turn.

    `asked` is the event of the question that the turn ends with, if the client gets it as one.
    """
    last: list[Chunk] = [] if asked is None else [chunks.build_event(asked)]
    last += chunks.build_call_chunks(finish.tool_calls, reason=finish.reason)
    if run.delivery.events:
        last.append(chunks.build_event({"type": "run.finished", "run_id": run.id, "state": state}))
    if context:
        usage = {**usage, "context": {**usage.get("context", {}), **context}}
    return [*last, chunks.build_finish(finish.reason), usage]
