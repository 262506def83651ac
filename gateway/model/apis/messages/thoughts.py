"""The thoughts of a model as `reasoning_details`, and back in the places that they had in its answer.

A thought goes back byte for byte, with its signature, or not at all. Its entry names the answer that it is of (`id`),
its place among the blocks of that answer (`index`), and how much of the answer's text and how many of its calls came
before it, if any (`after_text`, `after_calls`). Blocks of tools that the provider has run go the same way.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.model.apis.placed_blocks import PlacedBlock, build_place, extract_placed

#: What OpenRouter calls this form of thoughts. Others' are not sent: a signature is worth nothing elsewhere.
FORMAT: Final = "anthropic-claude-v1"
TEXT: Final = "reasoning.text"
ENCRYPTED: Final = "reasoning.encrypted"
#: Blocks of the provider's own tools: their calls and results.
PROVIDER_TOOL: Final = "reasoning.provider_tool"


def build_entry(kind: str, fields: Mapping[str, object], *, index: int, answer_id: str, place: tuple[int, int]) -> Json:
    """Return the first piece of an entry. `place` is the text and the calls in front of it."""
    return {"type": kind, **fields, "format": FORMAT, "index": index, "id": answer_id, **build_place(*place)}


def extract_blocks(details: object, known: set[str], claimed: Set[str] = frozenset()) -> Sequence[PlacedBlock]:
    """Return the thoughts of a message as blocks, in their order. See `extract_placed`."""
    return extract_placed(
        details,
        _build_blocks,
        form=FORMAT,
        answer="id",
        proofs=("signature", "data"),
        known=known,
        claimed=claimed,
    )


def _build_blocks(entries: Sequence[Json]) -> Iterator[tuple[Json, Json]]:
    """Yield the block of each entry; none of those that lack what proves it."""
    for entry in entries:
        if (block := _build_block(entry)) is not None:
            yield block, entry


def _build_block(entry: Json) -> Json | None:
    """Return the block of an entry; None: it lacks what proves it."""
    kind = entry.get("type")
    if kind == TEXT and isinstance(signature := entry.get("signature"), str) and signature:
        text = entry.get("text")
        return {"type": "thinking", "thinking": text if isinstance(text, str) else "", "signature": signature}
    if kind == ENCRYPTED and isinstance(data := entry.get("data"), str) and data:
        return {"type": "redacted_thinking", "data": data}
    block = entry.get("block")
    return {**block} if kind == PROVIDER_TOOL and isinstance(block, dict) else None
