"""Replies in tests: made of what they tell, and read at a test's own pace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gateway.contracts.exchange import Chunk, Emit, Reply
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as made


async def nothing_to_release() -> None:
    """A reply that holds nothing."""


def reply_of(*chunks: Chunk, release: Callable[[], Awaitable[None]] = nothing_to_release) -> Reply:
    """A reply that tells just these."""

    async def stream(emit: Emit) -> None:
        for chunk in chunks:
            if (pause := emit(chunk)) is not None:
                await pause()

    return Reply(stream, release)


async def told(reply: Reply) -> list[Chunk]:
    """Everything that a reply tells. It is not released."""
    chunks: list[Chunk] = []
    await reply.stream(chunks.append)
    return chunks


@asynccontextmanager
async def stepping(reply: Reply) -> AsyncIterator[AsyncIterator[Chunk]]:
    """What a reply tells, one by one; it is not let go on before the next one is asked for, and ends with the block."""
    waiting: asyncio.Queue[Chunk] = asyncio.Queue()
    go = asyncio.Semaphore(0)

    async def pause() -> None:
        await go.acquire()

    def emit(chunk: Chunk) -> Callable[[], Awaitable[None]]:
        waiting.put_nowait(chunk)
        return pause

    streaming = asyncio.ensure_future(reply.stream(emit))

    async def steps() -> AsyncIterator[Chunk]:
        while True:
            coming = asyncio.ensure_future(waiting.get())
            await asyncio.wait({coming, streaming}, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                yield coming.result()
                go.release()
            else:
                coming.cancel()
                if waiting.empty():
                    await streaming
                    return

    try:
        yield steps()
    finally:
        streaming.cancel()
        await asyncio.wait({streaming})


def whole(chunk: Chunk) -> Json:
    """A chunk as a client gets it, where it is a piece of text alone."""
    return made.build_delta({"content": chunk}) if isinstance(chunk, str) else chunk
