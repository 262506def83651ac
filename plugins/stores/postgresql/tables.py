"""The tables of a PostgreSQL store as `gateway store copy` reads and writes them.

1. A source is read in one transaction, so it is one moment. Before it, events and audit lines get their numbers.
2. A target is written in one transaction. Its tables are locked: a gateway that starts meanwhile waits.
"""

# ruff: noqa: S608 - what is put together here are names of tables and columns of TABLES

import asyncio
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar, cast

import asyncpg

from gateway.plugin import ENDED, TABLES, StoreError, TableRow, TableValue, UncertainError

from .failures import translate_error
from .migrations import SCHEMA, migrate
from .pool import PostgresqlConnection, connect
from .store import PostgresqlStore
from .text_codec import escape_text, restore_text

T = TypeVar("T")

#: So much is read at once, about.
PIECE_BYTES: Final = 4 << 20
_ROWS, _FIRST_ROWS = 1000, 20
#: So long a gateway may still be connected that has ended, and the pause between two looks.
GONE_S, LOOK_AGAIN_S = 1.0, 0.05
#: The statements for tables that have no such name here, or whose rows or columns do not all count.
_SELECTS: Final = {
    "counters": "SELECT name, value FROM twolane.counters WHERE value > 0 ORDER BY name",
    "sequences": "SELECT name, seq FROM twolane.seals WHERE name = 'events' AND seq > 0",
    "usage_writers": "SELECT writer, added_s, number FROM twolane.usage_writers WHERE has_more",
}
#: The order of age of rows, where it is not that of their numbers or does not matter.
_ORDERS: Final = {
    "runs": "created_s, id",
    "approvals": "number",
    "grants": "number",
    "definitions": "seq",
    "events": "seq",
    "audit": "seq",
    "keys": "number",
    "responses": "number",
    "conversations": "number",
    "memories": "number",
}
_HAS_SCHEMA: Final = "SELECT to_regclass('twolane.schema_versions')::text"
_IN_USE: Final = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'twolane' AND pid <> pg_backend_pid()"""
_BOOLEANS: Final = """SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = 'twolane' AND data_type = 'boolean'"""
_NUMBERED: Final = """SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = 'twolane' AND is_identity = 'YES'"""
_PUT_COUNTERS: Final = """INSERT INTO twolane.counters SELECT * FROM unnest($1::text[], $2::bigint[])
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
_PUT_SEQUENCES: Final = """UPDATE twolane.seals SET seq = n.last FROM unnest($1::text[], $2::bigint[]) n(name, last)
    WHERE seals.name = n.name"""
#: For tables that have no such name here, or are not empty at first.
_PUTS: Final = {"counters": _PUT_COUNTERS, "sequences": _PUT_SEQUENCES}
_PUT_CHAIN_END: Final = """UPDATE twolane.seals SET seq = a.seq, hash = a.hash
    FROM (SELECT seq, hash FROM twolane.audit ORDER BY seq DESC LIMIT 1) a WHERE name = 'audit'"""
_UNNUMBERED: Final = """SELECT EXISTS (SELECT FROM twolane.new_events)
    OR EXISTS (SELECT FROM twolane.audit WHERE seq IS NULL)"""


class TableCursor(Protocol):
    """The part of asyncpg's cursor that is used here."""

    async def fetch(self, n: int) -> Sequence[Sequence[Any]]: ...


class TableConnection(PostgresqlConnection, Protocol):
    """The part of asyncpg's connection that is used here besides."""

    def cursor(self, sql: str) -> Awaitable[TableCursor]: ...

    async def copy_records_to_table(
        self, name: str, *, schema_name: str, columns: Sequence[str], records: Sequence[Sequence[Any]]
    ) -> str: ...


