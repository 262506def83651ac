"""The thread of a connection: what waits together is one transaction, and each caller hears of its own work."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from gateway.plugin import ConflictError, StoreError
from gateway.plugins.stores.sqlite.connection_thread import SharedLooks, SqliteThread
from gateway.plugins.stores.sqlite.file import SqliteError
from gateway.plugins.stores.sqlite.transactions import Lasts, PlainTransactions

Open = Callable[..., Awaitable[SqliteThread]]


def connect(place: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(place, isolation_level=None, timeout=0.05)
    connection.execute("CREATE TABLE IF NOT EXISTS words (word TEXT NOT NULL)")
    return connection


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "words.db"


@pytest.fixture
async def thread(place: Path) -> AsyncIterator[SqliteThread]:
    thread = of(partial(connect, place))
    await thread.open()
    yield thread
    await thread.close()


def of(connecting: Callable[[], sqlite3.Connection]) -> SqliteThread:
    return SqliteThread(lambda: PlainTransactions(connecting(), begin="BEGIN IMMEDIATE"), place="words", batch=10)


def put(connection: sqlite3.Connection, *, word: str | None, refuse: bool = False) -> int:
    """How many there are with this one."""
    connection.execute("INSERT INTO words VALUES (?)", (word,))
    if refuse:
        raise ConflictError(word)
    return int(connection.execute("SELECT count(*) FROM words").fetchone()[0])


def words(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT word FROM words ORDER BY rowid")]


async def test_queued_jobs_run_in_order(thread: SqliteThread) -> None:
    """Each sees what was done before it, in more batches than one."""
    assert await asyncio.gather(*(thread.queue_work(partial(put, word=str(n))) for n in range(25))) == list(
        range(1, 26)
    )


async def test_refused_job_is_rolled_back_alone(thread: SqliteThread) -> None:
    """Its caller gets the very refusal; the others of the batch are there, and were done once."""
    jobs = (thread.queue_work(partial(put, word=str(n), refuse=n % 3 == 1), lasts=Lasts.FOR_SURE) for n in range(9))
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [str(result) if isinstance(result, ConflictError) else result for result in results] == [
        *(1, "1", 2, 3, "4", 4, 5, "7", 6)
    ]
    assert await thread.queue_work(words) == ["0", "2", "3", "5", "6", "8"]
    with pytest.raises(ConflictError):
        await thread.queue_work(partial(put, word="alone", refuse=True))
    assert len(await thread.queue_work(words)) == 6


async def test_failed_job_is_rolled_back_alone(thread: SqliteThread) -> None:
    """Its caller gets a failure that names the store; also beside a refusal."""
    jobs = (thread.queue_work(partial(put, word=None if n == 4 else str(n), refuse=n == 2)) for n in range(6))
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(result) for result in results] == [int, int, ConflictError, int, StoreError, int]
    assert "'words' failed: NOT NULL" in str(results[4])
    assert await thread.queue_work(words) == ["0", "1", "3", "5"]


async def test_locked_file_fails_all_waiting_jobs_in_batches(place: Path) -> None:
    """Not one after the other, each after a try of its own: one for a batch of ten at most; afterwards all is well."""
    tries: list[str] = []

    def traced() -> sqlite3.Connection:
        connection = connect(place)
        connection.set_trace_callback(lambda sql: tries.append(sql) if sql.startswith("BEGIN") else None)
        return connection

    thread = of(traced)
    await thread.open()
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        jobs = (thread.queue_work(partial(put, word=str(n))) for n in range(100))
        results = await asyncio.gather(*jobs, return_exceptions=True)
        other.execute("COMMIT")
    assert all(isinstance(result, StoreError) and "locked" in str(result) for result in results)
    assert len(tries) <= 100 / 10 + 1  # the first batch may be smaller: nobody waited yet
    assert await thread.queue_work(partial(put, word="after")) == 1
    await thread.close()


async def test_cancelled_caller_does_not_cancel_its_job(thread: SqliteThread) -> None:
    """It was queued, so it is done."""
    task = asyncio.ensure_future(thread.queue_work(partial(put, word="left")))
    await asyncio.sleep(0)
    task.cancel()
    assert await thread.queue_work(words) == ["left"]


async def test_closing_finishes_queued_jobs_and_refuses_later_ones(thread: SqliteThread) -> None:
    """Twice is once."""
    task = asyncio.ensure_future(thread.queue_work(partial(put, word="last")))
    await asyncio.sleep(0)
    await asyncio.gather(thread.close(), thread.close())
    assert await task == 1
    with pytest.raises(StoreError, match="'words' is closed"):
        await thread.queue_work(words)


async def test_failed_connection_raises_its_reason_and_closes_the_thread(place: Path) -> None:
    """In its own words if it has some; the thread is closed then, and can be closed."""

    def refuse() -> sqlite3.Connection:
        raise SqliteError("move it away")

    for connecting, text in ((refuse, "^move it away$"), (partial(connect, place / "no"), "'words' failed: unable")):
        thread = of(connecting)
        with pytest.raises(StoreError, match=text):
            await thread.open()
        with pytest.raises(StoreError, match="closed"):
            await thread.queue_work(words)
        await thread.close()


class Looks:
    """Looks at the words of a thread, one after the other. `go` lets each of them go on once it has `begun`.

    The answer to a question is the question and the words.
    """

    def __init__(self, thread: SqliteThread) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.n_looks = 0
        self.shared = SharedLooks(thread.queue_work, self._look)

    def _look(self, connection: sqlite3.Connection, asked: Sequence[int]) -> list[tuple[int, list[str]]]:
        self.n_looks += 1
        found = words(connection)
        self.begun.release()
        assert self.go.acquire(timeout=9)
        return [(question, found) for question in asked]

    async def asked(self, question: int) -> "asyncio.Task[tuple[int, list[str]]]":
        """Return a caller that has asked."""
        caller = asyncio.create_task(self.shared.read_shared(question))
        await asyncio.sleep(0)
        return caller

    async def one_under_way(self) -> "asyncio.Task[tuple[int, list[str]]]":
        """Return the caller of a look that has begun."""
        caller = await self.asked(0)
        assert await asyncio.to_thread(self.begun.acquire, timeout=9)
        return caller


async def test_callers_before_a_read_starts_share_it(thread: SqliteThread) -> None:
    """One that has begun may be older than the question, so who asks then gets the next one. Each gets its answer."""
    looks = Looks(thread)
    early = await looks.one_under_way()
    written = thread.queue_work(partial(put, word="new"))
    late = [await looks.asked(number) for number in range(1, 6)]
    looks.go.release(2)
    assert await early == (0, [])
    assert await asyncio.gather(*late) == [(number, ["new"]) for number in range(1, 6)]
    assert await written == 1 and looks.n_looks == 2


async def test_cancelled_caller_does_not_cancel_a_shared_read(thread: SqliteThread) -> None:
    looks = Looks(thread)
    await looks.one_under_way()
    callers = [await looks.asked(number) for number in (1, 2, 3)]
    callers[0].cancel()
    looks.go.release(2)
    assert await asyncio.gather(*callers[1:]) == [(2, []), (3, [])]
    assert callers[0].cancelled() and looks.n_looks == 2


async def test_failed_shared_read_is_not_reused_by_later_callers(thread: SqliteThread, place: Path) -> None:
    """Such as one that could not begin, as another process holds the file."""
    looks = Looks(thread)
    looks.go.release()
    with closing(connect(place)) as other:
        other.execute("BEGIN EXCLUSIVE")
        callers = [await looks.asked(number) for number in (1, 2)]
        failures = await asyncio.gather(*callers, return_exceptions=True)
        assert [str(failure) for failure in failures] == ["the store 'words' failed: database is locked"] * 2
        other.execute("ROLLBACK")
    assert await (await looks.asked(3)) == (3, []) and looks.n_looks == 1


async def test_sequential_reads_are_not_shared(thread: SqliteThread) -> None:
    """Nothing of a look that is over is kept."""
    looks = Looks(thread)
    looks.go.release(3)
    for number in range(3):
        assert await looks.shared.read_shared(number) == (number, [str(before) for before in range(number)])
        await thread.queue_work(partial(put, word=str(number)))
    assert looks.n_looks == 3


async def test_read_that_cannot_be_queued_fails_for_each_caller(thread: SqliteThread) -> None:
    """Who asks a store that is closed hears so, each time."""
    looks = Looks(thread)
    await thread.close()
    for number in range(2):
        with pytest.raises(StoreError, match="'words' is closed"):
            await looks.shared.read_shared(number)
