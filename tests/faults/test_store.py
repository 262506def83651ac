"""The store fails, is damaged, too old, too new or held by somebody: nothing risky runs, and the rest goes on (N19-N23)."""

import asyncio
import json
import os
import random
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp
import pytest
from crash.effects import ASKS, Json, broken_chain, effects, settings
from crash.talk import CHAT, Stream, approval_asked, asking, post, session_with, told
from running import Stopwatch, until

from gateway.demo.app import start_demo
from gateway.testing.messages import differences
from gateway.testing.peer import connect
from gateway.testing.ports import free_port
from gateway.testing.run import GATEWAY, GatewayProcess
from gateway.testing.upstream import FakeUpstream
from gateway.wire.migrations import MIGRATIONS
from gateway.wire.sqlite_file import BUSY_S
from plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import new, run

#: A call takes this long behind its effect: long enough to take the disk away meanwhile.
CALL_S = 0.5
DISK_BYTES = 1 << 21
#: What passthrough may take while the store hangs, on a machine that others use too; a store that is waited for takes
#: five seconds.
AT_ONCE_S = 1.0
#: Who waits for a lock may have come while others waited for it already.
GIVES_UP_S = 2 * BUSY_S + 1


# A gateway with an upstream for passthrough, a model for the context lane, and a tool whose calls are counted.


@dataclass
class Lane:
    """`folder` has the ledger, `place` is the store."""

    gateway: GatewayProcess
    upstream: FakeUpstream
    session: aiohttp.ClientSession
    folder: Path
    place: Path

    def done(self, run: str) -> int:
        """How often the tool had its effect for this run."""
        return len(effects(self.folder, run))

    async def tool(self, run: str, n: int = 1) -> tuple[int, Json]:
        return await self.chat(f'tool ledger {{"run": "{run}", "n": {n}}}')

    async def chat(self, words: str) -> tuple[int, Json]:
        return await post(self.session, CHAT, asking(words))

    async def decide(self, approval_id: str) -> tuple[int, Json]:
        return await post(self.session, f"/context/approvals/{approval_id}", {"decision": "approve"})

    async def get(self, path: str) -> Json:
        async with self.session.get(path) as response:
            assert response.status == 200, await response.text()
            found: Json = await response.json()
            return found

    async def run(self, run_id: str, *, state: str) -> Json:
        """The run, once it is in this state."""
        async with asyncio.timeout(20):
            while (found := await self.get(f"/context/runs/{run_id}"))["state"] != state:
                await asyncio.sleep(0.02)
        return found

    async def state_of(self, approval_id: str) -> str:
        return str((await self.get(f"/context/approvals/{approval_id}"))["state"])

    async def passes_unchanged(self) -> float:
        """One request past the context lane, whose bytes are the same at the upstream; how long it took."""
        body, watch = b'{"n": 1.0,  "n": 1e5}', Stopwatch()
        message = b"POST /v1/x?a=%%20b HTTP/1.1\r\nHost: gw\r\nX-Odd: y\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        async with connect(self.gateway.host, self.gateway.port) as client:
            await client.send(message)
            response = await client.read_response()
        assert response.payload == b'{"ok":true}'
        assert not differences(message, self.upstream.requests[-1].raw, may_differ=frozenset((b"host",)))
        return watch.s

    def complaints(self) -> list[str]:
        """What the log says of the store that nobody asked for."""
        lines = self.gateway.stderr_text().splitlines()
        return [line for line in lines if "the store failed" in line]


@asynccontextmanager
async def running(folder: Path, *, place: Path | None = None, command: Sequence[str] = GATEWAY) -> AsyncIterator[Lane]:
    place = place or folder / "gateway.db"
    async with FakeUpstream() as upstream:
        demo = await start_demo()
        try:
            config = configured(folder, place=place, upstream=upstream.base_url, model=demo.base_url)
            async with GatewayProcess(json.dumps(config), command=command) as gateway, session_with(gateway) as session:
                yield Lane(gateway, upstream, session, folder, place)
        finally:
            await demo.close()
    assert "Traceback" not in gateway.stderr_text(), gateway.stderr_text()
    assert gateway.returncode == 0


def configured(folder: Path, *, place: Path, upstream: str, model: str) -> Json:
    upstreams = [{"name": "up", "base_url": upstream}, {"name": "demo", "base_url": model}]
    config = settings(folder, upstreams=upstreams, context={"upstream": "demo"}, store=f"sqlite:///{place}")
    config["tools"]["ledger"]["with"]["after_s"] = CALL_S
    return config


# Disks.


