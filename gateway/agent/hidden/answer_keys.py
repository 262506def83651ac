"""The keys that recognise an answer that a client sends again. Sans-I/O, but for the thread that makes many of them.

An id is exact. The gateway made it, and gave it to the client of one answer. It is the id of a call (96 random bits),
of an approval that the answer requests, or of the response that contains it. A call's id is found in text, too: some
clients rewrite calls as text.

Without an id, an answer is recognised by its meaning, within the end user and the named conversation of its request:

1. The conversation up to and including the answer. An edited one has another hash.
2. The answer by itself, in a conversation that has a name: the client's (`X-Context-Conversation`), or the first id in
   it. This key finds answers whose beginning the client shortened or rewrote.

A request that names neither an end user nor a conversation has ids only. Two people who share its key look the same to
the gateway.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.agent.fingerprint_text import TELLING_BYTES, extract_fingerprint_texts
from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.store import Json
from gateway.dialects.message_identity import MessageMeaning, extract_approval_ids, is_random, parse_meaning

#: The keys of so many messages take about 3 ms, and of so many characters; a part of a message counts like so many.
THREAD_MESSAGES, THREAD_CHARS, _PART_CHARS = 1000, 512 << 10, 64
_HIDDEN_ROLES = frozenset(("system", "developer"))
#: So many calls of one answer are keys.
IDS_LIMIT: Final = 16


class Scope:
    """The people whose answers a request may refer to.

    `has_meaning`: the request names an end user or a conversation, so that answers are also recognised by meaning.
    """

    __slots__ = ("_ids", "_marks", "_meaning", "conversation", "has_meaning")

    def __init__(self, run: Exchange) -> None:
        caller, user = run.caller, run.user
        self.conversation = run.conversation
        self.has_meaning = user is not None or run.conversation is not None
        self._marks = orjson.dumps([caller.tenant, caller.name])
        self._ids = orjson.dumps([caller.tenant, caller.name, user])
        self._meaning = orjson.dumps([caller.tenant, caller.name, user, run.conversation])

    @property
    def marks_id(self) -> str:
        """Return the id of the single stored turn that holds all text marks of this caller."""
        return _hash_key(self._marks, b"marks")

    @property
    def conversation_mark(self) -> str | None:
        """Return the key of the mark of the named conversation as a whole."""
        return (
            None if self.conversation is None else _hash_key(self._marks, b"conversation", self.conversation.encode())
        )

    def build_call_mark(self, call_id: str) -> str:
        """Return the key of the mark of a call."""
        return _hash_key(self._marks, b"call", call_id.encode())

    def build_text_marks(self, message: Json) -> list[str]:
        """Return the keys of the marks of the texts of an answer that are long enough to be recognised."""
        return [_hash_key(self._marks, b"told", text) for text in extract_fingerprint_texts(message)]

    def build_wording_mark(self, behind: bytes, told: bytes) -> str:
        """Return the key of the mark of an answer by its words."""
        return _hash_key(self._marks, b"words", behind, told)

    def build_id_keys(self, *, calls: Iterable[str] = (), asks: Iterable[str] = (), answer: str = "") -> list[str]:
        """Return the keys of ids: of calls, of requested approvals, and of the answer itself."""
        kinds = ((b"call", calls), (b"ask", asks), (b"answer", (answer,) if answer else ()))
        return [_hash_key(self._ids, kind, own.encode("utf-8", "surrogatepass")) for kind, ids in kinds for own in ids]

    def digest(self) -> "hashlib._Hash":
        """Return the hash of a conversation that has no message yet."""
        return hashlib.sha256(self._meaning)

    def build_position_key(self, name: Sequence[str], behind: bytes, told: bytes) -> str | None:
        """Return the key of an answer by its position; None if the request names no user or conversation."""
        return _hash_key(self._meaning, orjson.dumps(name), behind, told) if self.has_meaning else None


@dataclass(slots=True)
class AnswerKeys:
    """The keys that recognise one answer of a conversation. They are not changed after they are made.

    `prefix` and `place` are the keys of its meaning. `place` is None in a conversation without a name. `words` and
    `marks` only find whether such an answer is tainted.
    """

    ids: tuple[str, ...]
    prefix: str
    place: str | None
    words: str = ""
    marks: Sequence[str] = ()

    @property
    def by_meaning(self) -> tuple[str, ...]:
        """Return the keys made from the content of the answer, not from ids."""
        return (self.prefix,) if self.place is None else (self.prefix, self.place)


class KeyReader:
    """The reading of one conversation, message by message.

    `has_prefixes`: whether answers get the key of the conversation up to them, which nothing needs where answers are
    recognised by ids alone. `has_marks`: whether they get the keys of their marks; a copy
    has True.
    """

    __slots__ = ("_asked", "_digest", "_name", "_scope", "has_marks", "has_prefixes")

    def __init__(self, scope: Scope, *, has_prefixes: bool = True) -> None:
        self._scope = scope
        self.has_prefixes = has_prefixes
        self.has_marks = True
        self._digest = scope.digest()
        self._asked = b""
        self._name: Sequence[str] | None = None if scope.conversation is None else [scope.conversation]

    def copy(self) -> "KeyReader":
        """Return a reader that continues behind the messages read so far."""
        other = KeyReader(self._scope, has_prefixes=self.has_prefixes)
        other._digest, other._asked, other._name = self._digest.copy(), self._asked, self._name
        return other

    def read(self, message: Json, *, answer_id: str = "") -> AnswerKeys | None:
        """Add a message. Return the keys of an assistant's message, and None for any other."""
        if message.get("role") in _HIDDEN_ROLES:
            return None
        meant, scope = parse_meaning(message), self._scope
        if meant.role == b"u":
            self._asked = meant.text
        if meant.role != b"a":
            if self.has_prefixes:
                self._digest.update(_frame_bytes(meant.role, meant.text))
            return None
        told = _encode_identity(meant)
        if self.has_prefixes and (meant.calls or meant.text):  # clients drop answers without anything
            self._digest.update(told)
        ids, asks = meant.ids[:IDS_LIMIT], meant.asks[:IDS_LIMIT]
        if self._name is None and ids:
            self._name = ["", ids[0]]
        behind = _select_question_text(meant, self._asked)
        place = None if self._name is None else scope.build_position_key(self._name, behind, told)
        own = tuple(scope.build_id_keys(calls=ids, asks=asks, answer=answer_id)) if ids or asks or answer_id else ()
        keys = AnswerKeys(own, self._digest.hexdigest() if self.has_prefixes else "", place)
        if self.has_marks:
            keys.words = scope.build_wording_mark(behind, told)
            keys.marks = [keys.words, *scope.build_text_marks(message), *map(scope.build_call_mark, ids)]
        return keys


