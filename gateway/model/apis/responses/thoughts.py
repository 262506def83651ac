"""The reasoning items of a model as `reasoning_details`, and back in the places that they had in its answer.

An item goes back as it came, with its `encrypted_content`, or not at all. Its entries name the answer that they are of
(`answer`), the item (`id`), its place among the items of that answer (`index`), and how much of the answer's text and
how many of its calls came before it, if any (`after_text`, `after_calls`). The phase of a message, and the calls of
tools that the provider has run, go the same way.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.model.apis.placed_blocks import PlacedBlock, build_place, extract_placed, read_count

#: What OpenRouter calls this form of thoughts. Others' are not sent: what they encrypt is worth nothing elsewhere.
FORMAT: Final = "openai-responses-v1"
SUMMARY: Final = "reasoning.summary"
TEXT: Final = "reasoning.text"
ENCRYPTED: Final = "reasoning.encrypted"
#: A message begins, and has a phase: models write comments and the answer itself as messages of their own.
MESSAGE: Final = "reasoning.message"
#: Items of the provider's own tools.
PROVIDER_TOOL: Final = "reasoning.provider_tool"
#: Between the parts of a summary.
GAP: Final = "\n\n"


def build_entry(kind: str, fields: Mapping[str, object], *, index: int, answer_id: str, place: tuple[int, int]) -> Json:
    """Return the first piece of an entry. `place` is the text and the calls in front of it."""
    about = {"type": kind, **fields, "format": FORMAT, "index": index, "answer": answer_id}
    return {**about, **build_place(*place)}


def extract_items(details: object, known: set[str], claimed: Set[str] = frozenset()) -> Sequence[PlacedBlock]:
    """Return the reasoning items of a message, and the phases of its texts, in their order. See `extract_placed`."""
    return extract_placed(
        details,
        _build_all_items,
        form=FORMAT,
        answer="answer",
        proofs=("encrypted_content", "id"),
        known=known,
        claimed=claimed,
    )


def _build_all_items(entries: Sequence[Json]) -> Iterator[tuple[Json, Json]]:
    """Yield the items of entries, each with the first entry of its own."""
    grouped: dict[tuple[int, str], list[Json]] = {}
    for entry in entries:
        grouped.setdefault((read_count(entry.get("index")), str(entry.get("id"))), []).append(entry)
    for group in grouped.values():
        for item in _build_items(group):
            yield item, group[0]


def _build_items(entries: list[Json]) -> Iterator[Json]:
    """Yield the item of the entries with one index; none of those that lack what the model needs of it."""
    by_kind = {entry.get("type"): entry for entry in entries}
    if (message := by_kind.get(MESSAGE)) is not None:
        yield {"type": MESSAGE, "phase": message.get("phase")}
    block = by_kind.get(PROVIDER_TOOL, {}).get("block")
    if isinstance(block, dict):
        yield block
    encrypted, text = by_kind.get(ENCRYPTED, {}), _get_text(by_kind.get(TEXT), "text")
    data = encrypted.get("data")
    if not (isinstance(data, str) and data) and not text:
        return
    item: Json = {"type": "reasoning"}
    if isinstance(item_id := entries[0].get("id"), str):
        item["id"] = item_id
    summary = _get_text(by_kind.get(SUMMARY), "summary")
    item["summary"] = [{"type": "summary_text", "text": part} for part in _split_summary(summary, encrypted)]
    if text:
        item["content"] = [{"type": "reasoning_text", "text": text}]
    if data:
        item["encrypted_content"] = data
    yield item


def _get_text(entry: Json | None, name: str) -> str:
    text = {} if entry is None else entry.get(name)
    return text if isinstance(text, str) else ""


def _split_summary(summary: str, encrypted: Json) -> Iterator[str]:
    """Yield the parts of a summary, by the lengths that the model's own had."""
    lengths = encrypted.get("parts")
    for length in lengths if isinstance(lengths, list) else ():
        yield summary[: read_count(length)]
        summary = summary[read_count(length) + len(GAP) :]
    if summary:
        yield summary
