"""The answer of a run so far, and its readers: each gets it from the first chunk, at its own pace.

A waiting reader is fed where the answer grows. This saves one turn of the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.contracts.errors import GatewayError, without_traceback
from gateway.contracts.exchange import ANSWER_CHARS, PARSED_BYTES, Chunk
from gateway.contracts.storage.store import Json

#: How far a client may be behind before the model has to wait.
BEHIND_CHARS = 262_144
#: Memory of a line besides its characters, measured: 58 bytes. That of a parsed chunk is `PARSED_BYTES`.
LINE_BYTES = 60


class Reader(Protocol):
    """A client as a transcript sees it."""

    def take(self, chunks: Sequence[Chunk]) -> bool:
        """Take the next chunks of the answer, and return whether more may come at once."""
        ...

    async def wait_until_caught_up(self) -> None:
        """Wait until more may come."""
        ...


class _Reader:
    """A listener and its position. `full`: it takes no more now; `waits`: it has everything so far."""

    __slots__ = ("at", "chars", "full", "listener", "waits")

    def __init__(self, listener: Reader) -> None:
        self.listener = listener
        self.at = self.chars = 0
        self.full = False
        self.waits: asyncio.Future[None] | None = None


class _Probe:
    """A listener that only waits for the first word of the answer."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard

    def take(self, chunks: Sequence[Chunk]) -> bool:
        """Report the first word (`Reader.take`)."""
        if any(map(_is_answer_chunk, chunks)):
            self._heard()
        return True

    async def wait_until_caught_up(self) -> None:
        """Return at once (`Reader.wait_until_caught_up`)."""


