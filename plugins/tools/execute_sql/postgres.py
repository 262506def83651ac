"""PostgreSQL: a connection and a transaction for each statement, and the server's own judgement of one.

1. A statement that was judged harmless runs in a read-only transaction that is rolled back, right behind another look.
2. To look runs and plans nothing of the statement: the server parses and analyses it, and the catalogue is read.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import asyncpg

from .engine import EngineDoubt, Statement, StatementError
from .postgres_catalog import STATE, Catalogue, FactsCache
from .postgres_connection import ASKED, ASKING, OWN_NAMES, Connection, PreparedStatement, connect, end_connection
from .postgres_facts import Fetch
from .postgres_meter import ConnectionMeter
from .postgres_refusals import find_postgres_refusal
from .postgres_values import convert_value, find_value_doubt
from .rows import SqlRows

LOOK_S: Final = 2  # for one look, on the server
LOCK_S: Final = 5  # a harmless statement waits no longer for a table that is being changed
ROWS_AT_ONCE: Final = 10  # few, as each can be large

#: What lets a role of PostgreSQL out of the database, whatever the transaction: also by a role that it may take on.
POWERS: Final = """SELECT EXISTS (SELECT FROM pg_roles r WHERE pg_has_role(session_user, r.oid, 'MEMBER')
    AND (r.rolsuper
        OR r.rolname IN ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')))"""
#: Of each transaction: how the server reads quotes, whatever its configuration or the role's.
_READING: Final = {
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    "row_security": "on",
    # Compiling our questions to the catalogue takes a hundred times as long as answering them.
    "jit": "off",
}
#: Of a look: the same questions again and again, planned once.
_LOOKING: Final = {
    **_READING,
    "statement_timeout": str(LOOK_S * 1000),
    "lock_timeout": str(LOOK_S * 1000),
    "idle_in_transaction_session_timeout": str(LOOK_S * 5000),
    "plan_cache_mode": "force_generic_plan",
}
#: Where each of the gateway's queries is a separate transaction.
_ALONE: Final = {"default_transaction_read_only": "on", "default_transaction_isolation": "read committed"}
#: Settings that not every supported server has, and what they hold off: a table of another server, however it is
#: reached (14.13, 15.8, 16.4, 17).
_WHERE_KNOWN: Final = {"restrict_nonsystem_relation_kind": "foreign-table"}
#: A setting's value, by a text that can be read in one way only.
_SHOW: Final = re.compile(r"\s*+show\s++\w++(?:[. ]\w++)*+\s*+;?\s*+", re.IGNORECASE)
#: EXPLAIN, and its options where they are none but words.
_EXPLAIN: Final = re.compile(
    r"\s*+explain\s++(?:(?P<runs>analy[sz]e)\s++)?(?:verbose\s++)?(?P<options>\([\w\s,]*+\)\s*+)?", re.IGNORECASE
)
_ANALYZES: Final = re.compile(r"\banaly[sz]e\b(?!\s++(?:off|false|0)\b)", re.IGNORECASE)
_PLANNED: Final = re.compile(r"(?:insert|update|delete|merge)\b", re.IGNORECASE)
#: A query that names a column, table, function or operator that is not there (SQLSTATE): it fails in any form.
_NAMES_NOTHING: Final = ("42703", "42P01", "42883")
#: The class of an error that proves nothing about the statement: a lock or time that ran out, a server that ends.
_NOT_OF_THE_TEXT: Final = ("08", "25", "40", "53", "55", "57", "58", "XX")
_CURSOR: Final = "DECLARE looked_at CURSOR FOR "
_KEPT, _KEPT_CHARS = 1000, 2000  # so many statements are remembered, none longer


@dataclass(slots=True)
class _ProbeConnection:
    """A connection that looks. Behind a pooler, each transaction may have another server, and begins with its settings.

    No lock and no time limit of the server's outlives a look: asyncpg prepares a statement without an end to the
    server's own transaction around it.
    """

    connection: Connection
    pooled: bool
    asking: bool = True

    async def end_questions(self) -> None:
        """End our own questions: names mean again what they mean to a statement."""
        self.asking = False
        await self.connection.execute(ASKED if self.pooled else "RESET search_path")

    @asynccontextmanager
    async def begin_look(self) -> AsyncIterator[Connection]:
        """Yield the connection for one look, in a transaction that has ended behind it."""
        if self.pooled:
            await self.connection.execute(_build_begin_sql(_LOOKING, reading=True))
        try:
            yield self.connection
        except asyncpg.PostgresError:
            await self._end()
            raise
        if self.pooled or not self.asking:  # else nothing is open
            await self._end()

    async def _end(self) -> None:
        # Any simple query ends what is open, and asyncpg takes no empty one.
        await self.connection.execute("ROLLBACK" if self.pooled else f"SET {OWN_NAMES}")
        self.asking = True


class Postgres:
    """The engine of one database. The connection that looks stays open. Each statement has a separate one.

    `extensions`: the ones whose functions a harmless statement may call.
    """

    def __init__(self, url: str, *, read_only: bool, timeout_s: float, extensions: Sequence[str] = ()) -> None:
        self._url = url
        self._read_only = read_only
        self._extensions = extensions
        timeout_ms = math.ceil(timeout_s * 1000)
        self._approved = {**_READING, "statement_timeout": str(timeout_ms)}
        #: The bounds of a statement that runs by a judge's word; `transaction_timeout` since 17.
        self._harmless = {
            **self._approved,
            "lock_timeout": str(min(timeout_ms, LOCK_S * 1000)),
            "idle_in_transaction_session_timeout": str(timeout_ms + LOOK_S * 1000),
            "constraint_exclusion": "off",
        }
        self._where_known = {**_WHERE_KNOWN, "transaction_timeout": str(timeout_ms + LOOK_S * 1000)}
        self._looks = asyncio.Lock()
        self._looking: _ProbeConnection | None = None
        self._known = FactsCache()

    async def run(self, statement: Statement, table: SqlRows) -> None:
        reading = self._read_only or statement.harmless
        connection = await connect(self._url)
        asked = partial(connection.execute, ASKED)
        meter = ConnectionMeter(connection._transport)
        try:
            with _convert_failures(meter):
                await connection.execute(
                    _build_begin_sql(self._harmless, self._where_known, reading=True)
                    if statement.harmless
                    else _build_begin_sql(self._approved, reading=reading)
                )
                # Also the first query of the transaction: after it, no statement can make it writable again.
                if await connection.fetchval(POWERS) is not False:
                    raise StatementError(
                        "the role of this database may leave it: the operator has to give one that may not"
                    )
                catalogue = self._load_catalogue(connection)
                if not statement.harmless:
                    await asked()
                elif (
                    doubt := await self._find_statement_doubt(connection, statement, asked, catalogue)
                ) is not None or (doubt := await self._find_change_doubt(connection, statement, catalogue)) is not None:
                    raise StatementError(
                        f"it was let through as a statement that only reads, but: {doubt.reason.rstrip('.')}"
                    )
                prepared = await connection.prepare(statement.sql, name="")
                meter.set_columns(prepared.get_attributes(), lists_bytes=table.max_bytes)
                await self._fetch_rows(prepared, statement, table)
                await connection.execute("ROLLBACK" if reading else "COMMIT")
        finally:
            # This makes the server stop, if that still works.
            await asyncio.shield(end_connection(connection))

    async def find_refusal(self, statement: Statement) -> str | None:
        return find_postgres_refusal(statement.sql, read_only=self._read_only)

    async def find_doubt(self, statement: Statement) -> EngineDoubt | None:
        async with self._borrow_probe() as looking:
            with _convert_failures():
                try:
                    async with looking.begin_look() as connection:
                        catalogue = self._load_catalogue(connection)
                        return await self._find_statement_doubt(
                            connection, statement, looking.end_questions, catalogue, again=True
                        )
                except asyncpg.PostgresError as error:
                    if error.sqlstate in _NAMES_NOTHING:
                        return None
                    if error.sqlstate[:2] in _NOT_OF_THE_TEXT:
                        raise
                with suppress(asyncpg.PostgresError):  # what the server cannot analyse at all cannot run either
                    async with looking.begin_look() as connection:
                        await looking.end_questions()
                        await connection.prepare(statement.sql, name="")
                    return EngineDoubt("engine", "PostgreSQL does not read it as a query that changes nothing.")
                return None

    async def close(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            await end_connection(looking.connection)

    @asynccontextmanager
    async def _borrow_probe(self) -> AsyncIterator[_ProbeConnection]:
        """Yield the connection that looks, for one look at a time. If a look is cut short, the connection is closed."""
        async with self._looks:
            looking, self._looking = self._looking, None
            if looking is None or looking.connection.is_closed():
                looking = await _connect_probe(self._url)
                self._known = FactsCache()  # a server that has crashed counts transactions that it lost again
            try:
                yield looking
                self._looking, looking = looking, None
            finally:
                if looking is not None:
                    await asyncio.shield(end_connection(looking.connection))

    def _load_catalogue(self, connection: Connection) -> Catalogue:
        return Catalogue(cast(Fetch, connection.fetch), self._known, self._extensions)

    async def _find_statement_doubt(
        self,
        connection: Connection,
        statement: Statement,
        asked: Callable[[], Awaitable[object]],
        catalogue: Catalogue,
        *,
        again: bool = False,
    ) -> EngineDoubt | None:
        """Return the server's doubt about the statement. Raises its error where it cannot analyse it as a query.

        `asked` ends the gateway's queries and begins the statement's own names. `again`: a text that the server has
        analysed in the same state is not analysed again.
        """
        sql = statement.sql
        doubt = find_value_doubt(sql, statement.params)
        if doubt is None:
            doubt = await catalogue.find_doubt(sql)
        if doubt is not None:
            return doubt
        read = catalogue.facts.read
        if again and sql in read:
            return None
        await asked()
        if not _SHOW.fullmatch(sql):
            await self._analyze_statement(connection, sql)
        if again and len(sql) <= _KEPT_CHARS:
            if len(read) >= _KEPT:
                read.clear()
            read.add(sql)
        return None

    async def _analyze_statement(self, connection: Connection, sql: str) -> None:
        """Have the server analyse a statement as a query that changes nothing. Raises its error."""
        explained = _EXPLAIN.match(sql)
        if explained is not None:
            sql = sql[explained.end() :]
            runs = explained["runs"] or _ANALYZES.search(explained["options"] or "")
            if not runs and _PLANNED.match(sql):
                await connection.prepare(f"EXPLAIN {sql}", name="")
                return
        # A cursor reads: the grammar takes nothing but a query, its analysis no writing WITH. Nothing is opened.
        await connection.prepare(_CURSOR + sql, name="")

    async def _find_change_doubt(
        self, connection: Connection, statement: Statement, catalogue: Catalogue
    ) -> EngineDoubt | None:
        """Return the doubt about a statement of which something has changed since the look.

        To prepare it waits for transactions that change its tables and views, and keeps them as they are until it ends.
        """
        if _SHOW.fullmatch(statement.sql):
            return None
        explained = _EXPLAIN.match(statement.sql)
        await connection.prepare(statement.sql[explained.end() if explained else 0 :], name="")
        if await connection.fetchval(f"SELECT {STATE}") == catalogue.state:
            return None
        await connection.execute("; ".join(ASKING))
        doubt = await catalogue.find_doubt(statement.sql)
        await connection.execute(ASKED)
        return doubt

    async def _fetch_rows(self, prepared: PreparedStatement, statement: Statement, table: SqlRows) -> None:
        params = _convert_params(prepared, statement.params)
        table.columns = [attribute.name for attribute in prepared.get_attributes()]
        if not table.columns:
            await prepared.fetch(*params)
            *_, count = prepared.get_statusmsg().split(" ")
            table.changed = int(count) if count.isdecimal() and not self._read_only else None
            return
        cursor = await prepared.cursor(*params)
        while rows := await cursor.fetch(ROWS_AT_ONCE):
            if not all(table.add(tuple(row)) for row in rows):
                return


def _build_begin_sql(
    settings: Mapping[str, str], where_known: Mapping[str, str] | None = None, *, reading: bool
) -> str:
    """Return the commands that begin a transaction with these settings, and our questions in it, until `ASKED`.

    `where_known`: settings only if the server has them.
    """
    # A serializable transaction that reads marks what it has read, and so makes other transactions fail.
    commands = ["BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY" if reading else "BEGIN READ WRITE"]
    commands += [f"SET LOCAL {name} = '{value}'" for name, value in settings.items()]
    commands += [
        f"SELECT pg_catalog.set_config('{name}', '{value}', true)"
        f" WHERE pg_catalog.current_setting('{name}', true) IS NOT NULL"
        for name, value in (where_known or {}).items()
    ]
    return "; ".join((*commands, *ASKING))


def _convert_params(prepared: PreparedStatement, params: Sequence[object]) -> Sequence[object]:
    """Return the values as the server's types require. Raises StatementError."""
    types = prepared.get_parameters()
    if len(types) != len(params):
        raise StatementError(f"it has {len(types)} parameters, and `params` has {len(params)} values")
    found = []
    for number, (value, kind) in enumerate(zip(params, types, strict=True), start=1):
        try:
            found.append(convert_value(value, kind.name))
        except (ValueError, ArithmeticError):
            raise StatementError(f"the value of ${number} is no {kind.name}") from None
    return found


async def _connect_probe(url: str) -> _ProbeConnection:
    """Connect in order to look. Raises StatementError."""
    connection = await connect(url, cached=10)
    with _convert_failures():
        if await connection.fetchval("SELECT pg_catalog.pg_backend_pid()") == connection.get_server_pid():
            settings = {**_LOOKING, **_ALONE}
            commands = (*(f"SET {name} = '{value}'" for name, value in settings.items()), f"SET {OWN_NAMES}")
            await connection.execute("; ".join(commands))
            return _ProbeConnection(connection, pooled=False)
    await end_connection(connection)
    return _ProbeConnection(await connect(url), pooled=True)


@contextmanager
def _convert_failures(meter: ConnectionMeter | None = None) -> Iterator[None]:
    """Convert every failure between the gateway and the server to StatementError."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        problem = None if meter is None else meter.problem
        raise StatementError(problem or " ".join(str(error).split()).rstrip(".")) from None
    except (OSError, ValueError, OverflowError) as error:
        reason = f"a value of its rows cannot be read ({type(error).__name__}): cast it to text"
        raise StatementError(reason) from None
