"""The thread that owns a SQLite connection, from opening to closing. Its callers wait on the event loop.

1. Queued work is carried out, even if its caller stops waiting. A caller gets the result after the commit.
2. Work that waits together is one transaction, and one fsync. Work that fails or is refused undoes no other.
3. Failed work is undone for good, or its caller gets an error that marks the outcome as unknown.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from gateway.plugin import ConflictError, StoreError, UncertainError

from .file import SqliteError
from .rows import Rows
from .transactions import Lasts, PlainTransactions, SqliteUncertainError

log = logging.getLogger("gateway")

T = TypeVar("T")
FactT = TypeVar("FactT")
AskedT = TypeVar("AskedT")
Values: TypeAlias = Sequence[str | float | None]
Settle: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Job:
    """One piece of work. `run` does it and returns the callback for its caller.

    `fail` passes the error to the caller.
    """

    run: Callable[[sqlite3.Connection], Settle]
    fail: Callable[[Exception], None]
    lasts: Lasts


class SqliteThread:
    """One connection and its thread.

    Work that raises ConflictError is undone alone, and its caller gets just that. Any other error is a StoreError, if
    nothing has happened, or an UncertainError, if a crash may bring it back.
    """

    def __init__(self, connect: Callable[[], PlainTransactions], *, place: str, batch: int) -> None:
        self._connect = connect
        self._place = place
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._closing = False

    async def open(self) -> None:
        # A daemon: a process that dies without closing its store must not hang on this thread.
        threading.Thread(target=self._serve_jobs, name="store", daemon=True).start()
        await asyncio.shield(self._opened)

    def queue_work(
        self, work: Callable[[sqlite3.Connection], T], *, lasts: Lasts = Lasts.AS_LONG_AS_THE_SYSTEM
    ) -> "asyncio.Future[T]":
        """Queue `work` and return the future of its result. It may be repeated, after a rollback.

        Raises StoreError once the store is closed.
        """
        if self._closing:
            raise StoreError(f"the store {self._place!r} is closed")
        answer: asyncio.Future[T] = self._loop.create_future()

        def run(connection: sqlite3.Connection) -> Settle:
            return partial(_resolve, answer, work(connection))

        self._jobs.put(_Job(run, partial(_fail, answer), lasts))
        return answer

    async def close(self) -> None:
        """Close the connection. Work that was queued before is carried out. Idempotent."""
        if not self._closing:
            self._closing = True
            self._jobs.put(None)
        await asyncio.shield(self._ended)

    def _serve_jobs(self) -> None:
        try:
            transactions = self._connect()
        except Exception as error:  # a damaged file can fail in any way, and who opens the store must hear of it
            self._closing = True
            self._settle_all(partial(_fail, self._opened, self._build_error(error)))
        else:
            try:
                with closing(transactions):
                    self._settle_all(partial(_resolve, self._opened, None))
                    more = True
                    while more and (job := self._jobs.get()) is not None:
                        more, batch = self._take_waiting_jobs(job)
                        self._run_jobs_together(transactions, batch)
                        transactions.do_idle_work()
            except OSError as error:  # of the end: what was committed stays, and the next start plays the log
                log.error("the store %r was not closed in order: %s", self._place, error)
        self._settle_all(partial(_resolve, self._ended, None))

    def _take_waiting_jobs(self, job: _Job) -> tuple[bool, list[_Job]]:
        """Return the jobs that wait already, and whether more can come."""
        batch = [job]
        with suppress(queue.Empty):
            while len(batch) < self._batch:
                if (following := self._jobs.get_nowait()) is None:
                    return False, batch
                batch.append(following)
        return True, batch

    def _run_jobs_together(self, transactions: PlainTransactions, batch: Sequence[_Job]) -> None:
        lasts = max(job.lasts for job in batch)
        try:
            transactions.begin(lasts=lasts)
        except Exception as error:  # another holds the file: one by one they would each wait as long
            transactions.roll_back()
            self._fail(batch, error)
            return
        try:
            if len(batch) == 1:
                settled = [batch[0].run(transactions.connection)]
            else:
                settled = [self._run_in_savepoint(transactions.connection, job) for job in batch]
        except Exception as error:  # whatever a job raises must reach its caller, and not end the thread
            transactions.roll_back()
            self._run_one_by_one(transactions, batch, error)
            return
        try:
            transactions.commit(lasts=lasts)
        except SqliteUncertainError as error:
            self._fail(batch, error)
        except sqlite3.Error as error:
            self._run_one_by_one(transactions, batch, error)
        except Exception as error:  # none is known; the thread must not end of it, nor call the batch undone
            self._fail(batch, SqliteUncertainError(str(error)))
        else:
            self._settle_all(*settled)

    def _run_one_by_one(self, transactions: PlainTransactions, batch: Sequence[_Job], error: Exception) -> None:
        """Run the jobs one by one, after a failure of them together."""
        if len(batch) == 1:
            self._fail(batch, error)
            return
        for job in batch:
            self._run_jobs_together(transactions, [job])

    def _fail(self, batch: Sequence[_Job], error: Exception) -> None:
        self._settle_all(*(partial(job.fail, self._build_error(error)) for job in batch))

    def _run_in_savepoint(self, connection: sqlite3.Connection, job: _Job) -> Settle:
        """Run one job of several, so that a refusal undoes it alone."""
        connection.execute("SAVEPOINT job")
        try:
            settle = job.run(connection)
        except ConflictError as refusal:
            connection.execute("ROLLBACK TO job")
            settle = partial(job.fail, refusal)
        connection.execute("RELEASE job")
        return settle

    def _settle_all(self, *settled: Settle) -> None:
        with suppress(RuntimeError):  # the event loop is gone, and with it all waiting tasks
            self._loop.call_soon_threadsafe(_run_all, settled)

    def _build_error(self, error: Exception) -> Exception:
        if isinstance(error, StoreError | ConflictError):
            return error
        if isinstance(error, SqliteError):
            return StoreError(str(error))
        if isinstance(error, SqliteUncertainError):
            return UncertainError(f"the store {self._place!r} failed: {error}")
        return StoreError(f"the store {self._place!r} failed: {error}")


class SqliteWork(ABC):
    """A part of a store: its methods work on the threads of the store."""

    @abstractmethod
    def _read(self, work: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]": ...

    @abstractmethod
    def _write(
        self, work: Callable[[sqlite3.Connection], T], *, lasts: Lasts = Lasts.AS_LONG_AS_THE_SYSTEM
    ) -> "asyncio.Future[T]": ...

    async def _fetch_all(self, rows: Rows[FactT], statement: str, values: Values) -> Sequence[FactT]:
        return await self._read(lambda c: [rows.read_fact(row) for row in c.execute(statement, values)])

    async def _fetch_first(self, rows: Rows[FactT], statement: str, values: Values) -> FactT | None:
        return next(iter(await self._fetch_all(rows, statement, values)), None)


class SharedLooks(Generic[AskedT, T]):
    """Looks at a file for all who ask before one begins, so that none is older than its question.

    Most of what a look costs is that its thread is woken, and wakes the event loop. `read` queues work for the thread.
    `look` answers questions in their order.
    """

    def __init__(
        self,
        read: Callable[[Callable[[sqlite3.Connection], Sequence[T]]], "asyncio.Future[Sequence[T]]"],
        look: Callable[[sqlite3.Connection, Sequence[AskedT]], Sequence[T]],
    ) -> None:
        self._read = read
        self._look = look
        self._next: _Look[AskedT, T] | None = None

    async def read_shared(self, question: AskedT) -> T:
        """Return the answer of a look that begins from now on."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._next is None or not self._next.add_question(question, answer):
            look = _Look(self._look)
            look.add_question(question, answer)
            self._read(look).add_done_callback(look.set_answers)
            self._next = look
        return await answer


