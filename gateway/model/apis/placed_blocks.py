"""The order of an answer: thoughts, texts and calls as the model wrote them, from the message that keeps them apart.

A thought, or another block that is neither text nor a call, knows how much of the answer's text and how many of its
calls came before it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from gateway.contracts.storage.store import Json

#: The fields of an entry that prove a thought.
_PROOFS: Final = ("signature", "data", "id")


class PlacedBlock(NamedTuple):
    """A block of an answer that is neither text nor a call: so much text and so many calls come before it."""

    block: Json
    after_text: int
    after_calls: int


def build_place(after_text: int, after_calls: int) -> Json:
    """Return the fields that name a place; none for the beginning of an answer."""
    return {name: count for name, count in (("after_text", after_text), ("after_calls", after_calls)) if count}


def place_block(block: Json, entry: Mapping[str, object]) -> PlacedBlock:
    """Return a block in the place that its entry names."""
    return PlacedBlock(block, read_count(entry.get("after_text")), read_count(entry.get("after_calls")))


def read_count(value: object) -> int:
    """Return a count of a client's; 0: it is none."""
    return value if type(value) is int and value > 0 else 0


def extract_placed(
    details: object,
    build: Callable[[Sequence[Json]], Iterator[tuple[Json, Json]]],
    *,
    form: str,
    answer: str,
    proofs: tuple[str, str],
    known: set[str],
    claimed: Set[str],
) -> Sequence[PlacedBlock]:
    """Return the thoughts of a message in their order, as `build` makes them of entries: each block with its entry.

    `form` is the format of the entries, `answer` their field for the answer that they are of, and `proofs` are the
    fields of a block that prove it. A client's message may have the thoughts of all rounds behind it: of several
    answers, those of the last one belong to the message. `known` are the proofs of earlier messages, as those of hidden
    rounds stand in their places already, and `claimed` are those that belong to another one.
    """
    listed = details if isinstance(details, list) else ()
    entries = [one for one in listed if isinstance(one, dict) and one.get("format") == form]
    if not entries:
        return ()
    last = entries[-1].get(answer)
    found: list[tuple[int, PlacedBlock]] = []
    for block, entry in build([one for one in entries if one.get(answer) == last]):
        proof = block.get(proofs[0]) or block.get(proofs[1])
        if isinstance(proof, str):
            if proof in known or proof in claimed:
                continue
            known.add(proof)
        found.append((read_count(entry.get("index")), place_block(block, entry)))
    found.sort(key=lambda one: one[0])
    return [placed for _, placed in found]


def list_claimed_thoughts(messages: Sequence[Json]) -> frozenset[str]:
    """Return what proves the thoughts of all answers with calls.

    A question for a person is shown with the thoughts of its call. They belong to the call, and its message may stand
    behind the question.
    """
    claimed: set[str] = set()
    for message in messages:
        details = message.get("reasoning_details")
        if isinstance(details, list) and message.get("tool_calls"):
            entries = (entry for entry in details if isinstance(entry, dict))
            claimed.update(proof for entry in entries for name in _PROOFS if isinstance(proof := entry.get(name), str))
    return frozenset(claimed)


def order_blocks(texts: Sequence[Json], calls: Sequence[Json], placed: Sequence[PlacedBlock]) -> list[Json]:
    """Return the blocks of an answer in their order. `texts` are blocks of the type `text`, and others between them."""
    if not placed:
        return [*texts, *calls]
    blocks: list[Json] = []
    cutter, call_at = _TextCutter(texts), 0
    for one in placed:
        blocks += cutter.take(None if one.after_calls else one.after_text)  # its text comes before its calls
        blocks += [*calls[call_at : max(call_at, one.after_calls)], one.block]
        call_at = max(call_at, one.after_calls)
    return [*blocks, *cutter.take(None), *calls[call_at:]]


class _TextCutter:
    """The texts of an answer, cut where its thoughts stood."""

    def __init__(self, blocks: Sequence[Json]) -> None:
        self._blocks = blocks
        self._place = self._offset = 0  # the block that comes next, and what of it is taken
        self._at = 0  # so many characters are taken

    def take(self, end: int | None) -> list[Json]:
        """Return the blocks up to so many characters of the answer; None: all that are left."""
        taken: list[Json] = []
        while self._place < len(self._blocks) and (end is None or self._at < end):
            block = self._blocks[self._place]
            if block["type"] != "text":
                taken.append(block)
                self._place += 1
                continue
            text = block["text"]
            cut = len(text) if end is None else min(self._offset + end - self._at, len(text))
            piece = text[self._offset : cut]
            self._at += len(piece)
            self._place, self._offset = (self._place + 1, 0) if cut == len(text) else (self._place, cut)
            if piece.strip():
                taken.append({**block, "text": piece})
        return taken
