"""SQLite: one file, a connection and a thread for each statement, and the judgement of SQLite's own parser.

1. A statement stops between two steps of SQLite's machine. One step takes about a second at most (`sqlite_bounds`). The
   rest of it continues alone, to no effect.
2. A harmless statement runs under the rules under which it was examined: there is no gap between look and run. Its file
   is open for reading only. Its steps are counted, and what it writes into temporary files.
"""

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from .engine import EngineDoubt, Statement, StatementError
from .rows import SqlRows
from .sqlite_bounds import PATTERN_BYTES, VALUE_BYTES, ValueLimit, compute_value_limit
from .sqlite_expansion import check_expansion
from .sqlite_rules import ACTING_STEPS, READABLE, Authorize, list_reading_rules, list_running_rules
from .sqlite_virtual import DamagedError, check_virtual, open_virtual

THREADS: Final = 8  # statements at the same time
BUSY_S: Final = 2.0  # how long a locked file is waited for; nothing can interrupt that
STEPS: Final = 1000  # of SQLite's machine between two looks at whether to stop: less than 1 ms
MOST_STEPS: Final = 1_000_000_000  # of a harmless statement: ten seconds of one core, or more
MOST_BYTES: Final = 512 << 20  # that a harmless statement writes into temporary files
LOOK_S: Final = 0.01  # between two looks at what it has written
LOOK_STEPS: Final = 1_000_000  # of a look, which runs only what virtual tables run as they are opened
GRACE_S: Final = 0.5  # for a thread to end
MAX_SQL_BYTES: Final = 400_000

#: What one statement may take; without ATTACH there is one file only.
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: MAX_SQL_BYTES,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: PATTERN_BYTES,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_FAILURES: Final = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)
#: What cannot be compiled behind another EXPLAIN.
_EXPLAINS: Final = re.compile(r"(?:\s|--[^\n]*+|/\*(?>.*?\*/))*+explain\b", re.IGNORECASE | re.DOTALL)


class Sqlite:
    """The engine of one file."""

    def __init__(
        self, place: str, *, read_only: bool, most_steps: int = MOST_STEPS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._place = place
        self._read_only = read_only
        self._most_steps = most_steps
        self._most_bytes = most_bytes
        self._free = asyncio.Semaphore(THREADS)

    async def run(self, statement: Statement, table: SqlRows) -> None:
        await self._free.acquire()  # its turn is part of a call's time
        stop, committing, running = threading.Event(), threading.Event(), list[sqlite3.Connection]()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[StatementError | None] = loop.create_future()

        def end(error: StatementError | None) -> None:
            self._free.release()
            ended.set_result(error)

        def run_and_report() -> None:
            error = self._run(statement, table, stop, committing, running)
            with suppress(RuntimeError):  # the event loop is gone, and with it who waited
                loop.call_soon_threadsafe(end, error)

        # A daemon: the gateway need not wait for a long step before it exits.
        threading.Thread(target=run_and_report, name="execute_sql", daemon=True).start()
        try:
            error = await asyncio.shield(ended)
        except asyncio.CancelledError:
            stop.set()
            if not committing.is_set():
                with suppress(sqlite3.ProgrammingError):  # it is closed by now
                    for connection in running:
                        connection.interrupt()  # sooner than after the next `STEPS`
            # The thread announces its commit before it looks at `stop`: one of the two always sees the other.
            await asyncio.wait((ended,), timeout=None if committing.is_set() else GRACE_S)
            raise
        if error is not None:
            raise error

    async def find_refusal(self, statement: Statement) -> str | None:
        return await asyncio.to_thread(self._find_refusal, statement)

    async def find_doubt(self, statement: Statement) -> EngineDoubt | None:
        return await asyncio.to_thread(self._find_table_doubt, statement)

    async def close(self) -> None:
        """Do nothing: no connection outlives a call."""

    def _run(
        self,
        statement: Statement,
        table: SqlRows,
        stop: threading.Event,
        committing: threading.Event,
        running: list[sqlite3.Connection],
    ) -> StatementError | None:
        if not Path(self._place).is_file():
            return StatementError(f"there is no database {self._place!r}: the operator can begin with an empty file")
        reading, denied, bound = self._read_only or statement.harmless, list[str](), ValueLimit()
        steps = _Steps(stop, *((self._most_steps, self._most_bytes) if statement.harmless else (None,)))
        try:
            with closing(self._open_connection(BUSY_S, reading=reading, steps=steps)) as connection:
                running.append(connection)
                inner = check_virtual(connection)
                authorize = self._choose_rules(connection, statement, denied)
                connection.execute("BEGIN" if reading else "BEGIN IMMEDIATE")
                connection.execute("SELECT 1 FROM sqlite_schema").close()  # from here on the schema stays as it is
                connection.set_authorizer(authorize)
                bound = compute_value_limit(
                    _compile_statement(connection, statement, inner), harmless=statement.harmless
                )
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bound.value_bytes)
                _fetch_rows(connection, statement, table, counts=not reading)
                connection.set_authorizer(None)
                committing.set()
                connection.execute("ROLLBACK" if stop.is_set() or statement.harmless else "COMMIT")
        except _FAILURES as error:
            if denied:
                return StatementError(f"it was let through as a statement that only reads, but it {denied[0]}")
            return StatementError(steps.explain_error(bound.explain_error(_format_error(error))))
        return None

    def _find_refusal(self, statement: Statement) -> str | None:
        denied: list[int] = []
        rules = list_running_rules(read_only=self._read_only)

        def authorize(action: int, *about: str | None) -> int:
            answer = rules(action, *about)
            denied.extend([action] if answer == sqlite3.SQLITE_DENY else [])
            return answer

        try:
            with closing(
                self._open_connection(0, reading=True, steps=_Steps(threading.Event(), LOOK_STEPS))
            ) as connection:
                inner = check_virtual(connection)
                open_virtual(connection)
                connection.set_authorizer(authorize)
                _compile_statement(connection, statement, inner)
        except _FAILURES as error:
            # Whatever else is wrong, such as a table that is not there yet, may be right when the call's turn comes.
            certain = denied or isinstance(error, DamagedError) or "one statement" in str(error)
            return _format_error(error) if certain else None
        return None

    def _find_table_doubt(self, statement: Statement) -> EngineDoubt | None:
        denied: list[str] = []
        try:
            with closing(
                self._open_connection(0, reading=True, steps=_Steps(threading.Event(), LOOK_STEPS))
            ) as connection:
                inner = check_virtual(connection)
                connection.set_authorizer(list_reading_rules(_open_virtual_tables(connection, statement.sql), denied))
                with suppress(*_FAILURES):
                    steps = ACTING_STEPS.intersection(
                        step[1] for step in _compile_statement(connection, statement, inner)
                    )
                    denied += [f"runs the step {step!r}" for step in sorted(steps)]
        except sqlite3.Error as error:
            raise StatementError(_format_error(error)) from None
        return EngineDoubt("engine", f"To SQLite the statement {denied[0]}.") if denied else None

    def _choose_rules(self, connection: sqlite3.Connection, statement: Statement, denied: list[str]) -> Authorize:
        if statement.harmless:
            return list_reading_rules(_open_virtual_tables(connection, statement.sql), denied)
        open_virtual(connection)
        return list_running_rules(read_only=self._read_only)

    def _open_connection(self, busy_s: float, *, reading: bool, steps: "_Steps") -> sqlite3.Connection:
        uri = f"{Path(self._place).absolute().as_uri()}?mode={'ro' if reading else 'rw'}"
        connection = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None)
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        connection.set_progress_handler(steps.end, STEPS)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = FILE")  # some builds sort in memory, which nothing bounds
        connection.execute("PRAGMA foreign_keys = ON")
        if reading:
            connection.execute("PRAGMA query_only = ON")
        return connection


