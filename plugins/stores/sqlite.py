"""The store in one SQLite file: a thread that writes, a thread that reads, and the methods of `Store` on top of them.

1. A write that was queued is carried out, whether or not its caller waits on; a caller hears of it after the commit.
2. Writes that wait together are one transaction, and one fsync. One that fails takes no other with it.
3. A file that is damaged, empty, foreign or newer stops the start, and is never replaced.
4. A new file appears whole, with its tables, or not at all.
"""

import asyncio
import json
import os
import queue
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.contracts import Host, Json, Memory, Plugin, StoredPrompt, StoredRun, StoreError
from gateway.wire import migrations as sql
from gateway.wire.migrations import APPLICATION_ID, MIGRATIONS, Migration

PREFIX, IN_MEMORY = "sqlite:///", ":memory:"
BUSY_S = 5.0  # how long another process may hold the file
BATCH = 256  # writes in one transaction

T = TypeVar("T")
Settle: TypeAlias = Callable[[], None]


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        default="sqlite:///./gateway.db", description="The file: `sqlite:///FILE` or `sqlite:///:memory:`."
    )

    @field_validator("url")
    @classmethod
    def _names_a_file(cls, url: str) -> str:
        if not url.startswith(PREFIX) or url == PREFIX or "\0" in url:
            raise ValueError("a SQLite store is named sqlite:///FILE, for example sqlite:///./gateway.db")
        return url


