"""The marks of taint: they record that an answer or a conversation contains untrusted text, without the text itself.

They belong to the caller, and not to its end user: a mark only makes the gateway require approvals more often. A client
that edits, shortens or sums up its history still taints the run that reads it. Each answer is marked by its words, and
so is each text in it that is long enough (gateway/agent/fingerprint_text.py). These are the model's text and thoughts,
and the arguments of its calls. A named conversation is marked before any of it is sent, and so are the names under
which later requests refer to the answer (gateway/runs/taint_marks.py).

A client that calls are shown to has them itself, and nothing of its run is hidden. Each of these calls whose result may
contain untrusted text is marked by its id, before the client gets the result.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.agent.hidden.answer_keys import IDS_LIMIT, AnswerKeys, KeyReader, Scope, read_keys, read_text_marks
from gateway.agent.output.echo_segments import EchoSegments
from gateway.agent.progress import RunProgress
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import StoredStep
from gateway.contracts.storage.store import HiddenTurn, Json, Store, StoreError
from gateway.dialects.usage import TurnUsage
from gateway.runs.live_run import LiveRun
from gateway.runs.taint_marks import build_taint_key

log = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True)
class ForeignAnswers:
    """The marks of answers about runs of other people. Their texts are untrusted in the conversation that gets them.

    A question shows the arguments of a call that another person's model wrote.
    """

    store: Store
    clock: Clock

    async def mark(self, run: LiveRun) -> None:
        """Mark another person's answer as tainted in the conversation of the client that it is shown to."""
        if (own := run.answer.shown_to) is None:
            return
        progress, scope = RunProgress(TurnUsage(), read_tainted=True), Scope(own)
        marks = TaintMarks(own, progress, scope, store=self.store, clock=self.clock)
        await marks.mark()
        for chunk in run.transcript.chunks:
            marks.told.add(chunk)
        progress.said.append(marks.told.answer_text)
        messages = [*own.body["messages"], {"role": "assistant", "content": marks.told.answer_text}]
        keys = await read_keys(messages, scope, reader=KeyReader(scope, has_prefixes=False))
        await marks.mark_answer(keys[len(messages) - 1], ())


class TaintMarks:
    """The marks that one run reads and writes. If the store fails, they are lost and the failure is logged."""

    def __init__(self, run: Exchange, progress: RunProgress, scope: Scope, *, store: Store, clock: Clock) -> None:
        self._run = run
        self._progress = progress
        self._scope = scope
        self._store = store
        self._clock = clock
        self._is_marked = run.dry
        self.told = EchoSegments()

    async def list_conversation_marks(self, keys: Mapping[int, AnswerKeys]) -> list[str]:
        """Return the keys of all marks that taint a run with this conversation."""
        named = self._scope.conversation_mark
        marks = [] if named is None else [named]
        for own in keys.values():
            marks += own.marks
        if self._run.origin.thoughts:
            marks += await read_text_marks([{"content": text} for text in self._run.origin.thoughts], self._scope)
        return marks

    def has_any_mark(self, known: Mapping[str, HiddenTurn | None]) -> bool:
        """Return whether one of the turns found by their keys is a taint mark."""
        marks_id = self._scope.marks_id
        return any(turn is not None and turn.id in (key, marks_id) for key, turn in known.items())

    async def mark(self) -> None:
        """Mark a named conversation, and the names of the answer, once untrusted text has entered it.

        The mark is stored before the client receives that part. The texts of which the client has all are marked, too.
        """
        if not self._progress.is_tainted:
            return
        await self.mark_received_texts(whole=False)
        self.told.tainted = True
        if self._is_marked:
            return
        self._is_marked = True
        named = self._scope.conversation_mark
        for key in (*([] if named is None else [named]), *map(build_taint_key, self._run.delivery.known_as)):
            await self._store_mark(key)

    async def mark_server_sources(self) -> None:
        """Taint the run and mark its answer, because the model's server has searched by itself."""
        self._progress.read_tainted = True
        await self.mark()

    async def mark_received_texts(self, *, whole: bool = True, tool_calls: Sequence[Json] = ()) -> None:
        """Mark the texts that the client received after untrusted text had entered the answer, one by one.

        `whole`: its turn is over, so that this is all. `tool_calls` are the client's own.
        """
        if (
            not self._progress.is_tainted or self._run.dry or self._run.job.call is not None
        ):  # nothing goes on behind a call
            return
        messages = (
            self.told.take_remaining_texts(self._progress.said, tool_calls) if whole else self.told.take_ended_texts()
        )
        if keys := await read_text_marks(messages, self._scope):
            await self._store_mark(self._scope.marks_id, *keys)

    async def mark_calls(self, numbers: Collection[int], steps: Sequence[StoredStep]) -> None:
        """Mark calls that the client is shown, whose results may contain untrusted text.

        Only the first calls of a long answer are looked up, so the first one is marked for all that follow.
        """
        ids = {steps[number].call_id for number in numbers}
        await self.mark_ids(ids | {steps[0].call_id for number in numbers if number >= IDS_LIMIT})

    async def mark_ids(self, call_ids: Iterable[str]) -> None:
        """Mark calls by their ids."""
        for call_id in sorted(call_ids):
            await self._store_mark(self._scope.build_call_mark(call_id))

    async def mark_answer(self, keys: AnswerKeys, tool_calls: Sequence[Json]) -> None:
        """Mark the answer of a turn that is over, as a whole and text by text, if it is tainted."""
        if self._progress.is_tainted:
            await self._store_mark(keys.words)
            await self.mark_received_texts(tool_calls=tool_calls)

    async def _store_mark(self, key: str, *further: str) -> None:
        """Store a mark under its key, which is its id, and under further ones."""
        run, now_s = self._run, self._clock.time()
        mark = HiddenTurn(id=key, run_id=run.id, start=0, end=0, tainted=True)
        try:
            await self._store.put_hidden(mark, keys=[key, *further], tenant=run.caller.tenant, now_s=now_s)
        except StoreError as error:
            log.warning("taint of run %s is not kept: %s", run.id, error)