class Transcript:
    """The chunks of one run; `error` is the error that it ended with, once it is `done`."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.error: BaseException | None = None
        self.done = False
        self._chars = self._parsed = 0  # of all chunks, and the number of chunks that are not lines
        self._sure_chars = 0  # up to so many, all clients keep up, and the answer is not too long
        self._settled = 0, 0, 0  # chunks, characters and parsed chunks that `drop_unsettled` leaves
        self._readers: list[_Reader] = []
        self._telling = False
        self._room: asyncio.Event | None = None  # while a task waits in `wait_for_room`
        self._ended = asyncio.Event()
        self._open = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    @property
    def size_bytes(self) -> int:
        """Return about how much memory the answer so far takes.

        Parsed chunks are much larger than their text.
        """
        lines = len(self.chunks) - self._parsed
        return self._chars + self._parsed * PARSED_BYTES + lines * LINE_BYTES

    def open(self) -> None:
        """Record that the answer begins: its model's server reports it, or another step takes time."""
        self._open.set()

    async def wait_until_open(self, *, within_s: float) -> None:
        """Wait until the beginning of the answer is certain, or for `within_s`.

        Raises the error that the answer begins with.
        """
        if not (self._open.is_set() or self.done or any(map(_is_answer_chunk, self.chunks))):
            probe = _Reader(_Probe(self._open.set))
            probe.waits = self.loop.create_future()
            self._add_reader(probe)
            timer = self.loop.call_later(within_s, self._open.set)
            try:
                await self._open.wait()
            finally:
                timer.cancel()
                self._readers.remove(probe)
        if self.done and not any(map(_is_answer_chunk, self.chunks)):
            self.reraise()

    async def read(self, listener: Reader) -> None:
        """Pass the answer to `listener`, from its first chunk on and as it comes. Raises the run's error."""
        reader = _Reader(listener)
        self._add_reader(reader)
        try:
            while True:
                if reader.full:
                    await listener.wait_until_caught_up()
                self._feed(reader)
                if reader.full:
                    continue
                if self.done:
                    break
                reader.waits = self.loop.create_future()
                await reader.waits
        finally:
            self._readers.remove(reader)
            if self._room is not None:
                self._wake_room_waiters(self._room)
        self.reraise()

    async def wait_for_whole(self) -> Sequence[Chunk]:
        """Wait for the whole answer and return it. Raises the run's error."""
        await self._ended.wait()
        self.reraise()
        return self.chunks

    def add(self, chunk: Chunk) -> bool:
        """Add the next chunk. Return whether all clients keep up; otherwise wait for `wait_for_room`.

        Raises GatewayError if the answer is too long.
        """
        self.chunks.append(chunk)
        if isinstance(chunk, str):
            self._chars += len(chunk)
        else:
            self._chars += _count_chars(chunk)
            self._parsed += 1
        if self._readers and not self._telling:
            self._telling = True
            self.loop.call_soon(self._wake_readers)
        return self._chars <= self._sure_chars or self._keeps_up()

    def _add_reader(self, reader: _Reader) -> None:
        self._readers.append(reader)
        self._sure_chars = 0

    def _keeps_up(self) -> bool:
        """Return whether no client is too far behind, and note up to where that is sure. Raises GatewayError."""
        if self._chars > ANSWER_CHARS:
            raise GatewayError(
                "upstream_error",
                f"The answer grew over {ANSWER_CHARS} characters and was stopped; limit it with 'max_tokens'.",
            )
        slowest = min((reader.chars for reader in self._readers), default=self._chars)
        self._sure_chars = min(slowest + BEHIND_CHARS, ANSWER_CHARS)
        return self._chars <= self._sure_chars

    async def wait_for_room(self) -> None:
        """Wait until no client is too far behind."""
        while any(self._chars - reader.chars > BEHIND_CHARS for reader in self._readers):
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def mark_final(self) -> None:
        """Mark all chunks so far as final: `drop_unsettled` keeps them."""
        self._settled = len(self.chunks), self._chars, self._parsed

    def drop_unsettled(self) -> None:
        """Remove the chunks since `mark_final`. Call it only while no client reads."""
        count, self._chars, self._parsed = self._settled
        del self.chunks[count:]

    def end(self, error: BaseException | None = None) -> None:
        """End the answer: no chunk follows."""
        self.done, self.error = True, None if error is None else without_traceback(error)
        self._ended.set()
        self._open.set()
        self._wake_readers()

    def reraise(self) -> None:
        """Raise the error that the run ended with, if there is one."""
        if self.error is not None:
            raise without_traceback(self.error)

    def _feed(self, reader: _Reader) -> None:
        """Pass a reader the chunks that it has not got yet."""
        at, reader.at = reader.at, len(self.chunks)
        reader.chars = self._chars
        if self._room is not None:
            self._wake_room_waiters(self._room)
        reader.full = at < reader.at and not reader.listener.take(self.chunks[at:])

    def _wake_room_waiters(self, room: asyncio.Event) -> None:
        """Wake the tasks that wait in `wait_for_room`: a reader got on, or left."""
        self._room = None
        room.set()

    def _wake_readers(self) -> None:
        """Feed the readers that wait. Each of the others comes for more when it can take it."""
        self._telling = False
        for reader in self._readers:
            waits = reader.waits
            if waits is None or waits.done():
                continue
            try:
                self._feed(reader)
            except Exception as error:
                waits.set_exception(error)
            else:
                if self.done or reader.full:
                    waits.set_result(None)


def _is_answer_chunk(chunk: Chunk) -> bool:
    """Return whether a chunk is of the answer, and no event beside it."""
    return isinstance(chunk, str) or "type" not in chunk.get("context", ())


def _count_chars(chunk: Json) -> int:
    """Return the length of the texts in a chunk, also of an event. Other values of deltas count as they would print."""
    chars = 0
    for choice in chunk.get("choices") or ():
        for said in (choice.get("delta") or {}).values():
            chars += len(said if isinstance(said, str) else repr(said))
    if isinstance(told := chunk.get("context"), dict):
        chars += sum(len(fact) for fact in told.values() if isinstance(fact, str))
    return chars
