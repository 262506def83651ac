"""The store is full, damaged, old, too new or held by somebody: nothing risky runs, and the rest goes on (N19-N23)."""

import asyncio
import json
import os
import random
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp
import pytest
from crash.effects import ASKS, Json, broken_chain, effects, settings
from crash.talk import CHAT, Stream, approval_asked, asking, session_with, told
from functional.through import post
from running import Stopwatch, until

from gateway.contracts import StoreError
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


@dataclass(frozen=True)
class Answered:
    """An answer that is no stream."""

    status: int
    headers: Mapping[str, str]
    json: Json

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def run_id(self) -> str:
        """The run's, which is the request's where this began it."""
        return self.headers["x-request-id"]


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

    async def tool(self, run: str) -> Answered:
        return await self.chat(f'tool ledger {{"run": "{run}", "n": 1}}')

    async def chat(self, words: str) -> Answered:
        return await self._post(CHAT, asking(words))

    async def decide(self, approval_id: str) -> Answered:
        return await self._post(f"/context/approvals/{approval_id}", {"decision": "approve"})

    async def _post(self, path: str, body: Json) -> Answered:
        async with self.session.post(path, json=body) as response:
            return Answered(response.status, response.headers, await response.json())

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
        message = post(body, b"/v1/x?a=%20b", b"X-Odd: y")
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
        approval_id = await approval_asked(lane.session, f'tool ledger {{"run": "asked", "n": {ASKS}}}')
        midway = asyncio.create_task(lane.chat('steps 3 tool ledger {"run": "midway", "n": $step}'))
        await until(lambda: lane.done("midway"), timeout_s=20)
        disk.fill(lane)
        ended_honestly(await midway, lane)
        for stream in (False, True):
            await refused_before_anything_ran(lane, stream=stream)
        assert (await lane.decide(approval_id)).status == 507
        assert await lane.state_of(approval_id) == "pending"
        assert await told(lane.session, "long 3")
        await lane.passes_unchanged()
        assert await lane.get("/health/ready") == {"status": "ready"}
        disk.free(lane)
        await all_is_well(lane, approval_id)
        midway_run = await lane.run((await midway).run_id, state="failed")
        assert (midway_run["error"]["code"], midway_run["steps"][0]["state"]) == ("store_full", "finished")
        assert [lane.done(name) for name in ("asked", "midway", "refused", "after")] == [1, 1, 0, 1]
        states = [found["state"] for found in (await lane.get("/context/runs"))["data"]]
        assert sorted(states) == ["completed", "completed", "failed"], "of what was refused nothing is there"
        assert len(lane.complaints()) <= 2
    assert broken_chain(lane.place) is None


def ended_honestly(answer: Answered, lane: Lane) -> None:
    """The call that ran counts as one that ran, no further one runs, and nobody is told to try again."""
    assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (422, "store_full", "false")
    assert lane.done("midway") == 1


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


async def all_is_well(lane: Lane, approval_id: str) -> None:
    """Without a restart: tools run, and what was asked before can be answered."""
    assert (await lane.tool("after")).status == 200
    assert (await lane.decide(approval_id)).status == 200
    await lane.run((await lane.get(f"/context/approvals/{approval_id}"))["run_id"], state="completed")


# Somebody else holds the store for longer than it is waited for.


async def test_a_store_that_hangs_holds_nobody_up_who_does_not_need_it(tmp_path: Path) -> None:
    """507 within bounds for what must be written, the rest at once; afterwards held streams go on as if nothing was."""
    async with running(tmp_path) as lane:
        approval_id = await approval_asked(lane.session, f'tool ledger {{"run": "asked", "n": {ASKS}}}')
        held = await Stream.ask(lane.session, f'tool ledger {{"run": "held", "n": {ASKS}}}')
        held_id = await held.until_asked()
        with locked(lane.place):
            watch, took_s = Stopwatch(), []
            late = asyncio.gather(lane.tool("late"), lane.decide(approval_id))
            assert await told(lane.session, "long 3") and watch.s < AT_ONCE_S
            while not late.done():
                took_s.append(await lane.passes_unchanged())
                await asyncio.sleep(0.05)
            assert [answer.status for answer in await late] == [507, 507]
            assert watch.s < GIVES_UP_S and max(took_s) < AT_ONCE_S
            assert await lane.state_of(approval_id) == "pending" and lane.done("late") == 0
            assert len(lane.complaints()) <= 1 + watch.s / 2
        assert (await lane.decide(held_id)).status == 200
        assert f"wrote {ASKS}" in await held.rest()
        await all_is_well(lane, approval_id)
        assert [lane.done(name) for name in ("asked", "held", "late", "after")] == [1, 1, 0, 1]
    assert broken_chain(lane.place) is None


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Another process writes, and does not come to an end."""
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


# A start with a store that cannot be used.


#: Root is asked for no permission: this lets go of the right (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH), if it is there.
AS_ANYBODY = """
import ctypes, os, sys
for right in (1, 2):
    ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
ANYBODY = (sys.executable, "-c", AS_ANYBODY, *GATEWAY)