class _Steps:
    """The steps of one statement, which end where it has to stop, or where it has taken too much.

    `most` bounds the steps, and `most_bytes` what the statement writes into temporary files, as it does to sort. None:
    it has no bound. It belongs to the thread that runs the statement.
    """

    def __init__(self, stop: threading.Event, most: int | None, most_bytes: int | None = None) -> None:
        self._stop = stop
        self._most = most
        self._most_bytes = most_bytes
        self._taken = self._written = 0
        self._before = 0 if most_bytes is None else _count_written_bytes()
        self._looked_s = 0.0

    def end(self) -> bool:
        """Count `STEPS` more. Return whether the statement ends here."""
        self._taken += STEPS
        if self._most_bytes is not None and (now_s := time.monotonic()) - self._looked_s >= LOOK_S:
            self._looked_s, self._written = now_s, _count_written_bytes() - self._before
        return self._stop.is_set() or self._exceeded_bound is not None

    def explain_error(self, message: str) -> str:
        """Return SQLite's message, or the bound that it stands for."""
        what = None if self._stop.is_set() else self._exceeded_bound
        return message if what is None else f"it took more than {what}: only an approved call may take more"

    @property
    def _exceeded_bound(self) -> str | None:
        """Return the bound that the statement has exceeded, in words."""
        if self._most is not None and self._taken > self._most:
            return f"{self._most} steps of SQLite's machine"
        if self._most_bytes is not None and self._written > self._most_bytes:
            return f"{self._most_bytes} bytes of temporary files"
        return None


def _count_written_bytes() -> int:
    """Return how many bytes this thread has written; 0: the system does not report it."""
    with suppress(OSError), Path("/proc/thread-self/io").open("rb") as file:
        return next(int(line[6:]) for line in file if line.startswith(b"wchar:"))
    return 0


def _open_virtual_tables(connection: sqlite3.Connection, sql: str) -> frozenset[str]:
    """Open the virtual tables that `sql` may read, which then prepare statements of their own. Return all modules."""
    text = sql.lower()
    open_virtual(connection, [name for name in READABLE if name in text])
    return frozenset(name.lower() for (name,) in connection.execute("SELECT name FROM pragma_module_list"))


def _compile_statement(
    connection: sqlite3.Connection, statement: Statement, inner: Sequence[str]
) -> Sequence[tuple[Any, ...]]:
    """Compile the statement and return its steps as rows of EXPLAIN, which does nothing else. Raises `_FAILURES`.

    `inner`: queries that its virtual tables may run, whose steps count, too.
    """
    views = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'").fetchall()
    check_expansion(statement.sql, views)
    behind = [step for query in inner for step in connection.execute(f"EXPLAIN {query}")]
    params = _check_params(statement.params)
    if _EXPLAINS.match(statement.sql):
        connection.execute(statement.sql, params).close()
        return ()
    return [*connection.execute(f"EXPLAIN {statement.sql}", params), *behind]


def _fetch_rows(connection: sqlite3.Connection, statement: Statement, table: SqlRows, *, counts: bool) -> None:
    with closing(connection.execute(statement.sql, _check_params(statement.params))) as cursor:
        table.columns = [str(column[0]) for column in cursor.description or ()]
        for row in cursor:
            if not table.add(row):
                break
        if counts and cursor.rowcount >= 0:
            table.changed = cursor.rowcount


def _check_params(params: Sequence[object]) -> Sequence[object]:
    """Return the values if SQLite accepts them. Raises ValueError."""
    for number, value in enumerate(params, start=1):
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"the parameter {number} is a list or an object: SQLite binds text, numbers and null")
    return params


def _format_error(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__
