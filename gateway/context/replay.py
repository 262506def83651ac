"""The answer of a stored run as chunks, for a request that repeats it, or decides on it once no worker drives it.

A client that calls are shown to gets them from the record: the calls of the turn that the request is about.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import orjson

from gateway.approvals import chat_texts as spoken
from gateway.approvals import texts as approval_text
from gateway.approvals.escaping import Language
from gateway.context.lane import ContextLane
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Emit, Exchange, Reply, Resume
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import Approval, Journal, StoredRun, StoredStep
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.chat_request import find_last_user_text
from gateway.dialects.usage import TurnUsage
from gateway.runs import call_events
from gateway.runs.lease import build_client_wait_error, build_interrupted_error
from gateway.runs.request_snapshot import load_exchange


@dataclass(frozen=True, slots=True)
class AnswerReplay:
    """The answers of stored runs in one worker. `lane` returns the context lane of the configuration in use."""

    lane: Callable[[], ContextLane]
    store: Journal
    clock: Clock

    async def answer_request(self, run: StoredRun, exchange: Exchange, *, decided: Sequence[str]) -> list[Chunk]:
        """Return the answer of a run that no worker drives to this request. Raises GatewayError if there is none.

        `decided` are the approvals that the request decides on. The guards of the run's chain see the answer.
        """
        return await self._apply_guards(run, await self._build_answer(run, exchange, decided=decided))

    async def _build_answer(self, run: StoredRun, exchange: Exchange, *, decided: Sequence[str]) -> list[Chunk]:
        """Return the chunks for a run by its state. Raises GatewayError if it has no answer."""
        if run.answer is not None:
            return await self._build_ended_answer(run, orjson.loads(run.answer), exchange, decided=decided)
        if run.state == "awaiting_approval" and (pending := await self.list_pending(run)):
            return await self._build_waiting_answer(run, pending, exchange, decided=decided)
        if run.state == "unknown":
            steps = await self.store.list_steps(run.id, tenant=run.tenant)
            step = next((step for step in steps if step.state == "unknown"), steps[-1])
            text = approval_text.format_unknown_text(
                step.tool, run_id=run.id, step=step.number, language=detect_request_language(exchange)
            )
            return [*await self._build_answer_with_calls(run, "", exchange, decided=decided), *build_text_answer(text)]
        if run.state == "cancelled":
            raise GatewayError("run_cancelled", f"The run {run.id} was cancelled.").mark_after_effects()
        if run.error_code is not None and run.error is not None:
            raise GatewayError(run.error_code, run.error).mark_after_effects()
        if run.state == "awaiting_client":
            raise build_client_wait_error(run.id)
        raise build_interrupted_error(run.id)

    async def build_partial_answer(self, run: StoredRun, exchange: Exchange, *, decided: Sequence[str]) -> list[Chunk]:
        """Return the part of an answer that is on record, of a run that failed."""
        progress: Json = orjson.loads(run.progress) if run.progress else {}
        told = await self._build_answer_with_calls(run, progress.get("said", ""), exchange, decided=decided)
        return await self._apply_guards(run, told, is_cut=True)

    async def _apply_guards(self, run: StoredRun, chunks: list[Chunk], *, is_cut: bool = False) -> list[Chunk]:
        """Return what the stages of its chain that guard answers let through of the answer of a run.

        Raises GatewayError where one of them ends it so, but not of an answer that `is_cut` in any case.
        """
        chain = self.lane().chains.get(run.chain) if run.kind == "chat" else None
        if chain is None or chain.guarded is None:
            return chunks

        async def retell(emit: Emit) -> None:
            for chunk in chunks:
                if (pause := emit(chunk)) is not None:
                    await pause()

        async def handle(_exchange: Exchange) -> Reply:
            return Reply(retell)

        passed: list[Chunk] = []
        try:
            reply = await chain.guarded(handle)(load_exchange(Resume(run), approvals="turn"))
            await reply.stream(passed.append)
        except GatewayError as error:
            if not is_cut:
                raise error.mark_after_effects() from None
        return passed

    async def list_pending(self, run: StoredRun) -> list[Approval]:
        """Return the approvals that a run waits for."""
        approvals = await self.lane().approvals.index_by_step(run.id, tenant=run.tenant)
        return [approval for approval in approvals.values() if approval.state == "pending"]

    async def build_undecided_answer(self, pending: Sequence[Approval], exchange: Exchange) -> list[Chunk]:
        """Return the answer to a message that names pending calls, which may be of several runs, and decides none.

        A client that gets questions as items answers all of a response at once: they are of one run.
        """
        run_id = pending[0].run_id
        if exchange.delivery.asks_with_events:
            of_run = [approval for approval in pending if approval.run_id == run_id]
            facts = chunks.build_facts(spoken.build_waiting_facts(run_id, of_run))
            lead = spoken.format_nothing_decided(language=detect_request_language(exchange))
            return [
                lead,
                await self._build_question_event(run_id, of_run, exchange),
                chunks.build_finish("stop"),
                facts,
            ]
        facts = chunks.build_facts(spoken.build_waiting_facts(run_id, pending))
        answering = self.lane().approvals.build_answer_options(exchange.caller, pending, user=exchange.user)
        language, now_s = detect_request_language(exchange), self.clock.time()
        text = spoken.format_undecided_text(pending, language=language, now_s=now_s, answering=answering)
        return [*build_text_answer(text), facts]

    async def build_foreign_decision_answer(
        self, ruled: Sequence[Approval], of_run: Iterable[Approval], exchange: Exchange
    ) -> list[Chunk]:
        """Return the answer to a decision on a run of another person: what waits of it, and nothing of its result."""
        pending = [one for one in of_run if one.state == "pending"]
        run_id, language = ruled[0].run_id, detect_request_language(exchange)
        if not pending:
            approves = ruled[0].state != "rejected"
            return build_text_answer(
                approval_text.format_answered_elsewhere(run_id, approves=approves, language=language)
            )
        facts = chunks.build_facts(spoken.build_waiting_facts(run_id, pending))
        if exchange.delivery.asks_with_events:
            return [await self._build_question_event(run_id, pending, exchange), chunks.build_finish("stop"), facts]
        answering = self.lane().approvals.build_answer_options(exchange.caller, pending, user=exchange.user)
        decided, now_s = [one.id for one in ruled], self.clock.time()
        text = spoken.format_still_pending_text(pending, decided, language=language, now_s=now_s, answering=answering)
        return [*build_text_answer(text), facts]

    async def _build_ended_answer(
        self, run: StoredRun, answer: Json, exchange: Exchange, *, decided: Sequence[str]
    ) -> list[Chunk]:
        told = await self._build_answer_with_calls(run, answer["content"], exchange, decided=decided)
        told += chunks.build_call_chunks(answer["tool_calls"], reason=answer["finish_reason"])
        told.append(chunks.build_finish(answer["finish_reason"]))
        return [*told, {**chunks.build_facts(answer["context"]), "usage": answer["usage"]}]

    async def _build_waiting_answer(
        self, run: StoredRun, pending: Sequence[Approval], exchange: Exchange, *, decided: Sequence[str]
    ) -> list[Chunk]:
        """Return the question of a run that waits, as items or as text with its facts."""
        facts = (
            chunks.build_facts(spoken.build_waiting_facts(run.id, pending))
            if decided
            else _build_repeated_facts(run, pending)
        )
        if exchange.delivery.asks_with_events:
            was_shown = orjson.loads(run.request).get("shows_calls", False)  # else its text contains the question
            said = orjson.loads(run.progress)["said"] if was_shown and not decided else ""
            told = await self._build_answer_with_calls(run, said, exchange, decided=decided)
            return [
                *told,
                await self._build_question_event(run.id, pending, exchange),
                chunks.build_finish("stop"),
                facts,
            ]
        answering = self.lane().approvals.build_answer_options(exchange.caller, pending, user=exchange.user)
        language = detect_request_language(exchange)
        if decided:
            now_s = self.clock.time()
            text = spoken.format_still_pending_text(
                pending, decided, language=language, now_s=now_s, answering=answering
            )
        else:
            text = spoken.format_turn_text(pending, language=language, answering=answering)
        return [*build_text_answer(text), facts]

    async def _build_question_event(self, run_id: str, pending: Sequence[Approval], exchange: Exchange) -> Chunk:
        steps = await self.store.list_steps(run_id, tenant=exchange.caller.tenant)
        return chunks.build_event(
            spoken.build_question_event(run_id, pending, steps, service_of=self.lane().catalog.find_service_name)
        )

    async def _build_answer_with_calls(
        self, run: StoredRun, content: str, exchange: Exchange, *, decided: Sequence[str]
    ) -> list[Chunk]:
        """Return the text of an answer, with the calls of its turn if they are shown to the client.

        The turn of a request that decides begins with the first call that it decides on.
        """
        if not exchange.delivery.shows_calls:
            return [content] if content else []
        catalog = self.lane().catalog
        steps = await self.store.list_steps(run.id, tenant=run.tenant)
        progress: Json = orjson.loads(run.progress) if run.progress else {}
        rounds = _select_rounds(progress, await self._count_earlier_calls(run, progress, decided), steps)
        told = [] if decided else [call_events.build_tools_event(exchange, catalog)]
        return [*told, *call_events.build_answer(content, rounds, steps, catalog)]

    async def _count_earlier_calls(self, run: StoredRun, progress: Json, decided: Sequence[str]) -> int:
        """Return the number of calls that belong to earlier answers."""
        found = [await self.store.get_approval(approval_id, tenant=run.tenant) for approval_id in decided]
        steps = [approval.step for approval in found if approval is not None and approval.run_id == run.id]
        before: int = min(steps, default=progress.get("shown", 0))
        return before


def detect_request_language(exchange: Exchange) -> Language:
    """Return the language of the last message of a request."""
    return approval_text.detect_language(find_last_user_text(exchange.body["messages"]))


def format_decision_note(approval: Approval, exchange: Exchange) -> str:
    """Return the answer to a decision on a run whose own request is still there."""
    language = detect_request_language(exchange)
    if approval.state == "rejected":
        return approval_text.format_rejected_text(approval.tool, approval.comment, language=language)
    return approval_text.format_resumed_elsewhere(approval.run_id, language=language)


def build_text_answer(text: str) -> list[Chunk]:
    """Return an answer that is nothing but a text."""
    return [text, chunks.build_finish("stop")]


def _build_repeated_facts(run: StoredRun, pending: Sequence[Approval]) -> Json:
    """Return the facts of a question that is given again, with the tokens that its answer took."""
    usage = TurnUsage()
    usage.restore(orjson.loads(run.progress)["usage"])
    told = usage.build_chunk()
    return {**told, "context": {**spoken.build_waiting_facts(run.id, pending), **told.get("context", {})}}


def _select_rounds(progress: Json, before: int, steps: Sequence[StoredStep]) -> list[tuple[str, list[int]]]:
    """Return the rounds of a run, without calls and texts of earlier answers, which are the first `before` calls."""
    rounds = []
    for text, numbers, *_ in progress.get("rounds", ()):
        own = [number for number in numbers if before <= number < len(steps)]
        rounds.append((text if own == numbers else "", own))
    return rounds