class PostgresqlTableReader:
    """The `gateway.contracts.storage.tables.TableReader` of a connection in a transaction."""

    def __init__(self, runner: asyncio.Runner, connection: TableConnection) -> None:
        self._runner = runner
        self._connection = connection

    def count_rows(self, table: str) -> int:
        ((count,),) = self._run(self._connection.fetch(f"SELECT count(*) FROM ({_build_select(table)}) t"))
        return int(count)

    def read_rows(self, table: str) -> Iterator[Sequence[TableRow]]:
        cursor = self._run(self._connection.cursor(_build_select(table)))
        count = _FIRST_ROWS
        while rows := [tuple(map(_restore_row, row)) for row in self._run(cursor.fetch(count))]:
            yield rows
            size = sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
            count = max(1, min(_ROWS, 2 * count, count * PIECE_BYTES // max(size, 1)))

    def _run(self, work: Awaitable[T]) -> T:
        return self._runner.run(_translate_errors(work))


class PostgresqlTableWriter(PostgresqlTableReader):
    """The `gateway.contracts.storage.tables.TableWriter` of a connection in a transaction."""

    def __init__(self, runner: asyncio.Runner, connection: TableConnection, *, place: str) -> None:
        super().__init__(runner, connection)
        self._place = place
        self._booleans = {tuple(row) for row in self._run(connection.fetch(_BOOLEANS))}

    def write_rows(self, table: str, rows: Sequence[TableRow]) -> None:
        columns = TABLES[table]
        if (statement := _PUTS.get(table)) is not None:
            names, numbers = zip(*rows, strict=True)
            self._run(self._connection.fetch(statement, list(names), list(numbers)))
            return
        booleans = [place for place, column in enumerate(columns) if (table, column) in self._booleans]
        records = [_escape(row, booleans=booleans) for row in rows]
        if table == "runs":
            columns = (*columns, "idle_s")
            for record, row in zip(records, rows, strict=True):
                record.append(_read_idle_since(dict(zip(TABLES[table], row, strict=True))))
        copied = self._connection.copy_records_to_table(table, schema_name="twolane", columns=columns, records=records)
        self._run(copied)

    def finish(self) -> None:
        self._run(self._connection.fetch(_PUT_CHAIN_END))
        for table, column in self._run(self._connection.fetch(_NUMBERED)):
            self._run(
                self._connection.fetch(
                    f"SELECT setval(pg_get_serial_sequence('twolane.{table}', '{column}'), max({column})) "
                    f"FROM twolane.{table} HAVING max({column}) IS NOT NULL"
                )
            )

    def commit(self) -> None:
        for table in TABLES.keys() - _PUTS.keys():
            self._run(self._connection.execute(f"ANALYZE twolane.{table}"))
        try:
            self._run(self._connection.execute("COMMIT"))
        except StoreError as error:
            raise UncertainError(
                f"the connection to {self._place!r} broke while the copy became visible: the store there is whole "
                f"now, or still empty ({error}). Copy again: a store that is whole is refused as not empty"
            ) from error


class PostgresqlTables:
    """The `gateway.contracts.storage.tables.StoreTables` of a database; `place` is its URL without secrets."""

    def __init__(self, url: str, *, place: str) -> None:
        self._url = url
        self._place = place

    @contextmanager
    def open_source(self) -> Iterator[PostgresqlTableReader]:
        with asyncio.Runner() as runner, self._open_connection(runner) as connection:
            runner.run(_translate_errors(self._refuse_if_in_use(connection)))
            runner.run(self._number_rows())
            runner.run(_translate_errors(connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")))
            if runner.run(_translate_errors(connection.fetch(_UNNUMBERED)))[0][0]:
                raise StoreError(f"a gateway writes to {self._place!r}: stop it, and copy again")
            yield PostgresqlTableReader(runner, connection)

    @contextmanager
    def open_target(self) -> Iterator[PostgresqlTableWriter]:
        with asyncio.Runner() as runner:
            runner.run(migrate(self._url))
            with self._open_connection(runner) as connection:
                runner.run(_translate_errors(connection.execute(_build_lock())))
                writer = PostgresqlTableWriter(runner, connection, place=self._place)
                for table in TABLES:
                    if writer.count_rows(table):
                        raise StoreError(
                            f"the store {self._place!r} is not empty ({table}): it stays as it is. Name another "
                            "database, or drop the schema `twolane` of this one"
                        )
                yield writer

    async def _number_rows(self) -> None:
        """Give numbers to the events and audit lines that have none yet, as a gateway does."""
        store = PostgresqlStore(self._url, place=self._place, size=1)
        try:
            await store.open()
            await store.get_last_event()
            await store.audit(after=0, limit=1)
        finally:
            await store.close()

    @contextmanager
    def _open_connection(self, runner: asyncio.Runner) -> Iterator[TableConnection]:
        connection = cast(TableConnection, runner.run(_translate_errors(connect(self._url))))
        try:
            runner.run(_translate_errors(self._check_version(connection)))
            yield connection
        finally:
            connection.terminate()

    async def _check_version(self, connection: TableConnection) -> None:
        """Raise StoreError unless there is a store of this version."""
        if (await connection.fetch(_HAS_SCHEMA))[0][0] is None:
            raise StoreError(f"there is no store in {self._place!r}: name the database of one")
        ((version,),) = await connection.fetch("SELECT max(version) FROM twolane.schema_versions")
        if version != SCHEMA[-1].version:
            way_out = (
                "use the newer program" if version > SCHEMA[-1].version else "start this version of the gateway once"
            )
            raise StoreError(
                f"the store {self._place!r} has version {version} of its schema, and this program copies "
                f"{SCHEMA[-1].version}: {way_out}"
            )

    async def _refuse_if_in_use(self, connection: TableConnection) -> None:
        """Raise StoreError if a gateway is connected. The connections of one that has just ended last a moment."""
        deadline_s = time.monotonic() + GONE_S
        while (await connection.fetch(_IN_USE))[0][0]:
            if time.monotonic() >= deadline_s:
                raise StoreError(
                    f"a gateway uses the store {self._place!r}: stop it. If only connections of a pooler are left "
                    "(PgBouncer), name the database itself, and close them"
                )
            await asyncio.sleep(LOOK_AGAIN_S)


def _build_select(table: str) -> str:
    if (statement := _SELECTS.get(table)) is not None:
        return statement
    columns = ", ".join(f'"{column}"' for column in TABLES[table])
    order = _ORDERS.get(table)
    return f"SELECT {columns} FROM twolane.{table}" + ("" if order is None else f" ORDER BY {order}")


def _build_lock() -> str:
    names = ", ".join(f"twolane.{table}" for table in ("new_events", "seals", *(TABLES.keys() - {"sequences"})))
    return f"BEGIN; LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE"


def _restore_row(value: Any) -> TableValue:
    if isinstance(value, str):
        return restore_text(value)
    return int(value) if isinstance(value, bool) else cast(TableValue, value)


def _escape(row: TableRow, *, booleans: Sequence[int]) -> list[TableValue]:
    record = [escape_text(value) if isinstance(value, str) else value for value in row]
    for place in booleans:
        value = record[place]
        record[place] = None if value is None else bool(value)
    return record


def _read_idle_since(run: Mapping[str, TableValue]) -> TableValue:
    """Return the column `idle_s` of a run (sql/runs.sql)."""
    return run["updated_s"] if run["owner"] is None or run["state"] in ENDED else None


async def _translate_errors(work: Awaitable[T]) -> T:
    try:
        return await work
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise translate_error(error) from error
