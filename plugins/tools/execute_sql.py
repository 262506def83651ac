"""The tool `execute_sql`: one statement on one database, and its rows as JSON.

1. Whether something can be written is decided by the connection (read-only file, read-only transaction, authorizer,
   role), never by the words of the statement.
2. One statement a call, on a connection of its own; nothing of it stays but what was committed.
3. Time, rows and bytes are bounded. A call that is cancelled or late is rolled back.
"""

import asyncio
import importlib.util
import math
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Protocol, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from gateway.contracts import Exchange, Host, Plugin, ToolCall, ToolResult, ToolSpec
from gateway.wire.durations import positive_seconds
from gateway.wire.sql_postgres import refused_by_postgres
from gateway.wire.sql_rows import SqlRows

SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")
MAX_SQL = 100_000  # characters
THREADS = 8  # statements on SQLite at the same time
BUSY_S = 2.0  # how long a locked file is waited for; nothing can interrupt that
STEPS = 1000  # of SQLite's machine between two looks at whether to stop: less than 1 ms
GRACE_S = 0.5  # for a thread to end
CLOSE_S = 0.5  # for telling PostgreSQL to stop
ROWS_AT_ONCE = 10  # of PostgreSQL; few, as each can be large
MAX_RECEIVED_BYTES = 32 << 20  # from PostgreSQL in one call

#: What one statement may take of SQLite; without ATTACH there is one file only.
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 4 << 20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4 * MAX_SQL,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
READING = frozenset(
    (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_PRAGMA,
    )
)
#: Other files, and the transaction that a call is.
NEVER = frozenset((sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT))
NO_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"))
#: They describe the database; some take the name of a table.
PRAGMAS = frozenset(
    (
        *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"),
        *("foreign_key_check", "collation_list", "function_list"),
    )
)

#: What lets a role of PostgreSQL out of the database, whatever the transaction.
POWERS = """SELECT rolsuper
    OR pg_has_role(oid, 'pg_read_server_files', 'MEMBER') OR pg_has_role(oid, 'pg_write_server_files', 'MEMBER')
    OR pg_has_role(oid, 'pg_execute_server_program', 'MEMBER') FROM pg_roles WHERE rolname = session_user"""


Seconds = Annotated[float, BeforeValidator(positive_seconds)]


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    requires_approval: bool = Field(default=False, description="Ask a person before every call, whatever its risk.")
    untrusted: bool = Field(default=False, description="Its results come from strangers and taint the run.")
    url: str = Field(
        default="sqlite:///./data.db", repr=False, description="The database: `sqlite:///FILE` or `postgresql://...`."
    )
    read_only: bool = Field(default=True, description="Open the database for reading only.")
    timeout: Seconds = Field(default=30.0, description="Longest time for a statement.")
    max_rows: int = Field(default=1000, gt=0, description="Rows in a result.")
    max_bytes: int = Field(default=256 * 1024, gt=0, description="Size of the rows of a result, as JSON.")

    @field_validator("url")
    @classmethod
    def _is_known(cls, url: str) -> str:
        """No message repeats the URL: it may hold a password."""
        if url.startswith(POSTGRES):
            if importlib.util.find_spec("asyncpg") is None:
                raise ValueError("PostgreSQL needs asyncpg: pip install 'twolane[postgres]'")
        elif not url.startswith(SQLITE) or url.removeprefix(SQLITE) in ("", ":memory:") or "\0" in url:
            raise ValueError("expected sqlite:///FILE or postgresql://USER@HOST/DATABASE")
        return url


class _StatementError(Exception):
    """The text is for the model."""


class _Database(Protocol):
    async def run(self, sql: str, table: SqlRows) -> None:
        """Fills `table`; raises _StatementError. Once it has ended, the statement changes nothing any more."""
        ...

    async def refused(self, sql: str) -> str | None:
        """Why `run` would not run it, as far as that can be told without running it."""
        ...


