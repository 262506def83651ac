"""Hidden turns: the keys that recognise an answer when its client sends it again, and the places of hidden messages.

There are three kinds of keys, the surest first:

1. The id of a call that the client was given, if it is a random one. It is found in text, too: some clients rewrite
   calls as text.
2. The conversation up to and including the answer, by its meaning. An edited one has other hashes.
3. The answer by itself, in a conversation that has a name: the client's (`X-Context-Conversation`), or the first id of
   kind 1 in it. It finds answers whose beginning the client shortened or rewrote.

Each key begins with tenant and caller. A hidden turn is put back once. An answer that could be two gets nothing.

The author of a text matters also where nothing is put back. So texts that strangers had a part in leave marks. An
answer is marked by its words, whatever stands before it. A conversation that its client named is marked for as long as
it is used.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.contracts.store import HiddenTurn, Json
from gateway.dialects.meaning import Meaning, meaning_of

_HIDDEN_ROLES = frozenset(("system", "developer"))
#: A text of this length is known by itself in its conversation; a shorter one only behind the same words of the user.
_TELLING_BYTES: Final = 48
#: So many calls of one answer are keys.
_IDS_LIMIT: Final = 16


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that recognise one answer of a conversation. `place` is None in a conversation without a name.

    `words` only finds whether strangers had a part in such an answer.
    """

    calls: tuple[str, ...]
    prefix: str
    place: str | None
    words: str

    @property
    def own(self) -> tuple[str, ...]:
        """Return the keys that mean one hidden turn only. One that came to mean two means none."""
        return self.calls if self.place is None else (*self.calls, self.place)


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
        calls = tuple(_key(whose, b"call", call_id.encode()) for call_id in meant.ids[:_IDS_LIMIT])
        found[index] = Keys(calls, digest.hexdigest(), place, _key(whose, b"words", behind, told))
    return found


def conversation_key(*, tenant: str, caller: str, conversation: str) -> str:
    """Return the key of a conversation as a whole. It finds whether strangers had a part in it."""
    return _key(orjson.dumps([tenant, caller]), b"conversation", conversation.encode())


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
    return b"" if not meant.calls and len(meant.text) >= _TELLING_BYTES else asked


def _framed(kind: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (kind, len(content), content)


def _key(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(_framed(b"k", part) for part in parts)).hexdigest()
