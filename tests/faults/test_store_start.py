"""A store that cannot be used stops the start, and stays as it was; an older one is brought up to date (N22, N23)."""

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from gateways import ended

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.file_check import log_lost_log
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from gateway.testing.ports import free_port
from gateway.testing.raw_connection import connect
from tests.plugins.stores.records import new, run
from tests.support.gateway_process import GATEWAY, GatewayProcess

from .stored import running

#: Runs in a store that was used.
RUNS = 150
#: Root is asked for no permission: this lets go of the right (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH), if it is there.
AS_ANYBODY = """
import ctypes, os, sys
for right in (1, 2):
    ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
#: Another process that opens a store, and waits for a line behind the first of two steps.
BEGINS_LOG = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode = WAL")
print(flush=True)
sys.stdin.readline()
connection.execute("PRAGMA user_version").fetchone()
print(flush=True)
sys.stdin.read()
"""
ANYBODY = (sys.executable, "-c", AS_ANYBODY, *GATEWAY)


async def refusal(folder: Path, *args: str, command: Sequence[str] | None = None) -> str:
    """What a gateway says, in one line, that does not start with the store in `folder`, which it leaves as it was."""
    config = folder.parent / "gateway.yaml"
    config.write_text(json.dumps({"store": f"sqlite:///{folder / 'gateway.db'}"}))
    before = content(folder)
    port = free_port("127.0.0.1")
    arguments = ("run", "-c", str(config), "--listen", f"127.0.0.1:{port}", *args)
    code, stdout, stderr = await (ended(*arguments) if command is None else executed(*command, *arguments))
    assert (code, stdout) == (1, ""), stderr
    (line,) = stderr.splitlines()
    assert line.startswith("configuration store: ") and repr(str(folder / "gateway.db")) in line
    with pytest.raises(ConnectionRefusedError):  # nothing is served, passthrough neither
        async with connect("127.0.0.1", port):
            pass
    assert content(folder) == before
    return line


async def executed(*command: str) -> tuple[int | None, str, str]:
    """As `ended`, with a command that changes what the gateway may do."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        stdout, stderr = await process.communicate()
    return process.returncode, stdout.decode(), stderr.decode()


def content(folder: Path) -> dict[str, bytes]:
    """The files of the folder but those that tell nothing: an empty log, and the index of one."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {name: found for name, found in files.items() if name == "gateway.db" or (found and name[-4:] != "-shm")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that was used, for all tests: each write waits for the disk."""
    folder = tmp_path_factory.mktemp("made")
    asyncio.run(use(folder / "gateway.db"))
    return folder


@pytest.fixture
def used(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path / "used"))


async def use(place: Path, *, version: int = len(MIGRATIONS)) -> None:
    store = SqliteStore(str(place), migrations=MIGRATIONS[:version])
    await store.open()
    if version == len(MIGRATIONS):
        await store.put_prompt("greeting", "Be kind.", tenant="acme", now_s=1.0)
        for number in range(RUNS):
            await store.write(new(run(f"run_{number}", tenant="default", answer=b"x" * 500)))
    await store.close()


