"""A disk that takes reads and does not answer them: all that needs no store goes on, in the one process there is."""

import asyncio
from pathlib import Path

from crash.disk import Disk
from gateways import until

from .stored import running


async def test_readiness_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """It is what was known last, and passthrough goes on."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane:
        disk.hang()
        try:
            asked = asyncio.create_task(lane.get("/health/ready"))
            await until(lambda: disk.hung > 0)
            await lane.passes_unchanged()
            assert await asked == {"status": "ready"}
        finally:
            disk.heal()
        assert await lane.get("/health/ready") == {"status": "ready"}


async def test_only_memory_requests_wait_for_a_hanging_disk(tmp_path: Path) -> None:
    """The look for changes of memories is made by a thread; the request is answered once the disk answers."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane:
        assert (await lane.chat("remember that I like tea")).status == 200
        disk.hang()
        try:
            asked = asyncio.create_task(lane.chat("what do I like?"))
            await until(lambda: disk.hung > 0)
            await lane.passes_unchanged()
            assert await lane.get("/health/live") == {"status": "ok"}
            assert not asked.done()
        finally:
            disk.heal()
        assert (await asked).status == 200