async def refusal(folder: Path, *args: str, command: Sequence[str] = GATEWAY) -> str:
    """What a gateway says, in one line, that does not start with the store in `folder`, which it leaves as it was."""
    config = folder.parent / "gateway.yaml"
    config.write_text(json.dumps({"store": f"sqlite:///{folder / 'gateway.db'}"}))
    before = content(folder)
    port = free_port("127.0.0.1")
    process = await asyncio.create_subprocess_exec(
        *command,
        *("run", "-c", str(config), "--listen", f"127.0.0.1:{port}", *args),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        stdout, stderr = await process.communicate()
    assert (process.returncode, stdout) == (1, b""), stderr
    (line,) = stderr.decode().splitlines()
    assert line.startswith("configuration store: ") and repr(str(folder / "gateway.db")) in line
    with pytest.raises(ConnectionRefusedError):  # nothing is served, passthrough neither
        async with connect("127.0.0.1", port):
            pass
    assert content(folder) == before
    return line


def content(folder: Path) -> dict[str, bytes]:
    """The files of the folder but those that tell nothing: an empty log, and the index of one."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {name: found for name, found in files.items() if name == "gateway.db" or (found and name[-4:] != "-shm")}


@pytest.fixture
async def used(tmp_path: Path) -> Path:
    """The folder of a store that was used."""
    folder = tmp_path / "used"
    folder.mkdir()
    await use(folder / "gateway.db")
    return folder


async def use(place: Path, *, version: int = len(MIGRATIONS)) -> None:
    store = SqliteStore(str(place), migrations=MIGRATIONS[:version])
    await store.open()
    await store.put_prompt("greeting", "Be kind.", now_s=1.0)
    if version == len(MIGRATIONS):
        for number in range(RUNS):
            await store.write(new(run(f"run_{number}", tenant="default", answer=b"x" * 500)))
    await store.close()


RUNS = 150


def cut(place: Path) -> None:
    os.truncate(place, place.stat().st_size // 2)


def cut_with_a_log(place: Path) -> None:
    """The process that had it was killed, and then it was damaged: its log is evidence, too."""
    code = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('UPDATE prompts SET text = 1'); "
    subprocess.run([sys.executable, "-c", code + "c.commit(); os._exit(9)", str(place)], check=False)
    assert place.with_name("gateway.db-wal").stat().st_size
    os.truncate(place, place.stat().st_size // 2)


def empty(place: Path) -> None:
    os.truncate(place, 0)


def folder_instead(place: Path) -> None:
    place.unlink()
    place.mkdir()


def log_alone(place: Path) -> None:
    place.rename(place.with_name("gateway.db-wal"))


def newer(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(cut, "is damaged", id="cut"),
        pytest.param(cut_with_a_log, "is damaged", id="cut-with-a-log"),
        pytest.param(empty, "is empty", id="empty"),
        pytest.param(folder_instead, "is not a file", id="folder"),
        pytest.param(log_alone, "is gone, but its", id="log-alone"),
        pytest.param(newer, "start the newer program", id="newer"),
    ],
)
async def test_a_store_that_is_none_stops_the_start(used: Path, damage: Callable[[Path], None], says: str) -> None:
    """N22, N23: one line with the reason, exit code 1, nothing is served, and everything stays as it was."""
    damage(used / "gateway.db")
    assert says in await refusal(used)


async def test_a_store_that_is_none_stops_all_workers(used: Path) -> None:
    """N22: they are not started again and again."""
    cut(used / "gateway.db")
    assert "is damaged" in await refusal(used, "--workers", "2")


async def test_flipped_bits_stop_the_start_or_cost_a_text(tmp_path: Path, used: Path) -> None:
    """N22: what cannot be seen may start, and then with all that was there; nothing else comes of it than an error."""
    place = used / "gateway.db"
    whole, refused = place.read_bytes(), 0
    for seed in range(40):
        place.write_bytes(flipped(whole, bits=1 + seed * seed % 100, seed=seed))
        store = SqliteStore(str(place))
        try:
            await store.open()
            assert len(await store.runs(tenant="default", limit=RUNS + 1)) > RUNS / 2
            assert await store.prompts()
        except StoreError:
            refused += 1
        await store.close()
    assert refused >= 20
    place.write_bytes(flipped(whole, bits=100, seed=100))
    assert "is damaged" in await refusal(used)


def flipped(whole: bytes, *, bits: int, seed: int) -> bytes:
    content, chosen = bytearray(whole), random.Random(seed)
    for _ in range(bits):
        content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
    return bytes(content)


@pytest.mark.parametrize("case", ["file", "folder", "new"])
async def test_a_store_that_may_not_be_written_stops_the_start(used: Path, case: str) -> None:
    """A file or a folder without write permission, with a store and without one."""
    place = used / "gateway.db"
    if case == "new":
        place.unlink()
    named = place if case == "file" else used
    named.chmod(stat.S_IRUSR | (stat.S_IXUSR if named == used else 0))
    try:
        line = await refusal(used, command=ANYBODY)
    finally:
        used.chmod(0o700)
    assert f"{str(named)!r} cannot be written" in line


async def test_no_room_at_the_start(used: Path) -> None:
    """N19: a start that cannot write says so, and breaks nothing."""
    command = ("/bin/sh", "-c", 'ulimit -f 4; exec "$@"', "sh", *GATEWAY)
    line = await refusal(used, command=command)
    assert " failed: " in line


async def test_a_store_of_the_version_before_is_migrated(tmp_path: Path) -> None:
    """N23: what was in it is served, and the file as it was lies beside it, for nobody else to read."""
    place = tmp_path / "gateway.db"
    await use(place, version=1)
    before = rows(place)
    async with running(tmp_path) as lane:
        assert (await lane.get("/v1/system-prompts/greeting"))["text"] == "Be kind."
        assert (await lane.tool("new")).status == 200
    copy = tmp_path / "gateway.db.v1"
    assert (rows(copy), stat.S_IMODE(copy.stat().st_mode)) == (before, 0o600)


def rows(place: Path) -> list[str]:
    """All that a store has."""
    with closing(sqlite3.connect(place)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        return [f"version {version}", *connection.iterdump()]
