"""Stored runs that continue: by themselves, after a decision, or in a request that decides or repeats."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from gateway.approvals import texts as approval_text
from gateway.approvals.approvals import Decision, has_same_requester
from gateway.approvals.chat_replies import COMMENT_CHARS
from gateway.context.decision_binding import check_one_run, is_for_shown_call, list_last_questions
from gateway.context.lane import ContextLane
from gateway.context.prefixed_run import Brought
from gateway.context.remote_runs import RunsElsewhere, find_question_run
from gateway.context.replay import AnswerReplay, detect_request_language, format_decision_note
from gateway.context.stored_request import (
    UpstreamOf,
    build_late_message_error,
    find_hindrance,
    is_of_same_person,
    may_read_answer,
    select_header_lines,
    take_messages,
    take_narrowing,
)
from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Exchange, Resume
from gateway.contracts.plugin import Clock
from gateway.contracts.records import replace
from gateway.contracts.storage.endorsements import hash_waiting_call
from gateway.contracts.storage.journal import Approval, Journal, StoredRun
from gateway.contracts.storage.store import Json, StoreError, UntoldError, UnwrittenError, build_unknown_outcome_error
from gateway.contracts.tracing.tracer import Tracer
from gateway.dialects.dialect import SaidBeside
from gateway.runs.event_feed import EventFeed
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.leases import Leases, abandon
from gateway.runs.live import LiveRuns
from gateway.runs.live_run import LiveRun
from gateway.runs.request_snapshot import load_exchange
from gateway.runs.run_id import generate_run_id
from gateway.runs.run_restrictions import NARROWS

log = logging.getLogger("gateway")

#: A run that was taken up so often without coming to an end will not come to one.
OFTEN = 200
#: So long after its turn, another worker may still store the answer of a run: it has more of it than the record of the
#: run, and a client that reads slowly has it wait (`gateway.api.responses.in_progress`).
TELLS_S = 12.0


#: Returns the function that records the answer of a stored run which goes on; None: it is not recorded.
Recording: TypeAlias = Callable[[StoredRun], Awaitable[Callable[[LiveRun], None] | None]]


@dataclass(slots=True, kw_only=True)
class RepeatedRequest:
    """A request that may contain a decision, or repeat one that has a stored run. It is not changed."""

    body: Json
    request_key: RequestKey
    exchange: Exchange  # as it would be if it began a new run
    shown: tuple[str, ...] = ()  # approvals that its conversation shows last, in fields and not in texts
    beside: SaidBeside | None = None  # messages that come with a decision


class Resumption:
    """The handling of stored runs in one worker. `lane` returns the context lane of the configuration in use."""

    def __init__(
        self,
        *,
        lane: Callable[[], ContextLane],
        runs: LiveRuns,
        leases: Leases,
        feed: EventFeed,
        store: Journal,
        clock: Clock,
        upstream_of: UpstreamOf,
        recording: Recording | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Set the services. `recording` is called for each run that goes on without a client.

        `tracer` sends the spans of runs that cannot go on.
        """
        self._lane = lane
        self._upstream_of = upstream_of
        self._runs = runs
        self._keeper = leases
        self._store = store
        self._clock = clock
        self._recording = recording
        self._tracer = tracer
        self._retelling = AnswerReplay(lane, store, clock)
        self._elsewhere = RunsElsewhere(runs=runs, feed=feed, store=store, clock=clock, retelling=self._retelling)

    async def resume_run(self, run: StoredRun, *, header: bytes = b"", credential: bytes = b"") -> None:
        """Continue a claimed run without a client. Its header lines are used if known.

        Raises StoreError, UnwrittenError: any worker takes it up once the store works.
        """
        try:
            await self._resume_claimed_run(run, header=header, credential=credential)
        except (StoreError, UnwrittenError):
            self._keeper.give_back(run)
            raise

    async def _resume_claimed_run(self, run: StoredRun, *, header: bytes, credential: bytes) -> None:
        """Drive a claimed run without a client, or end it if it was begun too often or has no tools."""
        handler = self._lane().find_resume_handler(run)
        if handler is None or run.fence > OFTEN:
            await self._abandon(run, "it was begun too often" if handler is not None else _describe_missing_tools(run))
            return
        request_key = RequestKey(run.fingerprint, None, repeats=False, size_bytes=len(run.request))
        record = None if self._recording is None else await self._recording(run)
        exchange = load_exchange(
            Resume(run),
            approvals="turn",
            background=None if record is None else True,
            header=header,
            credential=credential,
        )
        if exchange.job.call is not None:
            exchange = replace(exchange, job=replace(exchange.job, watcher=self._runs.waiting.get_watchers(run.id)))
        live = self._runs.begin(exchange, request_key, handler, detached=True, request_id=generate_run_id())
        if record is not None:
            record(live)

    async def is_turn_finished(self, run: StoredRun) -> bool:
        """Return whether the turn of a run is over, and no worker streams its answer any more. Raises StoreError."""
        clients = self._runs.count_clients(run.id)
        may_be_told = self._clock.time() - run.updated_s < TELLS_S if clients is None else clients > 0
        return not may_be_told and not await self._elsewhere.is_active(run)

    async def load_answer(
        self, run: StoredRun, *, shows_calls: bool, decided: Sequence[str]
    ) -> tuple[Sequence[Chunk], GatewayError | None]:
        """Return the answer of a run whose turn is over, and the error that ended it, if any. Raises StoreError.

        It is the answer to a request that decides on these approvals, which is not always the one that began the run.
        """
        exchange = load_exchange(Resume(run), approvals="turn", shows_calls=shows_calls)
        try:
            return await self._retelling.answer_request(run, exchange, decided=decided), None
        except GatewayError as error:
            return await self._retelling.build_partial_answer(run, exchange, decided=decided), error

    async def resume_if_ready(self, run_id: str) -> None:
        """Continue a run that waits for no person any more, unless a worker drives it. Raises StoreError."""
        run = await self._keeper.claim(run_id, "awaiting_approval", "awaiting_client", "running")
        if run is not None:
            await self.resume_run(run)

    async def decide_and_continue(self, decisions: Sequence[ChatDecision], repeated: RepeatedRequest) -> LiveRun:
        """Make the decisions of a request, all or none, and continue the run in it.

        Raises GatewayError, StoreError: nothing is decided then, unless the error is one of the run (422).
        """
        desk, caller = self._lane().approvals, repeated.exchange.caller
        named = [(approval_id, decision) for decision in decisions for approval_id in decision.ids]
        found = [(await desk.find(approval_id, caller=caller), decision) for approval_id, decision in named]
        check_one_run([approval for approval, _ in found])
        for approval, decision in found:  # all of them or none
            if not await self._is_decision_valid(approval, decision, repeated.exchange):
                return await self._answer_undecided([one for one, _ in found], repeated)
        run = await self._store.run(found[0][0].run_id, tenant=caller.tenant)
        facts = {NARROWS: narrows} if (narrows := take_narrowing(repeated.exchange, run)) else {}
        decides = sorted(approval.id for approval, _ in found)
        take = partial(take_messages, repeated.exchange, repeated.beside, run, decides=decides, store=self._store)
        hindrance = None if repeated.beside is None else await find_hindrance(self._lane(), found, run)
        adds = await take(hindrance=hindrance)
        with_adds = next((approval.id for approval, _ in found if approval.state == "pending"), None)  # once
        wishes = [
            (
                approval.id,
                Decision(
                    approve=decision.approve,
                    via="chat",
                    sha256=hash_waiting_call(approval) if approval.state == "pending" else None,
                    comment=decision.comment and decision.comment[:COMMENT_CHARS],
                    user=repeated.exchange.user,
                    facts=facts,
                    adds=adds if approval.id == with_adds else None,
                ),
            )
            for approval, decision in found
        ]
        ruled = await desk.decide_all(wishes, caller=caller)
        is_apart = run is not None and not may_read_answer(repeated.exchange, run)
        try:
            if adds and await take():
                raise build_late_message_error(ruled[0].run_id)
            if is_apart:
                return await self._resume_for_other_user(ruled, repeated)
            live = await self._resume_with_decisions(
                ruled, repeated, in_field=any(decision.in_field for decision in decisions)
            )
            live.answer.shown_to = (
                None if run is None or is_of_same_person(repeated.exchange, run) else repeated.exchange
            )
            return live
        except StoreError as error:
            log.error("run %s does not go on yet: %s", ruled[0].run_id, error)
            noted = format_decision_note(ruled[0], repeated.exchange)
            return self._build_answered_run(repeated, ruled[0].run_id, noted, is_apart=is_apart)

    async def _is_decision_valid(self, approval: Approval, decision: ChatDecision, exchange: Exchange) -> bool:
        """Return whether a decision is on the call that was shown, or on one that was decided meanwhile."""
        if approval.state != "pending" or await is_for_shown_call(approval, decision, exchange, store=self._store):
            return True
        now = await self._store.get_approval(approval.id, tenant=approval.tenant)
        return now is not None and now.state != "pending"

    async def _resume_with_decisions(
        self, ruled: Sequence[Approval], repeated: RepeatedRequest, *, in_field: bool
    ) -> LiveRun:
        """Answer a decision with the result of its run. Raises GatewayError, StoreError.

        A person who decided in a message only gets a note while the request that began the run waits for the answer.
        """
        run_id, tenant, decided = ruled[0].run_id, repeated.exchange.caller.tenant, [one.id for one in ruled]
        claimed = await self._keeper.claim(run_id, "awaiting_approval", "awaiting_client")
        if claimed is not None:
            messages = None  # another person's messages do not belong to the conversation of the run
            if is_of_same_person(repeated.exchange, claimed):
                messages = repeated.body["messages"]
                self._runs.waiting.remove_request(claimed.fingerprint)  # this request brings the answer
            return await self._resume_in_this_request(claimed, repeated, messages=messages, decided=decided)
        run = await self._store.run(run_id, tenant=tenant)
        if run is None:
            raise GatewayError("run_not_found", "The run of this approval is gone.").mark_after_effects()
        if await self._elsewhere.is_active(run):
            if run.fence == 0 and not in_field:
                return self._build_answered_run(repeated, run_id, format_decision_note(ruled[0], repeated.exchange))
            return self._follow_run(run, repeated, decided=decided)
        return await self._replay_stored_answer(run, repeated, decided=decided)

    async def _resume_for_other_user(self, ruled: Sequence[Approval], repeated: RepeatedRequest) -> LiveRun:
        """Continue the run of another person, if it is ready, and answer a decision on it without its result."""
        own, run_id = repeated.exchange, ruled[0].run_id
        of_run = await self._lane().approvals.index_by_step(run_id, tenant=own.caller.tenant)
        try:
            await self.resume_if_ready(run_id)
        except (StoreError, UnwrittenError) as error:
            log.error("run %s does not go on yet: %s", run_id, error)
        told = await self._retelling.build_foreign_decision_answer(ruled, of_run.values(), own)
        return self._build_answered_run(repeated, run_id, *told, is_apart=True)

    async def answer_named_calls(self, ids: Sequence[str], repeated: RepeatedRequest) -> LiveRun | None:
        """Answer a message that names pending calls without a decision; None if none of them is pending."""
        tenant = repeated.exchange.caller.tenant
        found = [
            approval for each in ids if (approval := await self._store.get_approval(each, tenant=tenant)) is not None
        ]
        if all(one.state != "pending" for one in found):
            return None
        return await self._answer_undecided(found, repeated)

    async def _answer_undecided(self, named: Sequence[Approval], repeated: RepeatedRequest) -> LiveRun:
        """Answer with these pending approvals, and with the commands that decide on them."""
        waiting = [approval for approval in named if approval.state == "pending"]
        tenant, desk = repeated.exchange.caller.tenant, self._lane().approvals
        runs = [
            await desk.index_by_step(run_id, tenant=tenant) for run_id in dict.fromkeys(one.run_id for one in waiting)
        ]
        pending = [one for run in runs for one in run.values() if one.state == "pending"] or waiting
        told = await self._retelling.build_undecided_answer(pending, repeated.exchange)
        run = await self._store.run(pending[0].run_id, tenant=tenant)
        is_own = run is not None and is_of_same_person(repeated.exchange, run)
        return self._build_answered_run(repeated, pending[0].run_id, *told, is_apart=not is_own)

    async def find_repeated_run(self, repeated: RepeatedRequest) -> LiveRun | None:
        """Answer a request that got a question before: with the question while it waits, else with its result.

        The result is repeated until it was delivered. None: no such question exists, or it was cancelled or has
        expired. A request with an `Idempotency-Key` is not compared this way. Raises GatewayError, StoreError.
        """
        fingerprint = repeated.request_key.fingerprint
        run_id = self._runs.waiting.find(fingerprint)
        if run_id is None or repeated.request_key.idempotency_key is not None:
            return None
        run = await self._store.run(run_id, tenant=repeated.exchange.caller.tenant)
        if run is None or run.state in ("cancelled", "expired"):
            self._runs.waiting.remove_request(fingerprint)
            return None
        try:
            return await self.repeat(run, repeated)
        except UntoldError:
            raise
        except GatewayError:  # that is what came of it
            self._runs.waiting.remove_request(fingerprint)
            raise

    def forget_answered_question(self, run: LiveRun, request_key: RequestKey) -> None:
        """Forget a question once the client has the whole answer, unless the answer is a question, too.

        The same request then begins a new run.
        """
        if (
            run.answer.asks is None
            and not run.attendance.untold
            and self._runs.waiting.find(request_key.fingerprint) == run.exchange.id
        ):
            self._runs.waiting.remove_request(request_key.fingerprint)

    async def find_earlier_result(self, repeated: RepeatedRequest) -> Brought | None:
        """Return the source of the result of a question that was decided elsewhere; the answer begins with it.

        None: the last answer does not ask this caller and end user in this conversation, or still waits. Raises
        StoreError.
        """
        exchange = repeated.exchange
        for approval_id in dict.fromkeys((*list_last_questions(exchange.body["messages"]), *repeated.shown)):
            approval = await self._store.get_approval(approval_id, tenant=exchange.caller.tenant)
            if approval is None or not has_same_requester(approval, exchange):
                continue
            run = await self._store.run(approval.run_id, tenant=approval.tenant)
            if run is not None and not (run.state == "awaiting_approval" and await self._retelling.list_pending(run)):
                return partial(self._finish_and_read_answer, run, repeated)
        return None

    async def _finish_and_read_answer(self, run: StoredRun, repeated: RepeatedRequest) -> str:
        """Resume a run that was decided on, wait for its end, and return the text to begin an answer with."""
        own = repeated.exchange
        claimed = await self._keeper.claim(run.id, "awaiting_approval", "awaiting_client")
        if claimed is not None:
            header, credential = select_header_lines(own, claimed, upstream_of=self._upstream_of)
            await self.resume_run(claimed, header=header, credential=credential)
        ended = await self._elsewhere.wait_until_idle(run)
        as_text = replace(own, delivery=replace(own.delivery, shows_calls=False))
        try:
            told = await self._retelling.answer_request(ended, as_text, decided=())
            text = "".join(chunk for chunk in told if isinstance(chunk, str))
        except GatewayError as error:
            text = error.message
        self._runs.waiting.remove_request(run.fingerprint)
        return approval_text.format_meanwhile_text(text, language=detect_request_language(own))

    async def repeat(self, run: StoredRun, repeated: RepeatedRequest) -> LiveRun:
        """Answer a request whose run is in the store. Raises GatewayError."""
        try:
            return await self._answer_repeated(run, repeated)
        except StoreError as error:
            log.error("the store failed behind run %s: %s", run.id, error)
            raise build_unknown_outcome_error(run.id) from None

    async def _answer_repeated(self, run: StoredRun, repeated: RepeatedRequest) -> LiveRun:
        """Resume the run in this request if possible, else follow it or replay its stored answer."""
        claimed = await self._keeper.claim(run.id, "awaiting_approval", "awaiting_client")
        if claimed is not None:
            return await self._resume_in_this_request(claimed, repeated, messages=None, decided=())
        run = await self._store.run(run.id, tenant=run.tenant) or run  # another worker may have taken it up since
        if await self._elsewhere.is_active(run):
            return self._follow_run(run, repeated, decided=())
        return await self._replay_stored_answer(run, repeated, decided=())

    async def _resume_in_this_request(
        self, run: StoredRun, repeated: RepeatedRequest, *, messages: Sequence[Json] | None, decided: Sequence[str]
    ) -> LiveRun:
        """Continue a claimed run as the answer to this request. Raises GatewayError (run_cancelled)."""
        handler = self._lane().find_resume_handler(run)
        if handler is None:
            await self._abandon(run, _describe_missing_tools(run))
            raise GatewayError("run_cancelled", f"This run was ended: {_describe_missing_tools(run)}.")
        own = repeated.exchange
        header, credential = select_header_lines(own, run, upstream_of=self._upstream_of)
        exchange = load_exchange(
            Resume(run, messages, tuple(decided), take_narrowing(own, run) if decided else None),
            approvals="turn"
            if own.steering.approvals == "reject" and not is_of_same_person(own, run)
            else own.steering.approvals,
            shows_calls=own.delivery.shows_calls,
            asks_in_text=own.delivery.asks_in_text,
            background=own.delivery.background,
            known_as=own.delivery.known_as,
            answer_id=own.delivery.answer_id,
            header=header,
            credential=credential,
        )
        live = self._runs.begin(
            exchange, repeated.request_key, handler, detached=True, body=repeated.body, request_id=own.id
        )
        live.answer.decided = tuple(decided)
        return live

    async def _abandon(self, run: StoredRun, reason: str) -> None:
        await abandon(run, reason, store=self._store, clock=self._clock, tracer=self._tracer)

    async def _replay_stored_answer(
        self, run: StoredRun, repeated: RepeatedRequest, *, decided: Sequence[str]
    ) -> LiveRun:
        told = await self._retelling.answer_request(run, repeated.exchange, decided=decided)
        answer = self._build_answered_run(repeated, run.id, *told)
        answer.answer.decided, answer.answer.asks = tuple(decided), find_question_run(told)
        return answer

    def _build_answered_run(
        self, repeated: RepeatedRequest, run_id: str, *chunks: Chunk, is_apart: bool = False
    ) -> LiveRun:
        """Return a finished run with these chunks as its answer.

        `is_apart`: the run of this id is another person's. A response that is stored for this answer must neither get
        the answer of that run later, nor end that run when it is deleted.
        """
        own = repeated.exchange
        answered = replace(own, id=(own.delivery.answer_id if is_apart else "") or run_id)
        run = LiveRun(answered, repeated.request_key, now_s=self._clock.time(), request_id=own.id)
        run.answer.is_apart, run.answer.shown_to = is_apart, own if is_apart else None
        run.replay(chunks)
        return run

    def _follow_run(self, run: StoredRun, repeated: RepeatedRequest, *, decided: Sequence[str]) -> LiveRun:
        """Begin an answer that follows a run which another request, or another process, drives."""
        own = repeated.exchange
        handler = self._elsewhere.build_follow_handler(run, own, decided=decided)
        live = self._runs.begin(replace(own, id=run.id), repeated.request_key, handler, request_id=own.id)
        live.answer.decided = tuple(decided)
        return live


def _describe_missing_tools(run: StoredRun) -> str:
    return f"its chain {run.chain!r} runs no tools any more"
