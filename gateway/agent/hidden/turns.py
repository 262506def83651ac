"""Hidden turns, stored and put back: the work of a model behind an answer that its client sends again.

The messages of a run that its client never saw are counted from its beginning. A turn that ended in a question has them
in front of the question. The messages that follow from the question go behind it, or in front of the answer to the
request that decided.

An answer is recognised by its keys (gateway/agent/hidden/answer_keys.py). Every turn of an end user or a named
conversation is recorded, with a hidden part or not, so that an answer that could be of two turns is known to be
ambiguous. A hidden turn is put back once. An ambiguous answer gets nothing, and what is recognised by its meaning never
leaves the end user and the named conversation.
"""

import hashlib
import logging
from collections.abc import Sequence

from gateway.agent.hidden.answer_keys import (
    AnswerKeys,
    KeyReader,
    Scope,
    build_answer_keys,
    build_issued_keys,
    read_keys,
    trim_after_last_answer,
)
from gateway.agent.hidden.answer_positions import HiddenTurnMap, find_places, put_back
from gateway.agent.hidden.taint_marks import TaintMarks
from gateway.agent.progress import RunProgress, TurnQuestion
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.journal import StoredStep
from gateway.contracts.storage.store import HiddenTurn, Json, Store, StoreError
from gateway.runs.call_events import count_leading_results

log = logging.getLogger("gateway")

NO_NAME = (
    "hidden turns: answers are recognised by ids of the gateway only, as the request names neither an end user "
    "(X-Context-User) nor a conversation (X-Context-Conversation)"
)


