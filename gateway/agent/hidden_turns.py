"""Hidden turns, stored and put back: the work of a model behind an answer that its client sends again.

The messages of a run that its client never saw are counted from its beginning. Those of a turn that ended in a question
go in front of the question. The messages that follow from the question go behind it, or in front of the answer to the
request that decided.

Answers and conversations that strangers had a part in are marked, also by the names under which later requests refer to
them (gateway/runs/taints.py). A client that edits, shortens or sums up its history still taints the run that reads it.
Each such answer is marked by its words, and so is each text in it that is long enough: what the model said or thought,
and the arguments of its calls (gateway/agent/telling.py). A named conversation is marked before any of it is sent.

A client that calls are shown to has them itself, and nothing of its run is hidden. Each of these calls with a result
that strangers may have written is marked by its id, before the client gets the result.

An answer is recognised by its keys. There are three kinds of keys, the surest first:

1. The id of a call that the client was given, if it is a random one. It is found in text, too: some clients rewrite
   calls as text.
2. The conversation up to and including the answer, by its meaning. An edited one has other hashes.
3. The answer by itself, in a conversation that has a name: the client's (`X-Context-Conversation`), or the first id of
   kind 1 in it. It finds answers whose beginning the client shortened or rewrote.

Each key begins with tenant and caller. A hidden turn is put back once. An answer that could be two gets nothing.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.agent.output.told import Told
from gateway.agent.progress import Progress, Question
from gateway.agent.telling import TELLING_BYTES, telling_texts
from gateway.contracts.exchange import Exchange
from gateway.contracts.journal import StoredStep
from gateway.contracts.plugin import Clock
from gateway.contracts.store import HiddenTurn, Json, Store, StoreError
from gateway.dialects.meaning import Meaning, meaning_of
from gateway.runs.call_events import with_results
from gateway.runs.taints import taint_key

log = logging.getLogger("gateway")

#: The keys of so many messages take about 3 ms, and of so many characters; a part of a message counts like so many.
THREAD_MESSAGES, THREAD_CHARS, _PART_CHARS = 1000, 512 << 10, 64
_HIDDEN_ROLES = frozenset(("system", "developer"))
#: So many calls of one answer are keys.
_IDS_LIMIT: Final = 16


@dataclass(slots=True)
class Keys:
    """The keys that recognise one answer of a conversation. They are not changed after they are made.

    `place` is None in a conversation without a name. `words` and `texts` only find whether strangers had a part in
    such an answer.
    """

    calls: tuple[str, ...]
    prefix: str
    place: str | None
    words: str
    texts: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """Return the keys that mean one hidden turn only. One that came to mean two means none."""
        return self.calls if self.place is None else (*self.calls, self.place)


class HiddenTurns:
    """The hidden turns of one run's conversation. If the store fails, they are lost and the failure is logged."""

    def __init__(self, run: Exchange, progress: Progress, *, store: Store, clock: Clock) -> None:
        self._run = run
        self._progress = progress
        self._store = store
        self._clock = clock
        caller, conversation = run.caller, run.conversation
        self._whose = orjson.dumps([caller.tenant, caller.name])
        self._named = None  # the key of the conversation
        if conversation is not None:
            self._named = conversation_key(tenant=caller.tenant, caller=caller.name, conversation=conversation)
        self._marked = run.dry
        self.told = Told()

    @property
    def _mark_id(self) -> str:
        """Return the id of the one turn that all marks of texts are."""
        return _key(self._whose, b"marks")

    async def conversation(self) -> list[Json]:
        """Return the client's messages, with the hidden messages of earlier turns around their answers."""
        if self._run.tainted:
            self._progress.read_tainted = True
        await self.mark()
        messages: list[Json] = self._run.body["messages"]
        keys = await self._keys(messages)
        marks = [] if self._named is None else [self._named]
        for own in keys.values():
            marks += (own.words, *own.texts)
        if self._run.thoughts:
            marks += await self._keys_of_texts([{"content": text} for text in self._run.thoughts])
        if not marks:
            return messages
        asked = [*marks, *(key for own in keys.values() for key in (own.prefix, *own.own))]
        try:
            known = await self._store.hidden(asked, tenant=self._run.caller.tenant)
        except StoreError as error:
            log.warning("hidden turns are not remembered: %s", error)
            self._progress.read_tainted = True  # the answers are there, whoever wrote what led to them
            return messages
        if not known:
            return messages
        mark_id = self._mark_id
        marked = {key for key, turn in known.items() if turn.id in (key, mark_id)}
        places = places_of(keys, {key: turn for key, turn in known.items() if key not in marked})
        if marked or any(turn.tainted for turns in places.values() for turn in turns):
            self._progress.read_tainted = True
            await self.mark()
        return put_back(messages, places)

    async def mark(self) -> None:
        """Mark a named conversation, and what the answer is known as, once strangers had a part in it.

        The mark is stored before the client receives that part. The texts of which the client has all are marked, too.
        """
        if not self._progress.tainted:
            return
        await self.mark_told(whole=False)
        self.told.tainted = True
        if self._marked:
            return
        self._marked = True
        for key in (*([] if self._named is None else [self._named]), *map(taint_key, self._run.known_as)):
            await self._put_mark(key)

    async def mark_told(self, *, whole: bool = True, tool_calls: Sequence[Json] = ()) -> None:
        """Mark what the client was told after strangers had a part in it, text by text.

        `whole`: its turn is over, so that this is all. `tool_calls` are the client's own.
        """
        if not self._progress.tainted or self._run.dry or self._run.call is not None:  # nothing goes on behind a call
            return
        messages = self.told.take_all(self._progress.said, tool_calls) if whole else self.told.take_ended()
        if keys := await self._keys_of_texts(messages):
            mark_id = self._mark_id
            turn = HiddenTurn(id=mark_id, run_id=self._run.id, start=0, end=0, tainted=True)
            await self._write(turn, key=mark_id, own_keys=keys)

    async def mark_calls(self, numbers: Collection[int], steps: Sequence[StoredStep]) -> None:
        """Mark calls that the client is shown, whose results strangers may have written.

        Only the first calls of a long answer are looked up, so the first one is marked for those behind them.
        """
        ids = {steps[number].call_id for number in numbers}
        await self._mark_ids(ids | {steps[0].call_id for number in numbers if number >= _IDS_LIMIT})

    async def park(self, hidden: Sequence[Json], *, steps: Sequence[StoredStep] = (), replayed_text: str = "") -> None:
        """Store the run's hidden messages up to the question that ends its turn, however its client goes on.

        `steps` are those of the run. `replayed_text` is the text before the question, for a client that did not wait
        for the end of its answer.
        """
        progress = self._progress
        if self._run.call is not None:  # no conversation goes on behind it
            return
        if self._run.shows_calls:
            hidden, progress.asked_behind = (), with_results(steps)
        if progress.question is None:
            keys, start = await self._answered(()), min(progress.start, len(hidden))
            progress.question = Question(keys.prefix, keys.place, start, len(hidden), replayed_text)
        progress.kept = len(hidden)
        if hidden or progress.tainted:
            await self._store_question(hidden, progress.question, ())
        await self._mark_answer(())

    async def store(self, hidden: Sequence[Json], tool_calls: Sequence[Json]) -> None:
        """Store the hidden messages of a run that is over. `tool_calls` are the client's own."""
        if self._run.call is not None:  # as above
            return
        if self._run.shows_calls:
            if self._progress.tainted:
                await self._mark_ids({call["id"] for call in tool_calls})
            await self._mark_answer(tool_calls)
            return
        start = self._progress.start
        if (question := self._progress.question) is not None:
            said = "".join(self._progress.said)
            await self._store_question(hidden, question, [{"role": "assistant", "content": said}] if said else [])
            start = 0  # whoever repeats the request gets this answer, and never saw the question
        if len(hidden) > start or self._progress.tainted:  # of an answer without hidden turns, that strangers wrote it
            await self._put(await self._answered(tool_calls), hidden, start=start, split=len(hidden))
        await self._mark_answer(tool_calls)

    def retold(self) -> str:
        """Return the text to replay to a client of a run whose turn had not ended, or "" if it had."""
        progress, asked = self._progress, None if self._run.resume is None else self._run.resume.messages
        question = progress.question
        if question is None:
            return "".join(progress.said)
        progress.said = []
        if asked is None:
            progress.said += [question.retold] if question.retold else []
            return question.retold
        is_seen = any(keys.prefix == question.prefix for keys in self._keys_of(asked).values())
        progress.question, progress.start = None, progress.kept if is_seen else 0
        progress.shown = progress.asked_behind
        return ""

    async def _store_question(self, hidden: Sequence[Json], question: Question, told: Sequence[Json]) -> None:
        keys = Keys((), question.prefix, question.place, words="")
        await self._put(keys, hidden, start=question.start, split=question.split, told=told)

    async def _mark_answer(self, tool_calls: Sequence[Json]) -> None:
        if self._progress.tainted:
            await self._put_mark((await self._answered(tool_calls)).words)
            await self.mark_told(tool_calls=tool_calls)

    async def _mark_ids(self, call_ids: Iterable[str]) -> None:
        for call_id in sorted(call_ids):
            await self._put_mark(_call_key(self._whose, call_id))

    async def _put_mark(self, key: str) -> None:
        await self._write(HiddenTurn(id=key, run_id=self._run.id, start=0, end=0, tainted=True), key=key)

    async def _put(
        self, keys: Keys, hidden: Sequence[Json], *, start: int, split: int, told: Sequence[Json] = ()
    ) -> None:
        run = self._run
        turn = HiddenTurn(
            id=_turn_id(keys),
            run_id=run.id,
            start=start,
            end=len(hidden),
            before=hidden[start:split],
            behind=[*hidden[split:], *told],
            tainted=self._progress.tainted,
        )
        await self._write(turn, key=keys.prefix, own_keys=keys.own)

    async def _write(self, turn: HiddenTurn, *, key: str, own_keys: Sequence[str] = ()) -> None:
        run, now_s = self._run, self._clock.time()
        try:
            await self._store.put_hidden(turn, key=key, own_keys=own_keys, tenant=run.caller.tenant, now_s=now_s)
        except StoreError as error:
            log.warning("hidden turns of run %s are not kept: %s", run.id, error)

    async def _answered(self, tool_calls: Sequence[Json]) -> Keys:
        """Return the keys of the answer of this turn."""
        resume = self._run.resume
        messages = self._run.body["messages"] if resume is None or resume.messages is None else resume.messages
        answer = {"role": "assistant", "content": "".join(self._progress.said), "tool_calls": tool_calls}
        return (await self._keys([*messages, answer]))[len(messages)]

    async def _keys(self, messages: Sequence[Json]) -> dict[int, Keys]:
        """Return the keys by message.

        A thread makes the keys of many or long messages: a megabyte takes 5 ms.
        """
        answered = _to_last_answer(messages)
        if not answered:
            return {}
        if _is_long(answered):
            return await asyncio.to_thread(self._keys_of, answered)
        return self._keys_of(answered)

    async def _keys_of_texts(self, messages: Sequence[Json]) -> list[str]:
        """Return the keys of the texts of answers, each once; of long ones by a thread, as above."""
        if _is_long(messages):
            return await asyncio.to_thread(_texts_of, messages, self._whose)
        return _texts_of(messages, self._whose)

    def _keys_of(self, messages: Sequence[Json]) -> dict[int, Keys]:
        run = self._run
        return keys_of(messages, tenant=run.caller.tenant, caller=run.caller.name, conversation=run.conversation)


