"""The state machine of one run, an agent loop's or a workflow's, fed with the judge of the configuration in use."""

import secrets
from collections.abc import Mapping
from functools import partial

from gateway.agent.loop import Loop
from gateway.agent.parts import Crew
from gateway.agent.progress import Progress
from gateway.agent.workflow_loop import Script
from gateway.contracts.calls import FoundCall, Planned
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.store import Json
from gateway.dialects.chat_request import client_tools, knows_functions_only
from gateway.workflows.definition import Workflow
from gateway.workflows.templates import Values


def new_machine(crew: Crew, limits: LoopLimits, exchange: Exchange, progress: Progress) -> Loop | Script:
    """Returns the machine of a run that begins; one that goes on restores it."""
    plan, fill = partial(_plan, crew, exchange, progress), partial(_filled, crew, exchange)
    workflow = exchange.workflow
    if workflow is not None:
        definition, parameters = Workflow.model_validate(workflow["definition"]), workflow["parameters"]
        return Script(definition, parameters, plan=plan, new_id=_new_call_id, run_id=exchange.id, fill=fill)
    body = exchange.body
    return Loop(
        limits,
        plan=plan,
        client_tools=client_tools(body),
        functions_only=knows_functions_only(body),
        new_id=_new_call_id,
        run_id=exchange.id,
    )


def _plan(crew: Crew, exchange: Exchange, progress: Progress, found: FoundCall, call_id: str) -> Planned:
    """`Plan`, with what came before."""
    planned = crew.in_use.judge.plan(found, call_id, exchange, tainted=progress.tainted, asked_for=progress.asked_for)
    crew.counters.count("risk_decisions", decision=planned.verdict.decision, basis=planned.verdict.basis)
    if found.doubt is not None:
        crew.counters.count("doubted_calls", rule=found.doubt)
    return planned


def _filled(crew: Crew, exchange: Exchange, tool: str, arguments: Mapping[str, object], values: Values) -> Json:
    """`Fill`, by the tools of the configuration in use."""
    return crew.in_use.judge.filled(exchange, tool, arguments, values)


def _new_call_id() -> str:
    return "call_" + secrets.token_hex(12)
