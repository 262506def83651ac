"""The state machine of one run: an agent loop, a workflow or one call, with the judge of the configuration in use."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gateway.agent.call_loop import CallLoop
from gateway.agent.loop import Loop
from gateway.agent.parts import AgentParts
from gateway.agent.progress import Progress
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.contracts.calls import FoundCall, PlannedCall
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.store import Json
from gateway.dialects.chat_request import client_tools, knows_functions_only
from gateway.dialects.meaning import is_random
from gateway.workflows.definition import Workflow
from gateway.workflows.templates import Values


def new_machine(
    parts: AgentParts, limits: LoopLimits, exchange: Exchange, progress: Progress
) -> Loop | WorkflowLoop | CallLoop:
    """Return the machine of a run that begins. A run that continues restores its state afterwards."""
    plan, fill = partial(_plan, parts, exchange, progress), partial(_filled, parts, exchange)
    if exchange.call is not None:
        return CallLoop(exchange.call, plan=plan, new_id=_new_call_id)
    workflow = exchange.workflow
    if workflow is not None:
        definition, parameters = Workflow.model_validate(workflow["definition"]), workflow["parameters"]
        return WorkflowLoop(definition, parameters, plan=plan, new_id=_new_call_id, run_id=exchange.id, fill=fill)
    body, wanted = exchange.body, exchange.max_tool_calls
    is_lowered = wanted is not None and wanted < limits.max_tool_calls
    return Loop(
        limits if wanted is None else replace(limits, max_tool_calls=min(wanted, limits.max_tool_calls)),
        plan=plan,
        client_tools=client_tools(body),
        functions_only=knows_functions_only(body),
        is_lowered=is_lowered,
        new_id=_new_call_id,
        run_id=exchange.id,
    )


def _plan(parts: AgentParts, exchange: Exchange, progress: Progress, found: FoundCall, call_id: str) -> PlannedCall:
    """Judge a call as `Plan` does, with the taint and the user's request to be asked.

    The client knows a call that it is shown by an id that no other call has.
    """
    if exchange.shows_calls and not is_random(call_id):
        call_id = _new_call_id()
    planned = parts.in_use.judge.plan(found, call_id, exchange, tainted=progress.tainted, asked_for=progress.asked_for)
    parts.counters.count("risk_decisions", decision=planned.verdict.decision, basis=planned.verdict.basis)
    if found.doubt is not None:
        parts.counters.count("doubted_calls", rule=found.doubt)
    return planned


def _filled(parts: AgentParts, exchange: Exchange, tool: str, arguments: Mapping[str, object], values: Values) -> Json:
    """Fill the references in arguments as `Fill` does, with the tools of the configuration in use."""
    return parts.in_use.judge.filled(exchange, tool, arguments, values)


def _new_call_id() -> str:
    return "call_" + secrets.token_hex(12)
