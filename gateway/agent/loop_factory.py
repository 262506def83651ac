"""The state machine of one run: an agent loop, a workflow or one call, with the judge of the configuration in use."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from typing import TypeAlias

from gateway.agent.agent_services import AgentParts
from gateway.agent.call_loop import CallLoop
from gateway.agent.loop import Loop
from gateway.agent.output.call_ids import generate_call_id
from gateway.agent.output.quoted_call_check import mark_quoted_calls
from gateway.agent.output.scanner import CallGroup, MalformedCall
from gateway.agent.progress import RunProgress
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.contracts.calls import FoundCall, PlannedCall
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import Json
from gateway.contracts.templates import Values
from gateway.dialects.chat_request import (
    forces_call,
    knows_functions_only,
    list_client_tools,
    may_call_tools,
    wants_text,
)
from gateway.dialects.message_identity import is_random
from gateway.runs.decision_messages import has_ask_request, list_added_messages
from gateway.runs.run_restrictions import apply_narrowing, list_narrowings
from gateway.tools.openai_tools import build_native_tools
from gateway.workflows.definition import Workflow

Machine: TypeAlias = Loop | WorkflowLoop | CallLoop


def build_machine(parts: AgentParts, limits: LoopLimits, exchange: Exchange, progress: RunProgress) -> Machine:
    """Return the machine of a run that begins. A run that continues restores its state afterwards."""
    plan, fill = partial(_judge_call, parts, exchange, progress), partial(_fill_arguments, parts, exchange)
    workflow = exchange.job.workflow
    if exchange.job.call is not None and workflow is None:
        return CallLoop(exchange.job.call, plan=plan, new_id=generate_call_id)
    if workflow is not None:
        definition, parameters = Workflow.model_validate(workflow["definition"]), workflow["parameters"]
        return WorkflowLoop(
            definition,
            parameters,
            plan=plan,
            new_id=generate_call_id,
            run_id=exchange.id,
            fill=fill,
            watcher=exchange.job.watcher,
        )
    body, wanted = exchange.body, exchange.steering.max_tool_calls
    is_lowered = wanted is not None and wanted <= limits.max_tool_calls
    return Loop(
        limits if wanted is None else replace(limits, max_tool_calls=min(wanted, limits.max_tool_calls)),
        plan=plan,
        client_tools=list_client_tools(body),
        functions_only=knows_functions_only(body),
        is_lowered=is_lowered,
        new_id=generate_call_id,
        run_id=exchange.id,
        must_call=exchange.steering.must_call or forces_call(body),
        wanted_format=body["response_format"] if not wants_text(body) and may_call_tools(exchange) else None,
    )


class NarrowedRun:
    """The exchange of one run, and its loop, as narrowed so far: both never widen again."""

    def __init__(
        self, parts: AgentParts, limits: LoopLimits, began: Exchange, progress: RunProgress, loop: Machine
    ) -> None:
        """Begin with the exchange of the run as it is."""
        self.exchange = began
        self._parts = parts
        self._limits = limits
        self._progress = progress
        self._loop = loop
        self._heard: set[str] = set()  # the decisions of requests that were read

    def build_request(self, conversation: Sequence[Json]) -> Json:
        """Return the body of the next call of the model, with our tools if it calls natively."""
        run, loop = self.exchange, self._loop
        body = loop.build_request(run.body, conversation)
        if self._limits.tool_format == "native" and isinstance(loop, Loop) and not loop.is_formatting:
            ours = build_native_tools(self._parts.in_use.judge.catalog, run, besides=loop.client_tools)
            if ours:
                body["tools"] = [*(run.body.get("tools") or ()), *ours]
        return body

    def has_tool(self, name: str) -> bool:
        """Return whether the run has a tool of this name: the client's, or the gateway's, running or not."""
        catalog = self._parts.in_use.judge.catalog
        is_ours = catalog.find(name, self.exchange) is not None or catalog.find_stopped_service(name) is not None
        return is_ours or name in self._loop.client_tools

    def report_malformed(self, attempt: MalformedCall) -> None:
        """Count and log an attempt at a call that could not be read, unless it is at a tool of the client."""
        if attempt.cut not in self._loop.client_tools:
            parts, run = self._parts, self.exchange
            parts.counters.count("agent_parse_failures")
            parts.malformed.report(attempt.reason, run_id=run.id, chain=run.chain, now_s=parts.clock.monotonic())

    async def mark_doubtful_calls(self, found: CallGroup, conversation: Sequence[Json]) -> CallGroup:
        """Return the calls, marked if quoted; load the wish to approve each call first. Raises StoreError."""
        run, loop = self.exchange, self._loop
        await self._progress.load_ask_before_flag(self._parts.approvals.remembered, run)
        read = chain(conversation, loop.messages, [found.beside])  # which the model wrote behind what its server read
        return CallGroup(
            await mark_quoted_calls(found.calls, read, notes=run.notes, besides=loop.client_tools), found.beside
        )

    def restore(self) -> None:
        """Apply the stored restrictions of a run, and those of the request that resumes it."""
        known, resume = self._progress.narrowings, self.exchange.execution.resume
        self._progress.narrowings = []
        self._apply_narrowings([*known, *([resume.narrows] if resume is not None and resume.narrows else ())])

    async def read(self, approvals: Mapping[int, Approval]) -> None:
        """Narrow the run as the decisions of requests among these approvals do, and add their messages.

        Raises StoreError.
        """
        # Of several approvers of a call, one may have decided in a request, and the last one in another way.
        settled = (approval for approval in approvals.values() if approval.state != "pending")
        by_requests = {approval.id for approval in settled if approval.via == "chat" or approval.required > 1}
        if not by_requests <= self._heard:
            run = self.exchange
            self._apply_narrowings(await list_narrowings(self._parts.store, run.id, tenant=run.caller.tenant))
            await self._add_user_messages(
                await list_added_messages(self._parts.store, run.id, tenant=run.caller.tenant)
            )
            self._heard |= by_requests

    def _apply_narrowings(self, found: Sequence[Json]) -> None:
        """Add restrictions that are new to the run, and rebuild the limits and tools of its loop."""
        known = self._progress.narrowings
        new = [one for i, one in enumerate(found) if one not in known and one not in found[:i]]
        if not new:
            return
        known += new
        self.exchange = reduce(apply_narrowing, new, self.exchange)
        fresh = build_machine(self._parts, self._limits, self.exchange, self._progress)
        if isinstance(self._loop, Loop) and isinstance(fresh, Loop):
            self._loop.limits, self._loop.plan, self._loop.is_lowered = fresh.limits, fresh.plan, fresh.is_lowered
            if any(one.get("no_functions") for one in known):
                self._loop.client_tools = frozenset()

    async def _add_user_messages(self, found: Sequence[Json]) -> None:
        """Add messages that came with decisions to the open round. A workflow and a single call have none.

        No stage reads them, so this detects a user's wish to approve each call from now on. Raises StoreError.
        """
        progress, loop = self._progress, self._loop
        for one in found:
            if one["request"] not in progress.added and isinstance(loop, Loop):
                if has_ask_request(one["messages"]):
                    progress.asked_for = True
                    await self._parts.approvals.remembered.store_ask(self.exchange)
                progress.added.append(one["request"])
                loop.add(one["messages"])
                progress.rounds[-1] = (*progress.rounds[-1][:2], loop.extra_fields)


def _judge_call(
    parts: AgentParts, exchange: Exchange, progress: RunProgress, found: FoundCall, call_id: str
) -> PlannedCall:
    """Judge a call as `Plan` does, with the taint and the user's wish to approve each call.

    The client knows a call that it is shown by an id that no other call has.
    """
    if exchange.delivery.shows_calls and not is_random(call_id):
        call_id = generate_call_id()
    planned = parts.in_use.judge.plan_call(
        found, call_id, exchange, tainted=progress.is_tainted, asked_for=progress.asked_for
    )
    parts.counters.count("risk_decisions", decision=planned.verdict.decision, basis=planned.verdict.basis)
    if found.doubt is not None:
        parts.counters.count("doubted_calls", rule=found.doubt)
    return planned


def _fill_arguments(
    parts: AgentParts, exchange: Exchange, tool: str, arguments: Mapping[str, object], values: Values
) -> Json:
    """Fill the references in arguments as `Fill` does, with the tools of the configuration in use."""
    return parts.in_use.judge.fill_arguments(exchange, tool, arguments, values)
