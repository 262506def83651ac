"""A connection to PostgreSQL, on which all questions but a statement's have the server's own names."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import asyncpg

from .engine import StatementError
from .postgres_meter import Column

CLOSE_S: Final = 0.5  # for telling PostgreSQL to stop
#: What a connection begins with. A pooler (PgBouncer) takes few settings and passes on fewer: all others belong to one
#: transaction.
_CONNECTING: Final = {"application_name": "twolane", "standard_conforming_strings": "on"}
#: Names in our own questions mean the server's own objects. The database's path could lead to a user's operator that
#: fits better, or to a table that another client of a pooler made.
OWN_NAMES: Final = "search_path = pg_catalog, pg_temp"
#: Around our questions in a transaction. Behind them the path is what it was, also where a pooler has set it.
ASKING: Final = ("SAVEPOINT asking", f"SET LOCAL {OWN_NAMES}")
ASKED: Final = "ROLLBACK TO SAVEPOINT asking; RELEASE SAVEPOINT asking"
_ASKING_ALONE: Final = f"BEGIN READ ONLY; SET LOCAL {OWN_NAMES}"


class _Attribute(Protocol):
    @property
    def name(self) -> str: ...


class _Cursor(Protocol):
    async def fetch(self, n: int) -> Sequence[Sequence[object]]: ...


class PreparedStatement(Protocol):
    """The part of asyncpg's prepared statement that is used here. asyncpg itself has no type hints."""

    def get_attributes(self) -> Sequence[Column]: ...

    def get_parameters(self) -> Sequence[_Attribute]: ...

    async def fetch(self, *params: object) -> object: ...

    def get_statusmsg(self) -> str: ...

    async def cursor(self, *params: object) -> _Cursor: ...


class Connection(Protocol):
    """The part of asyncpg's connection that is used here."""

    _transport: asyncio.Transport

    async def fetch(self, sql: str, *params: object) -> Sequence[Sequence[Any]]: ...

    async def fetchval(self, sql: str) -> object: ...

    async def prepare(self, sql: str, *, name: str) -> PreparedStatement: ...

    async def execute(self, sql: str) -> str: ...

    def get_server_pid(self) -> int: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float) -> None: ...


class _TypeLookupConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection of asyncpg, which looks up each unknown type in the catalogue itself.

    It writes names there that the database's path may lead elsewhere.
    """

    #: Where asyncpg has no such method any more, the tool must not start: it would ask in a way unknown to us.
    _ask = asyncpg.Connection._introspect_types

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> object:
        inside = self.is_in_transaction()
        await self.execute("; ".join(ASKING) if inside else _ASKING_ALONE)
        found = await self._ask(typeoids, timeout)
        await self.execute(ASKED if inside else "ROLLBACK")  # the path is what it was: a question's, or the statement's
        return found


async def connect(url: str, *, cached: int = 0) -> Connection:
    """Connect to the server. `cached`: prepared statements that are kept. Raises StatementError."""
    try:
        connection: Connection = await asyncpg.connect(
            url, statement_cache_size=cached, server_settings=_CONNECTING, connection_class=_TypeLookupConnection
        )
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StatementError(f"the database cannot be reached ({type(error).__name__})") from None
    return connection


async def end_connection(connection: Connection) -> None:
    """Close the connection, so that the server stops what runs there."""
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=CLOSE_S)