def _to_last_answer(messages: Sequence[Json]) -> Sequence[Json]:
    """Return the messages without those behind the last answer, which no key depends on."""
    end = len(messages)
    while end and messages[end - 1].get("role") != "assistant":
        end -= 1
    return messages[:end]


def _is_long(messages: Sequence[Json]) -> bool:
    """Return whether the keys of messages take so long that a thread makes them."""
    left: list[object] = [*messages[:THREAD_MESSAGES]]
    chars = 0
    while left and chars < THREAD_CHARS:
        value = left.pop()
        if isinstance(value, str):
            chars += len(value)
        elif isinstance(value, dict):
            chars += _PART_CHARS
            left += value.values()
        elif isinstance(value, list | tuple):
            chars += len(value)
            left += value
    return chars >= THREAD_CHARS or len(messages) >= THREAD_MESSAGES


def _turn_id(keys: Keys) -> str:
    """Return an id that is the same for the same answer to the same conversation.

    The ids of its calls distinguish two such answers.
    """
    return hashlib.sha256("".join((keys.prefix, *keys.calls)).encode()).hexdigest()


def keys_of(messages: Sequence[Json], *, tenant: str, caller: str, conversation: str | None) -> dict[int, Keys]:
    """Return the keys of each assistant message, by its index."""
    whose = orjson.dumps([tenant, caller])
    digest = hashlib.sha256(whose)
    asked, name = b"", None if conversation is None else [conversation]
    found = {}
    for index, message in enumerate(messages):
        if message.get("role") in _HIDDEN_ROLES:
            continue
        meant = meaning_of(message)
        if meant.role == b"u":
            asked = meant.text
        if meant.role != b"a":
            digest.update(_framed(meant.role, meant.text))
            continue
        if meant.calls or meant.text:  # clients drop answers without anything
            digest.update(_told(meant))
        if name is None and meant.ids:
            name = ["", meant.ids[0]]
        behind, told = _behind(meant, asked), _told(meant)
        place = None if name is None else _key(whose, orjson.dumps(name), behind, told)
        calls = tuple(_call_key(whose, call_id) for call_id in meant.ids[:_IDS_LIMIT])
        texts = _text_keys(message, whose)
        found[index] = Keys(calls, digest.hexdigest(), place, _key(whose, b"words", behind, told), texts)
    return found


