"""What is held back of an answer, when it is passed on, and that the event loop is left to others meanwhile."""

import asyncio

import pytest

from gateway.contracts.exchange import ANSWER_CHARS, PARSED_BYTES, Chunk, Pause
from gateway.contracts.storage.store import Json
from gateway.model.buffered_start import AT_ONCE, MOST_EMPTY, ChunkBuffer

ROLE: Json = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


class Client:
    """Takes chunks; a slow one wants a pause behind each."""

    def __init__(self, *, slow: bool = False) -> None:
        self.chunks: list[Chunk] = []
        self.pauses = 0
        self._slow = slow

    def emit(self, chunk: Chunk) -> Pause | None:
        self.chunks.append(chunk)
        return self._pause if self._slow else None

    async def _pause(self) -> None:
        self.pauses += 1


async def test_first_text_releases_all_buffered_chunks_in_order() -> None:
    """In their order; the pause that the client wants is handed on."""
    client = Client(slow=True)
    held = ChunkBuffer(client.emit, whole=False)
    assert held.take_chunk(ROLE) is None and held.take_chunk("") is None and not held.began and not client.chunks
    assert held.take_chunk("Hel") is not None and held.began
    assert held.take_chunk("lo") is not None
    assert client.chunks == [ROLE, "", "Hel", "lo"]


async def test_buffer_of_empty_chunks_is_released_after_a_maximum() -> None:
    """Some servers keep a connection alive by empty chunks."""
    client = Client()
    held = ChunkBuffer(client.emit, whole=False)
    for _ in range(MOST_EMPTY):
        held.take_chunk(ROLE)
    assert not client.chunks
    held.take_chunk(ROLE)
    assert held.began and len(client.chunks) == MOST_EMPTY + 1


@pytest.mark.parametrize("slow", [False, True])
async def test_whole_answer_is_released_at_its_end(slow: bool) -> None:
    """In turns of the event loop, and as fast as its client takes it."""
    client, turns = Client(slow=slow), 0
    held = ChunkBuffer(client.emit, whole=True)
    texts = [str(n) for n in range(10 * AT_ONCE)]
    assert not any(map(held.take_chunk, texts)) and not client.chunks
    releasing = asyncio.ensure_future(held.release())
    while not releasing.done():
        turns += 1
        await asyncio.sleep(0)
    assert client.chunks == texts and turns >= 10 and client.pauses == (len(texts) if slow else 0)


async def test_chunk_buffer_size_is_bounded() -> None:
    """An answer as long as none may be is passed on to whoever refuses it."""
    client = Client()
    held = ChunkBuffer(client.emit, whole=True)
    most = ANSWER_CHARS // PARSED_BYTES
    assert not any(held.take_chunk(ROLE) for _ in range(most))
    pause = held.take_chunk(ROLE)
    assert pause is not None and not client.chunks
    await pause()
    held.take_chunk("more")
    assert len(client.chunks) == most + 2 and client.chunks[-1] == "more"
