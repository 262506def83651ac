"""The chunks that the gateway makes itself: one choice each, as a client's SDK reads them."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.chat.reply import CompletionFacts


@pytest.mark.parametrize(
    ("chunk", "piece", "told"),
    [
        (chunks.build_delta({"reasoning_content": "Hm"}), {"reasoning_content": "Hm"}, None),
        (chunks.build_event({"type": "run.started"}), {}, {"type": "run.started"}),
        (chunks.build_finish("stop"), {}, None),
    ],
)
def test_completion_facts_split_each_chunk_into_delta_and_event(chunk: Json, piece: Json, told: Json | None) -> None:
    """Its delta and its event; only the last one says why the answer ends."""
    turn = CompletionFacts("id", "m", 0)
    assert turn.take_chunk(chunk) == (piece, told)
    assert turn.finish == ("stop" if chunk == chunks.build_finish("stop") else None)