def conversation_key(*, tenant: str, caller: str, conversation: str) -> str:
    """Return the key of a conversation as a whole. It finds whether strangers had a part in it."""
    return _key(orjson.dumps([tenant, caller]), b"conversation", conversation.encode())


def _call_key(whose: bytes, call_id: str) -> str:
    return _key(whose, b"call", call_id.encode())


def _texts_of(messages: Sequence[Json], whose: bytes) -> list[str]:
    return list(dict.fromkeys(key for message in messages for key in _text_keys(message, whose)))


def _text_keys(message: Json, whose: bytes) -> tuple[str, ...]:
    return tuple(_key(whose, b"told", text) for text in telling_texts(message))


def places_of(keys: Mapping[int, Keys], known: Mapping[str, HiddenTurn]) -> dict[int, list[HiddenTurn]]:
    """Return the hidden turns of each answer, by its index. `known` are those in the store by their keys."""
    places: dict[int, list[HiddenTurn]] = {}
    placed: dict[str, list[HiddenTurn]] = {}  # by their runs

    def put(index: int, key: str | None) -> None:
        turn = None if key is None else known.get(key)
        if turn is not None and not any(turn.overlaps(other) for other in placed.get(turn.run_id, ())):
            placed.setdefault(turn.run_id, []).append(turn)
            places.setdefault(index, []).append(turn)

    for index, own in keys.items():
        for key in own.calls:
            put(index, key)
    for index, own in keys.items():
        if index not in places:
            put(index, own.prefix)
    often = Counter(own.place for own in keys.values())
    for index, own in keys.items():
        if own.prefix not in known and often[own.place] == 1:
            put(index, own.place)
    return places


def put_back(messages: Sequence[Json], places: Mapping[int, Sequence[HiddenTurn]]) -> list[Json]:
    """Return the conversation with the hidden messages in front of its answers.

    The messages after a question that was decided elsewhere stand in its place: no two answers follow each other.
    """
    whole: list[Json] = []
    for index, message in enumerate(messages):
        turns = places.get(index, ())
        came = [came for turn in turns for came in turn.behind]
        for turn in turns:
            whole += turn.before
        whole += came
        if not came or came[-1].get("role") != "assistant":
            whole.append(message)
    return whole


def _told(meant: Meaning) -> bytes:
    """Return the bytes that identify an answer: its calls or its text. Clients drop the text beside calls."""
    return _framed(b"c", meant.calls) if meant.calls else _framed(b"a", meant.text)


def _behind(meant: Meaning, asked: bytes) -> bytes:
    return b"" if not meant.calls and len(meant.text) >= TELLING_BYTES else asked


def _framed(kind: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (kind, len(content), content)


def _key(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(_framed(b"k", part) for part in parts)).hexdigest()
