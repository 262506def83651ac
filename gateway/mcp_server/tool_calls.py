"""Calls by MCP clients, from the request to its result, also where a person must decide in between.

A held call goes to the client's user where the client can put questions. In the era of 2026-07-28 the question is a
separate, sealed answer: any worker of the same store can take up what the client sends back. In the older era it is a
request on the stream of the call. A client that cannot put questions waits, and then learns how to get the result.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gateway.approvals.texts import AnswerOptions
from gateway.auth.keyring import Identity
from gateway.context.call_runs import CallRun, Done, WaitingCall, WantedCall
from gateway.context.context_headers import read_end_user
from gateway.context.tool_calls import ToolCalls
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.endorsements import hash_waiting_call
from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import Json
from gateway.http.request_head import RequestHead
from gateway.mcp.server_text import format_one_line
from gateway.mcp_server.auth.elicitation_auth import ElicitationAnswers
from gateway.mcp_server.client_request import ClientRequest, get_client_request
from gateway.mcp_server.elicitation import ApprovalElicitation, find_question, format_held_text, parse_decision
from gateway.mcp_server.listing import ToolOffer
from gateway.mcp_server.progress import ProgressReporter
from gateway.mcp_server.quotas.result_backlog import UnreadResults, estimate_result_bytes
from gateway.mcp_server.results import build_call_result, build_run_mark, build_text_result
from gateway.workflows.folder import MAX_STEPS

log = logging.getLogger("gateway")

#: The name of the one question of an answer.
_QUESTION: Final = "approval"
#: The entry in `_meta` by which a repeated request is the same call, and how long its value may be.
_KEY: Final = "twolane/idempotency-key"
_KEY_CHARS: Final = 255
#: Of the name and the version of a client, which it gives itself.
_NAME_CHARS: Final = 100
#: So often a call is put to its user anew: a tool that changes meanwhile has another question, and so does each step.
_ROUNDS: Final = MAX_STEPS + 5
_UNDECIDED: Final = frozenset(
    ("approval_stale", "approved_already", "decision_conflict", "approval_expired", "approval_not_found")
)


@dataclass(frozen=True, slots=True)
class _State:
    """The sealed state that a question leaves with its client: the run, its waiter, and the call that was shown."""

    run_id: str
    waiter: str
    approval_id: str
    sha256: str
    mode: str

    def dump_text(self) -> str:
        return orjson.dumps([self.run_id, self.waiter, self.approval_id, self.sha256, self.mode]).decode()

    @classmethod
    def describe_state(cls, run: CallRun, question: ApprovalElicitation) -> "_State":
        """Return the state that a client carries between a question and its answer."""
        approval = question.approval
        return cls(run.id, run.waiter, approval.id, hash_waiting_call(approval), question.mode)

    @classmethod
    def parse(cls, text: str) -> "_State":
        return cls(*orjson.loads(text))


@dataclass(slots=True, kw_only=True)
class CallHandler:
    """The calls of one worker.

    `identify` checks the request that brings an answer before it decides: its key may lack the scope that the call's
    key had. `answering` returns how a caller can decide elsewhere. `wait_s` is the longest wait for a person. `unread`
    bounds the results that clients have not read yet.
    """

    calls: ToolCalls
    identify: Callable[[RequestHead], Awaitable[Identity]]
    answering: Callable[[Caller, str | None, Sequence[Approval]], AnswerOptions]
    wait_s: Callable[[], float]
    clock: Clock
    unread: UnreadResults
    answers: ElicitationAnswers = field(default_factory=ElicitationAnswers)
    leaving: bool = False
    ending: set[str] = field(default_factory=set)  # sessions that their clients end: not by cancelling calls
    _over: set[str] = field(default_factory=set)  # sessions that have been ended, as long as calls of them are left
    _open: "Counter[str]" = field(default_factory=Counter)  # calls under way, by their sessions
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def call(self, ctx: Any, params: CallToolRequestParams, offer: ToolOffer, arguments: Json) -> Any:
        """Run one call of an offered tool. Return its result, or a question about it."""
        visit = get_client_request(ctx)
        wanted = WantedCall(
            tool=offer.inside,
            arguments=arguments,
            identity=visit.identity,
            client=describe_client(ctx),
            user=visit.user,
            idempotency_key=_find_idempotency_key(params),
            workflow=offer.workflow,
            only_tools=offer.tools,
        )
        state = _State.parse(params.request_state) if params.request_state is not None else None
        patience_s = self.wait_s()
        if state is not None:
            answer = (params.input_responses or {}).get(_QUESTION)
            patience_s = await self._take_answer(state, answer, visit.head, user=visit.user)
        run = await self.calls.begin(wanted) if state is None else self.calls.rejoin(wanted, state.run_id, state.waiter)
        visit.add_log_facts(tool=offer.inside, run=run.id)
        progress = ProgressReporter(ctx)
        is_asked = False
        session_id = visit.session_id or ""
        self._open[session_id] += 1
        try:
            was_shown = None if state is None else state.approval_id
            result = await self._wait_for_result(ctx, visit, run, progress, was_shown=was_shown, patience_s=patience_s)
            if isinstance(result, Done):
                size_bytes = estimate_result_bytes(result.result)
                if not self.unread.take(visit, size_bytes):
                    result = None  # it waits on record, and not in memory
                    await self.unread.wait_for_room(visit, size_bytes)
                    result = await self.calls.wait_for_outcome(run, wait_s=0.0)
                result = self._build_result(ctx, visit, run, result)
            is_asked = isinstance(result, InputRequiredResult)
            await progress.send_last_report()
            return result
        except asyncio.CancelledError:
            self._cancel_if_requested(ctx, run)
            raise
        finally:
            self.calls.stop_waiting(run, is_asked=is_asked)
            progress.close()
            self._open[session_id] -= 1
            if not self._open[session_id]:
                del self._open[session_id]
                self._over.discard(session_id)

    def note_session_end(self, session_id: str) -> None:
        """Take no call of a session that has been ended for cancelled. The SDK may need a while to end them."""
        if session_id in self._open:
            self._over.add(session_id)

    async def close(self) -> None:
        """Wait for what calls still have to write. Idempotent."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.calls.close()

    async def _wait_for_result(
        self,
        ctx: Any,
        visit: ClientRequest,
        run: CallRun,
        progress: ProgressReporter,
        *,
        was_shown: str | None,
        patience_s: float,
    ) -> Any:
        """Return the end of a call, or what its client gets without one.

        `was_shown` is the approval that its user has seen.
        """
        for _ in range(_ROUNDS):
            wait_s = 0.0 if was_shown is None else patience_s
            found = await self.calls.wait_for_outcome(
                run, wait_s=wait_s, shown=was_shown, progressed=progress.queue_report
            )
            if isinstance(found, Done):
                return found
            question = None if found.obstacle is not None else self._find_question(ctx, visit, found)
            if question is None:
                break
            if question.approval.id == was_shown:
                return self._build_held_result(visit, found)
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                state = _State.describe_state(run, question)
                return InputRequiredResult(
                    input_requests={_QUESTION: question.build_question()}, request_state=state.dump_text()
                )
            was_shown = question.approval.id
            done, patience_s = await self._ask_on_stream(ctx, visit, run, question, progress)
            if done is not None:
                return done
        found = await self.calls.wait_for_outcome(run, wait_s=patience_s, progressed=progress.queue_report)
        return found if isinstance(found, Done) else self._build_held_result(visit, found)

    def _build_result(self, ctx: Any, visit: ClientRequest, run: CallRun, done: Done) -> Json:
        """Return the result of a call. Once its client has it, an equal call is a new one."""
        if run.is_owed:
            visit.owed[build_run_mark(done.run_id)] = lambda: self.calls.mark_delivered(run)
        return build_call_result(done, ctx.protocol_version)

    def _find_question(self, ctx: Any, visit: ClientRequest, held: WaitingCall) -> ApprovalElicitation | None:
        """Return the question about a held call; None: this client cannot put one to its user."""
        can_ask = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or (
            visit.reads.events and ctx.session.can_send_request
        )
        if self.leaving or not can_ask:
            return None
        answering = self.answering(visit.identity.caller, visit.user, held.approvals[:1])
        return find_question(held.approvals[0], ctx.session.client_capabilities, answering)

    async def _ask_on_stream(
        self, ctx: Any, visit: ClientRequest, run: CallRun, question: ApprovalElicitation, progress: ProgressReporter
    ) -> tuple[Done | None, float]:
        """Ask on the stream of the call. Return its end if that comes first; else how long to wait for it yet."""
        loop, left_s = asyncio.get_running_loop(), question.approval.expires_s - self.clock.time()
        asking = loop.create_task(self._put_question(ctx, question))
        shown, tell = question.approval.id, progress.queue_report
        deciding = loop.create_task(
            self.calls.wait_for_outcome(run, wait_s=max(left_s, 0.0), shown=shown, progressed=tell)
        )
        leaving = loop.create_task(visit.gone.wait())
        tasks = (asking, deciding, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if deciding.done() and isinstance(done := deciding.result(), Done):
                return done, 0.0
            if not asking.done():
                return None, 0.0
            answer, head = asking.result()
            return None, await self._take_answer(_State.describe_state(run, question), answer, head, user=visit.user)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _put_question(
        self, ctx: Any, question: ApprovalElicitation
    ) -> tuple[ElicitResult | None, RequestHead | None]:
        """Put a question on the stream of a call. Return its answer and the head of the request that brought that."""
        session_id = get_client_request(ctx).session_id or ""
        with self.answers.expect_answer(session_id):
            try:
                answer = await question.ask_on_stream(ctx)
            except (MCPError, ValidationError):  # an error, or no answer to such a question
                return None, None
            return answer, self.answers.find_sender(session_id, answer)

    async def _take_answer(self, state: _State, answer: object, head: RequestHead | None, *, user: str | None) -> float:
        """Decide as the answer to a form states, if its sender may. Return how long to wait for the end of the call.

        `head` is the head of the request that brought the answer, `user` the end user whose call it is about.
        """
        if not isinstance(answer, ElicitResult):
            return self.wait_s()
        decision = parse_decision(answer, state.sha256) if state.mode == "form" else None
        if decision is None:
            return self.wait_s() if answer.action == "accept" else 0.0
        if head is None:
            log.warning("an answer about %s decides nothing: its sender is unknown", state.approval_id)
            return 0.0
        try:
            identity, sender = await self.identify(head), read_end_user(head)
        except GatewayError as error:  # its token has ended meanwhile, or its key is gone
            log.warning("an answer about %s decides nothing: %s", state.approval_id, error.message)
            return 0.0
        if "approve" not in identity.caller.scopes:
            log.warning("an answer of the key %r decides nothing: it lacks 'approve'", identity.caller.name)
            return 0.0
        if sender != user:
            log.warning("an answer about %s decides nothing: it is of another end user", state.approval_id)
            return 0.0
        try:
            decision = replace(decision, user=sender)
            await self.calls.decide(state.approval_id, decision, caller=identity.caller)
        except GatewayError as error:  # decided otherwise meanwhile, or the call has a new approval
            if error.code not in _UNDECIDED:
                raise
        return self.wait_s()

    def _build_held_result(self, visit: ClientRequest, held: WaitingCall) -> Json:
        """Return the answer for a call that waits for a decision: how to decide and get its result."""
        answering = self.answering(visit.identity.caller, visit.user, held.approvals[:1])
        approval = held.approvals[0]
        meta = {"twolane/run": held.run_id, "twolane/approval": approval.id}
        return {
            **build_text_result(format_held_text(approval, answering, obstacle=held.obstacle), ok=False),
            "_meta": meta,
        }

    def _cancel_if_requested(self, ctx: Any, run: CallRun) -> None:
        """Cancel the call of a client that has cancelled its request; one that only left may come back for it."""
        visit = get_client_request(ctx)
        session_id = visit.session_id
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if self.leaving or not (is_modern or session_id) or session_id in self.ending or session_id in self._over:
            return
        task = asyncio.get_running_loop().create_task(self._cancel_run(run, visit.identity.caller))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel_run(self, run: CallRun, caller: Caller) -> None:
        """Cancel a run for its caller; a failure is logged."""
        try:
            await self.calls.cancel(run, caller)
        except Exception:
            log.exception("run %s was cancelled by its client and goes on", run.id)


def describe_client(ctx: Any) -> Json:
    """Return the client as it calls itself, in visible lines: its name, its version, and the protocol it speaks."""
    params = ctx.session.client_params
    name, version = ("unknown", "") if params is None else (params.client_info.name, params.client_info.version)
    facts = {"name": name, "version": version, "protocol": ctx.protocol_version}
    return {fact: format_one_line(value, _NAME_CHARS) for fact, value in facts.items()}


def _find_idempotency_key(params: CallToolRequestParams) -> str | None:
    """Return the idempotency key in the metadata of a call, or None. Raises GatewayError."""
    key = (params.meta or {}).get(_KEY)
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= _KEY_CHARS:
        raise GatewayError(
            "invalid_field",
            f"{_KEY!r} must be a text of 1 to {_KEY_CHARS} characters.",
            param="_meta",
        )
    return key