def build_answer_keys(
    messages: Sequence[Json], scope: Scope, *, answer_ids: Sequence[str] = (), reader: KeyReader | None = None
) -> dict[int, AnswerKeys]:
    """Return the keys of each assistant message, by its index.

    `answer_ids` are the ids of the responses that the assistant messages are of, "" for an unknown one. They count if
    there is one for each. `reader` has read what is in front of the messages.
    """
    reader = KeyReader(scope) if reader is None else reader
    answers = iter(answer_ids if answer_ids and len(answer_ids) == _count_answers(messages) else ())
    found = {}
    for index, message in enumerate(messages):
        answer_id = next(answers, "") if message.get("role") == "assistant" else ""
        if (keys := reader.read(message, answer_id=answer_id)) is not None:
            found[index] = keys
    return found


def build_issued_keys(scope: Scope, text: str, *, tool_calls: Sequence[Json], answer_id: str) -> tuple[str, ...]:
    """Return the keys of the ids that the gateway gave to the client with one answer.

    Ids of calls in its text are not among them: a model may repeat there what it has read.
    """
    calls = [call["id"] for call in tool_calls if is_random(call["id"])]
    return tuple(
        scope.build_id_keys(calls=calls[:IDS_LIMIT], asks=extract_approval_ids(text)[:IDS_LIMIT], answer=answer_id)
    )


async def read_keys(
    messages: Sequence[Json], scope: Scope, *, reader: KeyReader, answer_ids: Sequence[str] = ()
) -> dict[int, AnswerKeys]:
    """Return the keys of each assistant message, as `keys_of` does.

    A thread makes the keys of many or long messages: a megabyte takes 5 ms.
    """
    if _is_long(messages):
        return await asyncio.to_thread(build_answer_keys, messages, scope, answer_ids=answer_ids, reader=reader)
    return build_answer_keys(messages, scope, answer_ids=answer_ids, reader=reader)


async def read_text_marks(messages: Sequence[Json], scope: Scope) -> list[str]:
    """Return the marks of the texts of answers, each once; a thread makes those of long ones."""
    if _is_long(messages):
        return await asyncio.to_thread(_list_text_marks, messages, scope)
    return _list_text_marks(messages, scope)


def _list_text_marks(messages: Sequence[Json], scope: Scope) -> list[str]:
    return list(dict.fromkeys(key for message in messages for key in scope.build_text_marks(message)))


def _count_answers(messages: Sequence[Json]) -> int:
    return sum(message.get("role") == "assistant" for message in messages)


def trim_after_last_answer(messages: Sequence[Json]) -> Sequence[Json]:
    """Return the messages up to the last answer. No key depends on later ones."""
    end = len(messages)
    while end and messages[end - 1].get("role") != "assistant":
        end -= 1
    return messages[:end]


def _is_long(messages: Sequence[Json]) -> bool:
    """Return whether the keys of messages take so long that a thread makes them."""
    left: list[object] = []
    chars = 0
    for message in messages[:THREAD_MESSAGES]:
        content = message.get("content")
        if len(message) == 2 and isinstance(content, str):  # as most are: a role and a text
            chars += _PART_CHARS + len(content)
        else:
            left.append(message)
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


def _encode_identity(meant: MessageMeaning) -> bytes:
    """Return the bytes that identify an answer: its calls or its text. Clients drop the text beside calls."""
    return _frame_bytes(b"c", meant.calls) if meant.calls else _frame_bytes(b"a", meant.text)


def _select_question_text(meant: MessageMeaning, asked: bytes) -> bytes:
    """Return the text in front of an answer, or b"" if the answer's own text identifies it."""
    return b"" if not meant.calls and len(meant.text) >= TELLING_BYTES else asked


def _frame_bytes(kind: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (kind, len(content), content)


def _hash_key(*parts: bytes) -> str:
    return hashlib.sha256(b"".join([b"k%d:%b" % (len(part), part) for part in parts])).hexdigest()