class ExecuteSql:
    """The source of this one tool."""

    def __init__(self, config: Config) -> None:
        self._config = config
        postgres = config.url.startswith(POSTGRES)
        self._database: _Database = _Postgres(config) if postgres else _Sqlite(config)
        self._name = "PostgreSQL" if postgres else "SQLite"

    async def list_tools(self) -> Sequence[ToolSpec]:
        what = "read-only" if self._config.read_only else "changes are committed"
        description = f"Runs one SQL statement on the {self._name} database ({what}) and returns its rows as JSON."
        flags = replace(_SPEC, untrusted=self._config.untrusted, requires_approval=self._config.requires_approval)
        return (replace(flags, description=description),)

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:  # noqa: ARG002 - as for `call`
        """More than one statement, and what the connection would not let it do."""
        if problem := _problem(call.arguments.get("sql")):
            return problem
        reason = await self._database.refused(call.arguments["sql"])
        return reason and f"The statement failed: {reason}."

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:  # noqa: ARG002 - the same for every run
        if problem := _problem(call.arguments.get("sql")):
            return ToolResult(problem, ok=False)
        table = SqlRows(self._config.max_rows, self._config.max_bytes)
        try:
            async with asyncio.timeout(self._config.timeout):
                await self._database.run(call.arguments["sql"], table)
        except TimeoutError:
            return ToolResult(f"The statement took longer than {self._config.timeout:g} seconds: stopped.", ok=False)
        except _StatementError as error:
            return ToolResult(f"The statement failed: {error}.", ok=False)
        return ToolResult(str(table))

    async def close(self) -> None:
        """Nothing outlives a call."""


def _problem(sql: object) -> str | None:
    if not isinstance(sql, str) or not sql.strip():
        return "`sql` is missing, or is not a text."
    return f"`sql` is longer than {MAX_SQL} characters." if len(sql) > MAX_SQL else None


class _Sqlite:
    """A statement stops between two steps of SQLite's machine; a step that takes long goes on alone, to no effect."""

    def __init__(self, config: Config) -> None:
        self._place = config.url.removeprefix(SQLITE)
        self._read_only = config.read_only
        self._free = asyncio.Semaphore(THREADS)

    async def run(self, sql: str, table: SqlRows) -> None:
        await self._free.acquire()  # its turn is part of a call's time
        stop, committing = threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[_StatementError | None] = loop.create_future()

        def end(error: _StatementError | None) -> None:
            self._free.release()
            ended.set_result(error)

        def live() -> None:
            error = self._run(sql, table, stop, committing)
            with suppress(RuntimeError):  # the event loop is gone, and with it who waited
                loop.call_soon_threadsafe(end, error)

        # A daemon: the gateway need not wait for a long step before it exits.
        threading.Thread(target=live, name="execute_sql", daemon=True).start()
        try:
            error = await asyncio.shield(ended)
        except asyncio.CancelledError:
            stop.set()
            # The thread says that it commits before it looks at `stop`: one of the two always sees the other.
            await asyncio.wait((ended,), timeout=None if committing.is_set() else GRACE_S)
            raise
        if error is not None:
            raise error

    def _run(
        self, sql: str, table: SqlRows, stop: threading.Event, committing: threading.Event
    ) -> _StatementError | None:
        if not Path(self._place).is_file():
            return _StatementError(f"there is no database {self._place!r}: the operator can begin with an empty file")
        try:
            with closing(self._connected(BUSY_S)) as connection:
                self._fence(connection)
                connection.set_progress_handler(stop.is_set, STEPS)
                connection.execute("BEGIN" if self._read_only else "BEGIN IMMEDIATE")
                connection.set_authorizer(self._authorize)
                self._step(connection, sql, table)
                connection.set_authorizer(None)
                committing.set()
                connection.execute("ROLLBACK" if stop.is_set() else "COMMIT")
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            return _StatementError(str(error).rstrip(".") or type(error).__name__)
        return None

    async def refused(self, sql: str) -> str | None:
        return await asyncio.to_thread(self._refused, sql)

    def _refused(self, sql: str) -> str | None:
        """EXPLAIN only compiles a statement: the authorizer is asked, and nothing is done."""
        denied: list[int] = []

        def authorize(action: int, *about: str | None) -> int:
            answer = self._authorize(action, *about)
            denied.extend([action] if answer == sqlite3.SQLITE_DENY else [])
            return answer

        try:
            with closing(self._connected(0)) as connection:
                self._fence(connection)
                connection.set_authorizer(authorize)
                connection.execute(f"EXPLAIN {sql}")
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            # Whatever else is wrong, such as a table that is not there yet, may be right when the call's turn comes.
            return str(error).rstrip(".") if denied or "one statement" in str(error) else None
        return None

    def _connected(self, busy_s: float) -> sqlite3.Connection:
        uri = f"{Path(self._place).absolute().as_uri()}?mode={'ro' if self._read_only else 'rw'}"
        return sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None)

    def _fence(self, connection: sqlite3.Connection) -> None:
        for limit, most in LIMITS.items():
            connection.setlimit(limit, most)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        if self._read_only:
            connection.execute("PRAGMA query_only = ON")

    def _authorize(self, action: int, first: str | None = None, second: str | None = None, *_: str | None) -> int:
        if action in NEVER or (self._read_only and action not in READING):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() not in PRAGMAS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in NO_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _step(self, connection: sqlite3.Connection, sql: str, table: SqlRows) -> None:
        with closing(connection.execute(sql)) as cursor:
            table.columns = [str(column[0]) for column in cursor.description or ()]
            for row in cursor:
                if not table.add(row):
                    break
            if not self._read_only and cursor.rowcount >= 0:
                table.changed = cursor.rowcount


