"""The beginning of an answer, held back while another endpoint or model could still give the answer in its place.

Servers send a chunk that names a role and nothing else at once, before they know whether they can answer. So an answer
begins with its first text, thought or call. Where its client gets it at its end only, all of it is held back.
"""

import asyncio
from typing import Final

from gateway.contracts.exchange import ANSWER_CHARS, PARSED_BYTES, Chunk, Emit, Pause

#: Most empty chunks that are held back: behind so many the answer has begun.
MOST_EMPTY: Final = 64
#: So many chunks are passed on in a turn of the event loop: each goes through all stages.
AT_ONCE: Final = 64


class ChunkBuffer:
    """The chunks of one answer that are held back. `whole`: all of them. `began`: something was passed on."""

    def __init__(self, emit: Emit, *, whole: bool) -> None:
        self.began = False
        self._emit = emit
        self._whole = whole
        self._chunks: list[Chunk] = []
        self._size_bytes = 0  # about

    def take_chunk(self, chunk: Chunk) -> Pause | None:
        """Pass a chunk on or hold it back (`Emit`)."""
        if self.began and not self._chunks:
            return self._emit(chunk)
        self._chunks.append(chunk)
        if self._whole:
            self._size_bytes += len(chunk) if isinstance(chunk, str) else PARSED_BYTES
            return self.release if self._size_bytes > ANSWER_CHARS else None
        if not _has_content(chunk) and len(self._chunks) <= MOST_EMPTY:
            return None
        self.began, chunks, self._chunks = True, self._chunks, []
        pause = None
        for held in chunks:
            pause = self._emit(held) or pause
        return pause

    async def release(self) -> None:
        """Pass on all that is held back, and from then on whatever comes."""
        self.began = True
        while self._chunks:
            chunks = self._chunks[:AT_ONCE]
            for chunk in chunks:
                if (pause := self._emit(chunk)) is not None:
                    await pause()
            del self._chunks[: len(chunks)]
            if self._chunks:
                await asyncio.sleep(0)


def _has_content(chunk: Chunk) -> bool:
    if isinstance(chunk, str):
        return chunk != ""
    deltas = (choice.get("delta") or {} for choice in chunk.get("choices") or ())
    return any(value for delta in deltas for name, value in delta.items() if name != "role")