class Disk(Protocol):
    """Where a store is."""

    folder: Path

    def fill(self, lane: Lane) -> None: ...

    def free(self, lane: Lane) -> None: ...


@dataclass
class SmallDisk:
    """A file system of two megabytes."""

    folder: Path

    def fill(self, lane: Lane) -> None:
        with self.folder.joinpath("filler").open("wb", buffering=0) as filler:
            while free_bytes(self.folder):
                filler.write(b"x" * min(free_bytes(self.folder), 1 << 16))

    def free(self, lane: Lane) -> None:
        self.folder.joinpath("filler").unlink()


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


@dataclass
class LimitedDisk:
    """A file system on which no file grows any more: an I/O error, as of one that has become read-only."""

    folder: Path

    def fill(self, lane: Lane) -> None:
        longest = lane.place.with_name(f"{lane.place.name}-wal").stat().st_size
        _, hard = resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE, (longest, hard))

    def free(self, lane: Lane) -> None:
        _, hard = resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE, (hard, hard))


@pytest.fixture(params=["full", "failing"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """One that becomes full, and one that fails; where nothing may be mounted, both times one that fails."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if request.param == "full" and not subprocess.run(mount, capture_output=True).returncode:
        try:
            yield SmallDisk(folder)
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    else:
        yield LimitedDisk(folder)


# N19, and what a file system does that is read-only all of a sudden.


async def test_a_full_disk_stops_what_has_effects_and_nothing_else(tmp_path: Path, disk: Disk) -> None:
    """N19: 507 before a tool runs, no decision is made, texts and passthrough go on; with room again all is well."""
    async with running(tmp_path, place=disk.folder / "gateway.db") as lane:
        assert (await lane.tool("before"))[0] == 200
        approval_id = await approval_asked(lane.session, f'tool ledger {{"run": "asked", "n": {ASKS}}}')
        disk.fill(lane)
        for stream in (False, True):
            await refused_before_anything_ran(lane, stream=stream)
        assert (await lane.decide(approval_id))[0] == 507
        assert await lane.state_of(approval_id) == "pending"
        assert await told(lane.session, "long 3")
        await lane.passes_unchanged()
        assert await lane.get("/health/ready") == {"status": "ready"}
        disk.free(lane)
        assert (await lane.tool("after"))[0] == 200
        assert (await lane.decide(approval_id))[0] == 200
        view = await lane.get(f"/context/approvals/{approval_id}")
        await lane.run(view["run_id"], state="completed")
        assert [lane.done(name) for name in ("before", "asked", "refused", "after")] == [1, 1, 0, 1]
        states = [found["state"] for found in (await lane.get("/context/runs"))["data"]]
        assert states == ["completed"] * 3, "of what was refused nothing is there"
        assert broken_chain(lane.place) is None


async def refused_before_anything_ran(lane: Lane, *, stream: bool) -> None:
    """As an answer, and as the error in a stream whose head is out."""
    body = asking('tool ledger {"run": "refused", "n": 1}', stream=stream)
    async with lane.session.post(CHAT, json=body) as response:
        text = await response.text()
    if stream:
        assert response.status == 200 and "[DONE]" not in text
        text = text.strip().rpartition("data: ")[2]
    else:
        assert response.status == 507
    assert json.loads(text)["error"]["code"] == "store_full"
    assert lane.done("refused") == 0


async def test_a_run_under_way_when_the_disk_fills_up_ends_honestly(tmp_path: Path, disk: Disk) -> None:
    """N19: the call that ran counts as one that ran, no further one runs, and nobody is told to try again."""
    async with running(tmp_path, place=disk.folder / "gateway.db") as lane:
        words = 'steps 3 tool ledger {"run": "midway", "n": $step}'
        asked = asyncio.create_task(raw_chat(lane, words))
        await until(lambda: lane.done("midway"), timeout_s=20)
        disk.fill(lane)
        status, headers, answer = await asked
        assert (status, answer["error"]["code"], headers["x-should-retry"]) == (422, "store_full", "false")
        assert lane.done("midway") == 1
        disk.free(lane)
        found = await lane.run(headers["x-request-id"], state="failed")
        assert [step["state"] for step in found["steps"]] == ["finished"]
        assert found["error"]["code"] == "store_full"
        assert lane.done("midway") == 1
        assert broken_chain(lane.place) is None


async def raw_chat(lane: Lane, words: str) -> tuple[int, Mapping[str, str], Json]:
    async with lane.session.post(CHAT, json=asking(words)) as response:
        return response.status, response.headers, await response.json()