class _Look(Generic[AskedT, T]):
    """One look. A question that joins it is in the list before the look is seen not to have begun."""

    def __init__(self, look: Callable[[sqlite3.Connection, Sequence[AskedT]], Sequence[T]]) -> None:
        self._look = look
        self._questions: list[AskedT] = []
        self._answers: list[asyncio.Future[T]] = []
        self._is_closed = False

    def add_question(self, question: AskedT, answer: "asyncio.Future[T]") -> bool:
        """Add a question, whose answer will be set. Return False if the look may have begun without it, or is over."""
        self._questions.append(question)
        if self._is_closed:
            return False
        self._answers.append(answer)
        return True

    def __call__(self, connection: sqlite3.Connection) -> Sequence[T]:
        self._is_closed = True
        return self._look(connection, tuple(self._questions))

    def set_answers(self, found: "asyncio.Future[Sequence[T]]") -> None:
        """Set the answers, or the failure of the look, which may not have begun."""
        self._is_closed = True
        error = found.exception()
        for number, answer in enumerate(self._answers):
            if answer.done():  # its caller has left
                continue
            if error is None:
                answer.set_result(found.result()[number])
            else:
                answer.set_exception(error)
        self._answers.clear()


def _run_all(settled: Sequence[Settle]) -> None:
    for settle in settled:
        settle()


def _resolve(answer: "asyncio.Future[T]", result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[T]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