class _Attribute(Protocol):
    @property
    def name(self) -> str: ...


class _Cursor(Protocol):
    async def fetch(self, n: int) -> Sequence[Sequence[object]]: ...


class _Prepared(Protocol):
    """What is used of asyncpg's prepared statement; asyncpg has no types of its own."""

    def get_attributes(self) -> Sequence[_Attribute]: ...

    async def fetch(self) -> object: ...

    def get_statusmsg(self) -> str: ...

    async def cursor(self) -> _Cursor: ...


class _Postgres:
    def __init__(self, config: Config) -> None:
        self._url = config.url
        self._read_only = config.read_only
        self._settings = {
            "application_name": "twolane",
            "default_transaction_read_only": "on" if config.read_only else "off",
            "statement_timeout": str(math.ceil(config.timeout * 1000)),
        }

    async def run(self, sql: str, table: SqlRows) -> None:
        import asyncpg  # an optional dependency, of those who have PostgreSQL

        try:
            connection = await asyncpg.connect(self._url, statement_cache_size=0, server_settings=self._settings)
        except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise _StatementError(f"the database cannot be reached ({type(error).__name__})") from None
        meter = _Meter(connection._transport)  # asyncpg reads a row of 1 GB into memory: it has no limit of its own
        try:
            transaction = connection.transaction(readonly=self._read_only)
            await transaction.start()
            # Also the first query of the transaction: after it, no statement can make it writable again.
            if await connection.fetchval(POWERS) is not False:
                raise _StatementError(
                    "the role of this database may leave it: the operator has to give one that may not"
                )
            await self._step(await connection.prepare(sql), table)
            await (transaction.rollback() if self._read_only else transaction.commit())
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            reason = "its rows are too large" if meter.full else " ".join(str(error).split()).rstrip(".")
            raise _StatementError(reason) from None
        except (OSError, ValueError, OverflowError) as error:
            reason = f"a value of its rows cannot be read ({type(error).__name__}): cast it to text"
            raise _StatementError(reason) from None
        finally:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.shield(connection.close(timeout=CLOSE_S))  # tells the server to stop, if it still works

    async def refused(self, sql: str) -> str | None:
        return refused_by_postgres(sql, read_only=self._read_only)

    async def _step(self, statement: "_Prepared", table: SqlRows) -> None:
        table.columns = [attribute.name for attribute in statement.get_attributes()]
        if not table.columns:
            await statement.fetch()
            *_, count = statement.get_statusmsg().split(" ")
            table.changed = int(count) if count.isdecimal() and not self._read_only else None
            return
        cursor = await statement.cursor()
        while rows := await cursor.fetch(ROWS_AT_ONCE):
            if not all(table.add(tuple(row)) for row in rows):
                return


class _Meter(asyncio.Protocol):
    """Stands between a transport and its protocol, and ends a connection that brings too much."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._protocol = cast(asyncio.Protocol, transport.get_protocol())
        self._room_bytes = MAX_RECEIVED_BYTES
        transport.set_protocol(self)

    @property
    def full(self) -> bool:
        return self._room_bytes < 0

    def data_received(self, data: bytes) -> None:
        self._room_bytes -= len(data)
        if self.full:
            self._transport.abort()
        else:
            self._protocol.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


_SPEC = ToolSpec(
    name="execute_sql",
    description="Runs one SQL statement on the database.",
    parameters={
        "type": "object",
        "properties": {"sql": {"type": "string", "description": "One statement, without parameters."}},
        "required": ["sql"],
        "additionalProperties": False,
    },
    category="database",
)


def build(config: Config, host: Host) -> ExecuteSql:  # noqa: ARG001 - every plugin is built with a host
    return ExecuteSql(config)


PLUGIN = Plugin(Config, build)