class SqliteStore:
    """`gateway.contracts.Store` on one file, or in memory; `open` comes first."""

    def __init__(self, place: str, *, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.place = place
        self._migrations = migrations
        self._writer: _Thread | None = None
        self._reader: _Thread | None = None

    def __repr__(self) -> str:
        return f"SqliteStore({self.place!r})"

    async def open(self) -> None:
        """Raises StoreError if the file cannot be used; `close` is right after that, too."""
        connect = partial(_open, self.place, migrations=self._migrations)
        self._writer = _Thread(connect, place=self.place, begin="BEGIN IMMEDIATE", batch=BATCH)
        await self._writer.open()
        if self.place == IN_MEMORY:  # another connection would see another database
            self._reader = self._writer
            return
        self._reader = _Thread(partial(_connect, self.place, mode="ro"), place=self.place, begin="BEGIN", batch=1)
        await self._reader.open()

    async def close(self) -> None:
        for thread in (self._reader, self._writer):
            if thread is not None:
                await thread.close()

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._thread(self._reader).do(work)

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """`durable`: it outlives a power cut, too, and not only the end of the process."""
        return await self._thread(self._writer).do(work, durable=durable)

    def _thread(self, thread: "_Thread | None") -> "_Thread":
        if thread is None:
            raise StoreError(f"the store {self.place!r} is not open")
        return thread

    async def prompts(self) -> Sequence[StoredPrompt]:
        return await self._read(lambda c: [StoredPrompt(*row) for row in c.execute(sql.PROMPTS)])

    async def prompt(self, prompt_id: str) -> StoredPrompt | None:
        rows = await self._read(lambda c: c.execute(sql.PROMPT, (prompt_id,)).fetchall())
        return StoredPrompt(*rows[0]) if rows else None

    async def put_prompt(self, prompt_id: str, text: str, *, now_s: float) -> StoredPrompt:
        def put(connection: sqlite3.Connection) -> StoredPrompt:
            rows = connection.execute(sql.PUT_PROMPT, (prompt_id, text, now_s)).fetchall()
            connection.execute(sql.NEXT_GENERATION)
            return StoredPrompt(*rows[0])

        return await self._write(put)

    async def delete_prompt(self, prompt_id: str) -> bool:
        def delete(connection: sqlite3.Connection) -> bool:
            deleted = connection.execute(sql.DELETE_PROMPT, (prompt_id,)).rowcount > 0
            if deleted:
                connection.execute(sql.NEXT_GENERATION)
            return deleted

        return await self._write(delete)

    async def generation(self) -> int:
        return await self._read(lambda c: int(c.execute(sql.GENERATION).fetchone()[0]))

    async def remember(self, memory: Memory, *, limit: int) -> None:
        def put(connection: sqlite3.Connection) -> None:
            connection.execute(sql.PUT_MEMORY, astuple(memory))
            connection.execute(sql.DROP_OLD_MEMORIES, (memory.tenant, memory.caller, max(limit, 0)))

        await self._write(put)

    async def memories(self, *, tenant: str, caller: str, conversation: str | None) -> Sequence[Memory]:
        whose = (tenant, caller, conversation)
        return await self._read(lambda c: [Memory(*row) for row in c.execute(sql.MEMORIES, whose)])

    async def forget(self, memory_ids: Sequence[str], *, tenant: str, caller: str) -> int:
        which = (tenant, caller, json.dumps(list(memory_ids)))
        return await self._write(lambda c: c.execute(sql.FORGET, which).rowcount)

    async def put_hidden(self, prefix: str, messages: Sequence[Json], *, tenant: str, now_s: float) -> None:
        await self._write(lambda c: c.execute(sql.PUT_HIDDEN, (tenant, prefix, json.dumps(messages), now_s)).rowcount)

    async def hidden(self, prefixes: Sequence[str], *, tenant: str) -> Mapping[str, Sequence[Json]]:
        which = (tenant, json.dumps(list(prefixes)))
        return await self._read(lambda c: {prefix: json.loads(text) for prefix, text in c.execute(sql.HIDDEN, which)})

    async def put_run(self, run: StoredRun) -> None:
        await self._write(lambda c: c.execute(sql.PUT_RUN, astuple(run)).rowcount, durable=True)

    async def run(self, run_id: str, *, tenant: str) -> StoredRun | None:
        return next(iter(await self._runs(sql.RUN, tenant, run_id)), None)

    async def runs_like(self, fingerprint: str, *, tenant: str, since_s: float) -> Sequence[StoredRun]:
        """Those that were touched since then, however long ago they began."""
        return await self._runs(sql.RUNS_LIKE, tenant, fingerprint, since_s)

    async def runs_with_key(self, idempotency_key: str, *, tenant: str, caller: str) -> Sequence[StoredRun]:
        return await self._runs(sql.RUNS_WITH_KEY, tenant, caller, idempotency_key)

    async def _runs(self, statement: str, *values: str | float) -> Sequence[StoredRun]:
        runs = await self._read(lambda c: [StoredRun(*row) for row in c.execute(statement, values)])
        return [replace(run, effects=bool(run.effects)) for run in runs]

    async def prune(self, *, before_s: float) -> int:
        return await self._write(lambda c: sum(c.execute(statement, (before_s,)).rowcount for statement in sql.PRUNE))


# The thread that owns a connection.


@dataclass(frozen=True, slots=True)
class _Job:
    """`run` does the work and returns what tells the caller; `fail` tells it that nothing happened."""

    run: Callable[[sqlite3.Connection], Settle]
    fail: Callable[[StoreError], None]
    durable: bool


class _Thread:
    """One connection and the thread that owns it, from opening to closing; callers wait on the event loop."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, place: str, begin: str, batch: int) -> None:
        self._connect = connect
        self._place = place
        self._begin = begin
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        self._synchronous = ""

    async def open(self) -> None:
        # A daemon: a process that dies without closing its store must not hang on this thread.
        threading.Thread(target=self._live, name="store", daemon=True).start()
        await asyncio.shield(self._opened)

    async def do(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """`work` may be repeated, after a rollback."""
        if self._closing:
            raise StoreError(f"the store {self._place!r} is closed")
        answer: asyncio.Future[T] = self._loop.create_future()

        def run(connection: sqlite3.Connection) -> Settle:
            return partial(_resolve, answer, work(connection))

        self._jobs.put(_Job(run, partial(_fail, answer), durable))
        return await answer

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._jobs.put(None)
        await asyncio.shield(self._ended)

    def _live(self) -> None:
        try:
            connection = self._connect()
        except (sqlite3.Error, OSError, StoreError) as error:
            self._closing = True
            self._tell(partial(_fail, self._opened, self._error(error)))
        else:
            with closing(connection):
                self._tell(partial(_resolve, self._opened, None))
                more = True
                while more and (job := self._jobs.get()) is not None:
                    more, batch = self._join(job)
                    self._attempt(connection, batch)
        self._tell(partial(_resolve, self._ended, None))

    def _join(self, job: _Job) -> tuple[bool, list[_Job]]:
        """The jobs that wait already, and whether more can come."""
        batch = [job]
        with suppress(queue.Empty):
            while len(batch) < self._batch:
                if (following := self._jobs.get_nowait()) is None:
                    return False, batch
                batch.append(following)
        return True, batch

    def _attempt(self, connection: sqlite3.Connection, batch: Sequence[_Job]) -> None:
        synchronous = "FULL" if any(job.durable for job in batch) else "NORMAL"
        try:
            if synchronous != self._synchronous:
                connection.execute(f"PRAGMA synchronous = {synchronous}")
                self._synchronous = synchronous
            connection.execute(self._begin)
            settled = [job.run(connection) for job in batch]
            connection.execute("COMMIT")
        except Exception as error:  # whatever a job raises must reach its caller, and not end the thread
            with suppress(sqlite3.Error):  # some failures have rolled back already
                connection.execute("ROLLBACK")
            if len(batch) > 1:
                for job in batch:
                    self._attempt(connection, [job])
            else:
                self._tell(partial(batch[0].fail, self._error(error)))
        else:
            self._tell(*settled)

    def _tell(self, *settled: Settle) -> None:
        with suppress(RuntimeError):  # the event loop is gone, and with it everybody who waited
            self._loop.call_soon_threadsafe(_all, settled)

    def _error(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else StoreError(f"the store {self._place!r} failed: {error}")


def _all(settled: Sequence[Settle]) -> None:
    for settle in settled:
        settle()


def _resolve(answer: "asyncio.Future[T]", result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[T]", error: StoreError) -> None:
    if not answer.done():
        answer.set_exception(error)


# The file.


def _open(place: str, *, migrations: Sequence[Migration]) -> sqlite3.Connection:
    """The writing connection to a file that is whole and of this version: made or migrated where needed."""
    if place == IN_MEMORY:
        connection = sqlite3.connect(IN_MEMORY, isolation_level=None)
        _migrate(connection, place, migrations=migrations)
        return connection
    if not os.path.lexists(place):
        _create(place, migrations=migrations)
    connection = _connect(place, mode="rw")
    try:
        _check(connection, place, migrations=migrations)
        _migrate(connection, place, migrations=migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(place: str, *, mode: str) -> sqlite3.Connection:
    if not Path(place).is_file():
        raise StoreError(f"the store {place!r} is not a file: move it away, or change `store`")
    uri = f"{Path(place).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _create(place: str, *, migrations: Sequence[Migration]) -> None:
    folder, log = Path(place).absolute().parent, f"{place}-wal"
    if not folder.is_dir():
        raise StoreError(f"the store {place!r} has no folder: create {str(folder)!r}, or change `store`")
    if Path(log).exists() and not Path(place).exists():
        raise StoreError(f"the store {place!r} is gone, but its {log!r} is there: put both back, or move that away")
    with _draft(place) as draft:
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            _migrate(connection, place, migrations=migrations)
        with suppress(FileExistsError):  # another process was faster
            os.link(draft, place)


@contextmanager
def _draft(place: str) -> Iterator[str]:
    """A file of mode 0600 beside the store, gone afterwards unless it was renamed."""
    descriptor, draft = tempfile.mkstemp(prefix=f"{Path(place).name}.new-", dir=Path(place).absolute().parent)
    os.close(descriptor)
    try:
        yield draft
    finally:
        Path(draft).unlink(missing_ok=True)


def _check(connection: sqlite3.Connection, place: str, *, migrations: Sequence[Migration]) -> None:
    remedy = "put a copy back, or move it away to begin anew"
    if Path(place).stat().st_size == 0:
        raise StoreError(f"the store {place!r} is empty, which no store is: {remedy}")
    try:
        application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        raise  # locked, unreadable: says nothing about the content
    except sqlite3.DatabaseError as error:
        application, version, found = 0, 0, str(error)
    if found != "ok":
        raise StoreError(f"the store {place!r} is damaged ({found}): {remedy}")
    if application != APPLICATION_ID:
        raise StoreError(f"{place!r} is a database of another program: name another file under `store`")
    if version > len(migrations):
        raise StoreError(
            f"the store {place!r} has version {version}, but this program knows only {len(migrations)}: "
            "start the newer program, or put back a copy from before it"
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _migrate(connection: sqlite3.Connection, place: str, *, migrations: Sequence[Migration]) -> None:
    """All steps or none, and never without a copy of a store that is in use."""
    connection.execute("BEGIN IMMEDIATE")
    version = _pragma(connection, "user_version")
    if version < len(migrations):
        if version:
            _copy(place, f"{place}.v{version}")
        for migration in migrations[version:]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")  # a file that has it already needs no lock for this


def _copy(place: str, name: str) -> None:
    with _draft(place) as draft:
        with closing(_connect(place, mode="ro")) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
        Path(draft).replace(name)


def build(config: Config, host: Host) -> SqliteStore:  # noqa: ARG001 - every plugin is built with a host
    return SqliteStore(config.url.removeprefix(PREFIX))


PLUGIN = Plugin(Config, build)
