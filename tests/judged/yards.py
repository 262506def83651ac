"""Throw-away databases in which statements run for real, and that tell what a statement did to them."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

_TABLES: Final = "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT); CREATE TABLE u (a INTEGER, c TEXT);"
_ROWS: Final = "INSERT INTO t VALUES (1, 'x'), (2, 'y'); INSERT INTO u VALUES (1, 'z');"
_VIEW: Final = "CREATE VIEW v AS SELECT a, upper(b) AS b FROM t;"

#: The same for PostgreSQL, whose functions tell by a notice: that outlives what is rolled back.
POSTGRES_BARE: Final = f"""{_TABLES} {_ROWS} {_VIEW} CREATE SEQUENCE s;
    CREATE FUNCTION effect(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''effect''; RETURN 1; END';
    GRANT ALL ON ALL TABLES IN SCHEMA public TO writer; GRANT ALL ON s TO writer; GRANT ALL ON SCHEMA public TO writer;
    ALTER TABLE t OWNER TO writer; ALTER SEQUENCE s OWNER TO writer; ALTER VIEW v OWNER TO writer;"""
#: And with all by which a query can call without naming a function.
POSTGRES_FULL: Final = f"""{POSTGRES_BARE}
    CREATE FUNCTION effect_of(t) RETURNS int LANGUAGE sql AS 'SELECT effect(1)';
    CREATE FUNCTION effect_of(u) RETURNS int LANGUAGE sql AS 'SELECT effect(1)';
    CREATE FUNCTION effect_text(u) RETURNS text LANGUAGE sql AS 'SELECT effect(1)::text';
    CREATE FUNCTION effect_on(int, int) RETURNS int LANGUAGE sql AS 'SELECT effect(1)';
    CREATE OPERATOR ==> (leftarg = int, rightarg = int, function = effect_on);
    CREATE DOMAIN checked AS int CHECK (effect(VALUE) = 1); CREATE TYPE checked_row AS (one checked);
    CREATE VIEW bad AS SELECT effect(1); CREATE VIEW worse AS SELECT * FROM bad; CREATE VIEW "odd one" AS TABLE bad;
    CREATE TABLE guarded (a int); INSERT INTO guarded VALUES (1); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
    CREATE POLICY p ON guarded USING (effect(a) = 1);
    CREATE FUNCTION effect_at_once(int) RETURNS int IMMUTABLE LANGUAGE plpgsql
        AS 'BEGIN RAISE NOTICE ''effect''; RETURN 1; END';
    CREATE CAST (u AS int) WITH FUNCTION effect_of(u); CREATE CAST (u AS varchar) WITH FUNCTION effect_text(u);
    CREATE DOMAIN over_checked AS checked; CREATE DOMAIN checked_list AS checked[];
    CREATE DOMAIN "odd checked" AS checked;
    CREATE TYPE row_of_row AS (inner_row checked_row); CREATE TYPE checked_range AS RANGE (subtype = checked);
    CREATE TABLE holder (one checked, list checked[], inner_row row_of_row);
    INSERT INTO holder VALUES (1, '{{1}}', '("(1)")');
    CREATE VIEW casting AS SELECT a::over_checked FROM t; CREATE VIEW "quo""ted" AS SELECT effect(1);
    CREATE VIEW over_casting AS SELECT count(*) FROM casting;
    CREATE TABLE planned (a int); CREATE INDEX ON planned (a) WHERE a > effect_at_once(1);
    CREATE TABLE written (a int DEFAULT effect_at_once(1), b int);
    CREATE TYPE pair AS (x int, y int); CREATE FUNCTION compared(pair, pair) RETURNS int IMMUTABLE LANGUAGE plpgsql
        AS 'BEGIN RAISE NOTICE ''effect''; RETURN 0; END';
    CREATE FUNCTION is_less(pair, pair) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
    CREATE OPERATOR <<<< (leftarg = pair, rightarg = pair, function = is_less);
    CREATE OPERATOR ==== (leftarg = pair, rightarg = pair, function = is_less);
    CREATE OPERATOR CLASS pair_ops DEFAULT FOR TYPE pair USING btree AS
        OPERATOR 1 <<<<, OPERATOR 3 ====, FUNCTION 1 compared(pair, pair);
    CREATE TABLE pairs (p pair); INSERT INTO pairs VALUES ('(1,2)'), ('(3,4)');
    GRANT ALL ON ALL TABLES IN SCHEMA public TO writer;"""
_POSTGRES_STATE: Final = """SELECT
    (SELECT string_agg(t::text, ',' ORDER BY a) FROM t), (SELECT string_agg(u::text, ',') FROM u),
    (SELECT last_value::text || is_called FROM s), (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc),
    (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_description),
    (SELECT count(*) FROM pg_attribute), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
        OR locktype = 'relation' AND relation >= 16384 AND pid <> pg_backend_pid()),
    (SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings WHERE source = 'session')"""
_MOST_STEPS: Final = 200  # times 10,000 of SQLite's machine


class Yard(Protocol):
    """One database. What a statement did is in `told`, at once, or in a state that is another one."""

    told: list[str]
    executed: int  # statements that ran to their end

    async def run(self, sql: str) -> None: ...

    async def state(self) -> Sequence[object]: ...


class SqliteYard:
    """A file in a folder of its own, opened with no fence at all; functions that act tell."""

    def __init__(self, folder: Path, *, full: bool) -> None:
        folder.mkdir()
        self.folder = folder
        self.place = folder / "data.db"
        self.told: list[str] = []
        self.executed = 0
        self._connection = sqlite3.connect(self.place, isolation_level=None)
        for name in ("effect", "load_extension", "sqlite_log", "fts3_tokenizer", "optimize", "fsdir", "readfile"):
            for arguments in (-1, 1, 2):  # a built-in one with that many would go before
                self._connection.create_function(name, arguments, self._telling(name))
        self._connection.executescript(_TABLES + _ROWS + _VIEW)
        if full:
            self._connection.executescript("CREATE VIEW bad AS SELECT sqlite_log(1, 'x') AS a, 'x' AS b;")
        self._left = 0
        self._connection.set_progress_handler(self._tick, 10_000)

    async def run(self, sql: str) -> None:
        """All statements of a text, with NULL for each parameter."""
        self._left = _MOST_STEPS
        with suppress(sqlite3.Error, sqlite3.Warning, ValueError):
            self._connection.executescript(sql)
            self.executed += 1
        if self._connection.in_transaction:
            self.told.append("a transaction is open")

    async def state(self) -> Sequence[object]:
        self._left = _MOST_STEPS  # the last statement may have taken all of its own
        pragmas = ("user_version", "schema_version", "journal_mode", "query_only", "foreign_keys")
        settings = [self._connection.execute(f"PRAGMA {name}").fetchall() for name in pragmas]
        files = sorted(path.name for path in self.folder.iterdir())
        opened = self._connection.execute("SELECT name FROM pragma_database_list WHERE name <> 'temp'").fetchall()
        temporary = self._connection.execute("SELECT count(*) FROM sqlite_temp_master").fetchall()
        return (*self._connection.iterdump(), settings, files, opened, temporary, self.place.read_bytes())

    def close(self) -> None:
        self._connection.close()

    def _telling(self, name: str) -> Callable[..., int]:
        def tell(*_: object) -> int:
            self.told.append(f"{name} was called")
            return 1

        return tell

    def _tick(self) -> bool:
        self._left -= 1
        return self._left < 0


class PostgresYard:
    """A database of the test's server, by the role that owns its tables, in the protocol of several statements."""

    def __init__(self, connection: Any, cancelled: type[Exception], failed: tuple[type[Exception], ...]) -> None:
        self._connection = connection
        self._cancelled = cancelled
        self._failed = failed
        self.told: list[str] = []
        self.executed = 0
        connection.add_log_listener(
            lambda _, notice: self.told.extend(["called"] if notice.message == "effect" else [])
        )

    async def run(self, sql: str) -> None:
        try:
            await self._connection.execute(sql)
            self.executed += 1
        except self._cancelled:
            self.told.append("it slept, or waited")
        except self._failed:
            pass
        if self._connection.is_in_transaction():
            self.told.append("a transaction is open")

    async def state(self) -> Sequence[object]:
        return list(await self._connection.fetchrow(_POSTGRES_STATE))
