"""The audit log of a PostgreSQL store, and the state of its server, read beside the gateways by commands.

Lines of the last second may have no number yet: they are not in the chain. A gateway numbers them.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import asyncpg

from gateway.plugin import AuditLine, KeptLine, ServerState, StoreError

from .failures import translate_error
from .migrations import SCHEMA, find_schema_problem, read_script, read_versions
from .pool import PostgresqlConnection, connect
from .rows import PostgresqlRows
from .text_codec import restore_values

T = TypeVar("T")

_LINES = PostgresqlRows(AuditLine)
_PAGE: Final = f"SELECT seq, hash, {_LINES.list_columns()} FROM twolane.audit WHERE seq > $1 ORDER BY seq LIMIT $2"  # noqa: S608 - constants
_TRIGGERS: Final = """SELECT t.tgname, t.tgtype, t.tgenabled::text, p.prosrc
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    WHERE t.tgrelid = 'twolane.audit'::regclass AND NOT t.tgisinternal"""
#: The triggers by name, with PostgreSQL's number of their kind: each fires before its statement.
_KINDS: Final[Mapping[str, int]] = {
    "audit_is_not_changed": 1 | 2 | 16,
    "audit_is_not_deleted": 1 | 2 | 8,
    "audit_is_not_truncated": 2 | 32,
}
_FUNCTION: Final = re.compile(r"FUNCTION twolane\.refuse_audit_change\(\).*?\$\$(.*?)\$\$", re.DOTALL)

#: Without those that are kept for superusers. Since PostgreSQL 16 further ones are kept for a role of the server.
_CONNECTION_LIMIT: Final = """SELECT least(
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true)::integer, 0),
    (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
    (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))"""
_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::double precision"
#: Those that count limits or budgets together, each by its own name.
_GATEWAYS: Final = """SELECT count(*) FROM (
    SELECT gateway FROM twolane.quota_gateways WHERE alive_s >= twolane.now_s()
    UNION SELECT owner FROM twolane.duties
        WHERE name >= 'gateway ' AND name < 'gateway!' AND until_s >= twolane.now_s()) g"""


class PostgresqlReader:
    """The `gateway.contracts.storage.store.StoreFile` of a database. Call it where no event loop runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def audit_log(self, *, after: int, size: int) -> Iterator[list[KeptLine]]:
        with asyncio.Runner() as runner:
            connection = runner.run(_translate_errors(connect(self._url)))
            try:
                while page := [
                    _to_line(row) for row in runner.run(_translate_errors(connection.fetch(_PAGE, after, size)))
                ]:
                    yield page
                    after = page[-1][0]
            finally:
                connection.terminate()

    def audit_guards(self) -> list[str]:
        found = asyncio.run(_translate_errors(self._ask_once(lambda connection: connection.fetch(_TRIGGERS))))
        function = _FUNCTION.search(read_script("audit"))
        assert function is not None, "the function of the triggers stands in audit.sql"
        wanted = {name: (kind, "O", function[1]) for name, kind in _KINDS.items()}
        seen = {name: tuple(facts) for name, *facts in found}
        return sorted(name for name in wanted.keys() | seen.keys() if wanted.get(name) != seen.get(name))

    def write_copy(self, draft: str, *, progress: Callable[[int, int], None]) -> None:
        del draft, progress
        raise StoreError("back a PostgreSQL database up with its own tools, such as pg_dump")

    async def _ask_once(self, ask: Callable[[PostgresqlConnection], Awaitable[T]]) -> T:
        connection = await connect(self._url)
        try:
            return await ask(connection)
        finally:
            connection.terminate()


async def _translate_errors(work: Awaitable[T]) -> T:
    try:
        return await work
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise translate_error(error) from None


def _to_line(row: Sequence[Any]) -> KeptLine:
    seq, found, *values = restore_values(tuple(row))
    return seq, dict(zip(_LINES.names, values, strict=True)), found


def read_state(url: str) -> ServerState:
    """Return the state of the server of a URL. Raises StoreError. Call it where no event loop runs."""
    return asyncio.run(_translate_errors(_read_state(url)))


async def _read_state(url: str) -> ServerState:
    connection = await connect(url)
    try:
        ((limit,),) = await connection.fetch(_CONNECTION_LIMIT)
        ahead_s = await _read_clock(connection)
        version, compatible_from = await read_versions(connection)
        ((gateways,),) = await connection.fetch(_GATEWAYS) if version else ((0,),)
    finally:
        connection.terminate()
    return ServerState(
        connection_limit=int(limit),
        clock_ahead_s=ahead_s,
        schema_version=version,
        known_version=SCHEMA[-1].version,
        schema_problem=find_schema_problem(version, compatible_from, known=SCHEMA[-1].version),
        gateways=int(gateways),
    )


async def _read_clock(connection: PostgresqlConnection) -> float:
    """Return by how much the clock of the server is ahead of this machine's."""
    begin_s = time.time()
    ((now_s,),) = await connection.fetch(_NOW)
    return float(now_s) - (begin_s + time.time()) / 2