class HiddenTurns:
    """The hidden turns of one run's conversation. If the store fails, they are lost and the failure is logged.

    `remarks` say what was put back and what was not, for a request that is only explained.
    """

    def __init__(self, run: Exchange, progress: RunProgress, *, store: Store, clock: Clock, counters: Counters) -> None:
        self._run = run
        self._progress = progress
        self._store = store
        self._clock = clock
        self._counters = counters
        self._scope = Scope(run)
        self.marks = TaintMarks(run, progress, self._scope, store=store, clock=clock)
        self.remarks: tuple[str, ...] = ()
        self._reader: KeyReader | None = None  # it has read so many messages of the request
        self._n_read = 0

    async def build_conversation(self) -> list[Json]:
        """Return the client's messages, with the hidden messages of earlier turns around their answers."""
        run, progress = self._run, self._progress
        if run.execution.tainted:
            progress.read_tainted = True
        await self.marks.mark()
        messages: list[Json] = run.body["messages"]
        keys = await self._read_conversation_keys(messages)
        if not (keys or run.conversation is not None or run.origin.thoughts):
            return messages
        asked = await self.marks.list_conversation_marks(keys)
        for own in keys.values():
            asked += (*own.ids, *own.by_meaning) if self._scope.has_meaning else own.ids
        if not asked:
            return messages
        try:
            known = await self._store.find_hidden_turns(asked, tenant=run.caller.tenant)
        except StoreError as error:
            log.warning("hidden turns are not remembered: %s", error)
            progress.read_tainted = True  # the answers are there, and untrusted text may have led to them
            return messages
        if not (known or run.dry):
            return messages
        places = find_places(keys, known, conversation=run.conversation) if known else HiddenTurnMap()
        self._count_placements(places, is_asked=bool(keys))
        if self.marks.has_any_mark(known) or any(turn.tainted for turns in places.turns.values() for turn in turns):
            progress.read_tainted = True
            await self.marks.mark()
        return put_back(messages, places.turns) if places.turns else messages

    async def park(self, hidden: Sequence[Json], *, steps: Sequence[StoredStep] = (), replayed_text: str = "") -> None:
        """Store the run's hidden messages up to the question that ends its turn, however its client goes on.

        `steps` are the steps of the run. `replayed_text` is the text before the question, for a client that did not
        wait for the end of its answer.
        """
        progress = self._progress
        if self._run.job.call is not None:  # no conversation goes on behind it
            return
        hidden = self._select_unseen_messages(hidden)
        if self._run.delivery.shows_calls:
            hidden, progress.asked_behind = (), count_leading_results(steps)
        keys = await self._build_turn_keys((), has_prefix=True)
        if progress.question is None:
            start = min(progress.start, len(hidden))
            ids = build_issued_keys(
                self._scope, "".join(progress.said), tool_calls=(), answer_id=self._run.delivery.answer_id
            )
            progress.question = TurnQuestion(keys.prefix, keys.place, start, len(hidden), replayed_text, ids)
        progress.kept = len(hidden)
        await self._store_question(hidden, progress.question, ())
        await self.marks.mark_answer(keys, ())

    async def store(self, hidden: Sequence[Json], tool_calls: Sequence[Json]) -> None:
        """Store the hidden messages of a run that is over. `tool_calls` are the client's own."""
        if self._run.job.call is not None:  # as above
            return
        progress, question, answer_id = self._progress, self._progress.question, self._run.delivery.answer_id
        start, hidden = progress.start, self._select_unseen_messages(hidden)
        if self._run.delivery.shows_calls:
            hidden, start = (), 0
            if progress.is_tainted:
                await self.marks.mark_ids({call["id"] for call in tool_calls})
        elif question is not None:
            said = "".join(progress.said)
            await self._store_question(hidden, question, [{"role": "assistant", "content": said}] if said else [])
            start, answer_id = 0, ""  # a client that repeats the request gets this answer, and never saw the question
        has_keys = self._scope.has_meaning or progress.is_tainted
        if not (hidden or has_keys):
            return
        ids: Sequence[str] = ()
        if hidden:
            ids = build_issued_keys(self._scope, "".join(progress.said), tool_calls=tool_calls, answer_id=answer_id)
        if not has_keys:
            await self._store_turn("answer", ids, (), hidden, start=start, split=len(hidden))
            return
        keys = await self._build_turn_keys(tool_calls)
        await self._store_turn("answer", ids, keys.by_meaning, hidden, start=start, split=len(hidden))
        await self.marks.mark_answer(keys, tool_calls)

    def _select_unseen_messages(self, hidden: Sequence[Json]) -> Sequence[Json]:
        """Return the hidden messages except the ones that came with a decision: the client has them."""
        seen = [message for _, _, beside in self._progress.rounds for message in beside.get("added", ())]
        return [message for message in hidden if message not in seen] if seen else hidden

    async def store_plain(self) -> None:
        """Record an answer that no loop has read, so that an equal one is known to be ambiguous."""
        self._progress.said.append(self.marks.told.answer_text)
        await self.store((), ())

    def find_replay_text(self) -> str:
        """Return the text to replay to a client of a run whose turn had not ended, or "" if it had."""
        progress, asked = (
            self._progress,
            None if self._run.execution.resume is None else self._run.execution.resume.messages,
        )
        question = progress.question
        if question is None:
            return "".join(progress.said)
        progress.said = []
        if asked is None:
            progress.said += [question.retold] if question.retold else []
            return question.retold
        is_seen = any(keys.prefix == question.prefix for keys in build_answer_keys(asked, self._scope).values())
        progress.question, progress.start = None, progress.kept if is_seen else 0
        progress.shown = progress.asked_behind
        return ""

    async def _store_question(self, hidden: Sequence[Json], question: TurnQuestion, told: Sequence[Json]) -> None:
        keys = AnswerKeys(tuple(question.ids), question.prefix, question.place)
        await self._store_turn(
            question.prefix, keys.ids, keys.by_meaning, hidden, start=question.start, split=question.split, told=told
        )

    async def _store_turn(
        self,
        which: str,
        ids: Sequence[str],
        by_meaning: Sequence[str],
        hidden: Sequence[Json],
        *,
        start: int,
        split: int,
        told: Sequence[Json] = (),
    ) -> None:
        """Store a turn under its ids and its meaning. Of one without a hidden part, the meaning is recorded.

        `which` names the turn among the turns of its run.
        """
        run = self._run
        before, behind = hidden[start:split], [*hidden[split:], *told]
        tainted = bool(hidden or told) and self._progress.is_tainted
        is_empty = not (before or behind or tainted)
        keys = (*(() if is_empty else ids), *(by_meaning if self._scope.has_meaning else ()))
        if run.dry:
            return
        if not keys:
            if before or behind:
                self._counters.count("hidden_turns", outcome="unnamed")
            return
        turn_id = hashlib.sha256(f"{run.id}:{which}".encode()).hexdigest()
        tenant, now_s = run.caller.tenant, self._clock.time()
        try:
            if is_empty:
                await self._store.record_answer(turn_id, keys=keys, tenant=tenant, now_s=now_s)
                return
            turn = HiddenTurn(
                id=turn_id,
                run_id=run.id,
                start=start,
                end=len(hidden),
                before=before,
                behind=behind,
                tainted=tainted,
                conversation=run.conversation,
            )
            await self._store.put_hidden(turn, keys=keys, tenant=tenant, now_s=now_s)
        except StoreError as error:
            log.warning("hidden turns of run %s are not kept: %s", run.id, error)

    async def _read_conversation_keys(self, messages: Sequence[Json]) -> dict[int, AnswerKeys]:
        """Return the keys of the answers of a conversation, and keep the reader behind the last one."""
        answered = trim_after_last_answer(messages)
        if not answered:
            return {}
        self._reader = reader = KeyReader(self._scope, has_prefixes=self._scope.has_meaning)
        self._n_read = len(answered)
        return await read_keys(answered, self._scope, reader=reader, answer_ids=self._run.origin.answer_ids)

    async def _build_turn_keys(self, tool_calls: Sequence[Json], *, has_prefix: bool = False) -> AnswerKeys:
        """Return the keys of the answer of this turn."""
        resume = self._run.execution.resume
        messages, reader = self._run.body["messages"], self._reader
        if resume is not None and resume.messages is not None:
            messages, reader = resume.messages, None
        if reader is None or (has_prefix and not reader.has_prefixes):
            rest, reader = messages, KeyReader(self._scope)
        else:
            rest, reader = messages[self._n_read :], reader.copy()
        reader.has_marks = self._progress.is_tainted
        answer: Json = {"role": "assistant", "content": "".join(self._progress.said)}
        if tool_calls:
            answer["tool_calls"] = tool_calls
        return (await read_keys([*rest, answer], self._scope, reader=reader))[len(rest)]

    def _count_placements(self, places: HiddenTurnMap, *, is_asked: bool) -> None:
        """Count the restored, ambiguous and foreign turns, or add remarks on them in a dry run."""
        n_turns = sum(map(len, places.turns.values()))
        if not self._run.dry:
            counts = {"put_back": n_turns, "ambiguous": places.ambiguous, "foreign": places.foreign}
            for outcome, count in counts.items():
                if count:
                    self._counters.count("hidden_turns", count, outcome=outcome)
            return
        remarks = [f"hidden turns: {n_turns} put back"] if is_asked else []
        if places.ambiguous:
            remarks.append(f"hidden turns: {places.ambiguous} answers could be of two turns, so nothing is put back")
        if places.foreign:
            remarks.append(f"hidden turns: {places.foreign} ids are of another conversation, so nothing is put back")
        if is_asked and not self._scope.has_meaning:
            remarks.append(NO_NAME)
        self.remarks = tuple(remarks)