def cut(place: Path) -> None:
    os.truncate(place, place.stat().st_size // 2)


def cut_with_a_log(place: Path) -> None:
    """The process that had it was killed, and then it was damaged: its log is evidence, too."""
    code = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode = WAL'); "
    code += "c.execute('UPDATE prompts SET text = 1'); c.commit(); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(place)], check=False)
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
async def test_unusable_store_stops_the_start(used: Path, damage: Callable[[Path], None], says: str) -> None:
    """N22, N23: one line with the reason, exit code 1, nothing is served, and everything stays as it was."""
    damage(used / "gateway.db")
    assert says in await refusal(used)


async def test_unusable_store_stops_all_workers_without_restarts(used: Path) -> None:
    """N22: they are not started again and again."""
    cut(used / "gateway.db")
    assert "is damaged" in await refusal(used, "--workers", "2")


async def test_corrupted_store_stops_the_start_or_keeps_its_data(tmp_path: Path, used: Path) -> None:
    """N22: what cannot be seen may start, and then with all that was there; nothing else comes of it than an error."""
    place = used / "gateway.db"
    whole, refused = place.read_bytes(), 0
    for seed in range(80, 120):
        place.write_bytes(flipped(whole, bits=1 + seed * seed % 100, seed=seed))
        store = SqliteStore(str(place))
        try:
            await store.open()
            assert len((await store.list_runs(tenant="default", limit=RUNS + 1)).runs) > RUNS / 2
            assert await store.list_prompts(tenant="acme", limit=99)
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


async def test_full_disk_stops_the_start_with_an_error(used: Path) -> None:
    """N19: a start that cannot write says so, and breaks nothing."""
    command = ("/bin/sh", "-c", 'ulimit -f 4; exec "$@"', "sh", *GATEWAY)
    line = await refusal(used, command=command)
    assert " failed: " in line


async def test_a_store_of_the_version_before_is_migrated(tmp_path: Path) -> None:
    """N23: what was in it is served, and the file as it was lies beside it, for nobody else to read."""
    place = tmp_path / "gateway.db"
    await use(place, version=1)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("INSERT INTO prompts VALUES ('greeting', 'Be kind.', 1, 1.0)")
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # as older versions leave it, also at an end in order
    before = rows(place)
    async with running(tmp_path) as lane:
        assert "was not closed in order" not in lane.gateway.read_stderr()
        assert (await lane.get("/v1/system-prompts/greeting"))["text"] == "Be kind."
        assert (await lane.tool("new")).status == 200
    copy = tmp_path / "gateway.db.v1"
    assert (rows(copy), stat.S_IMODE(copy.stat().st_mode)) == (before, 0o600)


def rows(place: Path) -> list[str]:
    """All that a store has."""
    with closing(sqlite3.connect(place)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        return [f"version {version}", *connection.iterdump()]


async def test_lost_write_ahead_log_after_a_kill_is_reported(tmp_path: Path) -> None:
    """At the next start, with what may be missing; not where the log is there, nor after an end in order."""
    store = tmp_path / "gateway.db"
    told = f"the store {str(store)!r} was not closed in order, and its log {str(store) + '-wal'!r} is not there"
    async with GatewayProcess(json.dumps({"store": f"sqlite:///{store}"})) as gateway:

        async def told_after(number: signal.Signals, *, loses_log: bool) -> bool:
            gateway.signal(number)
            await gateway.wait()
            if loses_log:
                store.with_name("gateway.db-wal").unlink()
            before = len(gateway.read_stderr())
            await gateway.start()
            return told in gateway.read_stderr()[before:]

        assert not await told_after(signal.SIGKILL, loses_log=False)
        assert await told_after(signal.SIGKILL, loses_log=True)
        assert not await told_after(signal.SIGTERM, loses_log=False)


async def test_only_a_copy_without_its_log_is_reported_at_start(tmp_path: Path) -> None:
    """While a gateway uses it the file lacks what its log has."""
    store, copy, backup = (tmp_path / name for name in ("gateway.db", "copy.db", "backup.db"))
    async with GatewayProcess(json.dumps({"store": f"sqlite:///{store}"})) as gateway:
        shutil.copyfile(store, copy)
        config = str(gateway.folder / "gateway.yaml")
        code, _, errors = await ended("backup", "-c", config, str(backup))
        assert code == 0, errors
    for place, is_told in ((copy, True), (backup, False), (store, False)):
        async with GatewayProcess(json.dumps({"store": f"sqlite:///{place}"})) as gateway:
            assert ("was not closed in order" in gateway.read_stderr()) is is_told


async def test_store_copy_beside_a_foreign_wal_stops_the_start(used: Path, tmp_path: Path) -> None:
    """SQLite would play the log into the copy. Without the log the copy starts."""
    place, log = used / "gateway.db", used / "gateway.db-wal"
    backup, kept = place.read_bytes(), tmp_path / "log"
    store = SqliteStore(str(place))
    await store.open()
    await store.put_prompt("greeting", "Be short.", tenant="acme", now_s=2.0)
    shutil.copyfile(log, kept)
    await store.close()
    place.write_bytes(backup)
    shutil.copyfile(kept, log)
    assert "beside it is of another state: move the log" in await refusal(used)
    log.unlink()
    async with GatewayProcess(json.dumps({"store": f"sqlite:///{place}"})):
        pass


async def test_wal_created_by_another_process_is_not_reported_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Several workers open a store at once: between two steps of the first, the file looks like one without its log."""
    place = str(tmp_path / "gateway.db")
    first = SqliteStore(place)
    await first.open()
    await first.close()
    with subprocess.Popen([sys.executable, "-c", BEGINS_LOG, place], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()

        def go_on(_: float) -> None:
            other.stdin.write("\n")
            other.stdin.flush()
            other.stdout.readline()

        log_lost_log(place, pause=go_on)
        store = SqliteStore(place)
        await store.open()
        await store.close()
        other.stdin.close()
    assert caplog.text == ""
