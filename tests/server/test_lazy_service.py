"""Parts of a worker that are made when they are first asked for."""

import asyncio
import gc
import threading
from importlib import import_module
from pathlib import Path

import pytest

from gateway.server.lazy_service import FirstUse, import_in_thread


class Part:
    """A part that counts how often it was ended."""

    def __init__(self) -> None:
        self.n_ended = 0

    async def end(self) -> None:
        self.n_ended += 1


class Maker:
    """Makes parts while the gate is open, unless it is told to fail."""

    def __init__(self) -> None:
        self.made: list[Part] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def make(self) -> Part:
        self.begun.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.made.append(Part())
        return self.made[-1]


async def test_lazy_part_is_made_once_for_concurrent_callers() -> None:
    """Also those who ask while it is made."""
    maker = Maker()
    part = FirstUse(maker.make, end=Part.end)
    assert part.part is None
    asking = [asyncio.create_task(part.get()) for _ in range(3)]
    maker.gate.set()
    found = await asyncio.gather(*asking, part.get())
    assert found == maker.made * 4 and part.part is maker.made[0]


async def test_cancelled_waiter_does_not_cancel_creation_for_others() -> None:
    """A client that goes away while its request has the part made."""
    maker = Maker()
    part = FirstUse(maker.make, end=Part.end)
    leaving, staying = (asyncio.create_task(part.get()) for _ in range(2))
    await maker.begun.wait()
    leaving.cancel()
    maker.gate.set()
    assert await staying is maker.made[0] and leaving.cancelled()


async def test_failed_lazy_part_is_made_again() -> None:
    """For the next one who asks."""
    maker = Maker()
    maker.gate.set()
    maker.error = OSError("no place")
    part = FirstUse(maker.make, end=Part.end)
    with pytest.raises(OSError, match="no place"):
        await part.get()
    assert part.part is None
    maker.error = None
    assert await part.get() is part.part is not None


async def test_closed_lazy_part_is_cancelled_or_ended() -> None:
    """Of a part that is made, of one that is being made, and of one that nobody asked for."""
    maker = Maker()
    unused, under_way, made = (FirstUse(maker.make, end=Part.end) for _ in range(3))
    await unused.close()
    asking = asyncio.create_task(under_way.get())
    await maker.begun.wait()
    await under_way.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert maker.made == []
    maker.gate.set()
    part = await made.get()
    await made.close()
    assert part.n_ended == 1


async def test_import_in_thread_runs_off_the_event_loop() -> None:
    """It runs in a thread."""
    assert await import_in_thread(threading.current_thread) is not threading.current_thread()


async def test_lazily_imported_objects_are_frozen_from_garbage_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what it built at its start."""
    (tmp_path / "imported_late.py").write_text("OBJECTS = [[] for _ in range(1000)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    gc.freeze()
    module = await import_in_thread(lambda: import_module("imported_late"))
    assert not {id(one) for one in module.OBJECTS} & {id(one) for one in gc.get_objects()}
