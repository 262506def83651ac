"""The connections of one process to PostgreSQL, and the calls on them.

1. Every call is one statement, and one transaction. It is carried out to its end also if its caller stops waiting: a
   statement that is cancelled may have taken effect.
2. A write whose connection breaks is sent again under the same number, on a new connection. The server carries it out
   once (`begin_write` in sql/base.sql). After `RETRY_S` its outcome is given up as unknown.
3. Nothing depends on the session: behind PgBouncer each statement may have another server connection. Only where the
   server process is the connection's own does it keep prepared statements, which save a round trip and the parsing.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import asyncpg

from gateway.plugin import StoreError, UncertainError

from .failures import is_lost, is_repeatable, translate_error
from .text_codec import encode_value

log = logging.getLogger("gateway")

Row = Sequence[Any]

#: For one statement; for a connection.
ANSWER_S, CONNECT_S = 10.0, 3.0
#: So long a call is tried again while the server is away, with this pause.
RETRY_S, PAUSE_S = 5.0, 0.1
#: For telling the server that a connection ends.
CLOSE_S: Final = 0.5


#: Statements that a connection keeps prepared. The texts of lists depend on their filters; most have no more than 60.
MOST_PREPARED: Final = 100


class ParsedStatement(Protocol):
    """A statement that the server has parsed."""

    async def fetch(self, *values: object) -> Sequence[Row]: ...


class PostgresqlConnection(Protocol):
    """The part of asyncpg's connection that is used here. asyncpg itself has no type hints."""

    async def fetch(self, sql: str, *values: object) -> Sequence[Row]: ...

    async def prepare(self, sql: str, *, name: str) -> ParsedStatement: ...

    def get_server_pid(self) -> int: ...

    async def execute(self, sql: str) -> str: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float) -> None: ...


async def connect(url: str) -> PostgresqlConnection:
    """Connect to the database of a URL. Raises what asyncpg and the operating system raise."""
    # Named statements would meet those of other clients on a server connection of PgBouncer.
    opened = await asyncpg.connect(
        url, timeout=CONNECT_S, statement_cache_size=0, server_settings={"application_name": "twolane"}
    )
    return cast(PostgresqlConnection, opened)


class PostgresqlSlot:
    """The place of one connection. Its writes are numbered, and only one of them is under way."""

    def __init__(self, url: str, writer: str) -> None:
        self._url = url
        self.writer = writer
        self.number = 0
        self._connection: PostgresqlConnection | None = None
        #: By their texts; None: the connection is a pooler's.
        self._prepared: dict[str, ParsedStatement] | None = None
        self._names = map("twolane_{}".format, itertools.count())

    async def open(self) -> None:
        """Connect unless there is a connection that works."""
        if self._connection is None or self._connection.is_closed():
            self._prepared = None
            self._connection = await connect(self._url)
            async with asyncio.timeout(CONNECT_S):
                ((server_pid,),) = await self._connection.fetch("SELECT pg_backend_pid()")
            # Poolers give their clients numbers of their own, by which statements are cancelled.
            self._prepared = {} if server_pid == self._connection.get_server_pid() else None

    async def fetch(self, sql: str, values: Sequence[object], *, timeout_s: float) -> Sequence[Row]:
        assert self._connection is not None
        async with asyncio.timeout(timeout_s):
            statement = await self._prepare(sql)
            if statement is None:
                return await self._connection.fetch(sql, *values)
            try:
                return await statement.fetch(*values)
            except asyncpg.InvalidCachedStatementError:  # a newer gateway changed the schema; it was not carried out
                self._prepared = {}
                return await self._connection.fetch(sql, *values)

    async def _prepare(self, sql: str) -> ParsedStatement | None:
        """Return the prepared statement, or None if the connection keeps none of this text."""
        if self._prepared is None:
            return None
        statement = self._prepared.get(sql)
        if statement is None and len(self._prepared) < MOST_PREPARED:
            assert self._connection is not None
            statement = await self._connection.prepare(sql, name=next(self._names))
            self._prepared[sql] = statement
        return statement

    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        return self._connection is not None and self._connection.is_closed()

    def drop(self) -> None:
        """Break the connection, whose state is unknown."""
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            try:
                await self._connection.close(timeout=CLOSE_S)
            except Exception:  # the connection is gone in any case
                self.drop()
        self._connection = None


class PostgresqlPool:
    """Up to `size` connections. `read` and `write` raise StoreError, also once the pool is closed.

    `name` is how messages name the store.
    """

    def __init__(self, url: str, *, size: int, name: str) -> None:
        self._name = name
        process = secrets.token_hex(8)  # fresh for each process: never the host's, which several processes share
        self._slots = [PostgresqlSlot(url, f"{process}/{number}") for number in range(size)]
        self._free: asyncio.LifoQueue[PostgresqlSlot] = asyncio.LifoQueue()
        for slot in reversed(self._slots):
            self._free.put_nowait(slot)
        self._calls: set[asyncio.Task[Sequence[Row]]] = set()
        self._is_closed = False
        #: Since when the server has been away, by the loop's clock.
        self._away_since_s: float | None = None

    async def read(self, sql: str, *values: object) -> Sequence[Row]:
        """Return the rows of a query that changes nothing."""
        return await self._run_statement(sql, values, is_write=False)

    async def write(self, sql: str, *values: object) -> Sequence[Row]:
        """Return the rows of a statement that writes: a call of a function of the schema.

        Its first two values are the identity of the write, which is put before `values`. Raises ConflictError;
        UncertainError if the outcome is unknown.
        """
        return await self._run_statement(sql, values, is_write=True)

    async def close(self) -> None:
        """Close the connections once the calls under way have ended. Idempotent."""
        self._is_closed = True
        while self._calls:
            await asyncio.wait(self._calls)
        await asyncio.gather(*(slot.close() for slot in self._slots))

    async def _run_statement(self, sql: str, values: Sequence[object], *, is_write: bool) -> Sequence[Row]:
        if self._is_closed:
            raise StoreError(f"the store {self._name!r} is closed")
        call = asyncio.create_task(self._run(sql, values, is_write=is_write))
        self._calls.add(call)
        call.add_done_callback(self._forget_call)
        return await asyncio.shield(call)

    def _forget_call(self, call: "asyncio.Task[Sequence[Row]]") -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # of a call whose caller is gone

    async def _run(self, sql: str, values: Sequence[object], *, is_write: bool) -> Sequence[Row]:
        encoded = [encode_value(value) for value in values]
        slot = await self._free.get()
        try:
            if is_write:
                slot.number += 1
                encoded = [slot.writer, slot.number, *encoded]
            return await self._retry_statement(slot, sql, encoded, is_write=is_write)
        finally:
            self._free.put_nowait(slot)

    async def _retry_statement(
        self, slot: PostgresqlSlot, sql: str, values: Sequence[object], *, is_write: bool
    ) -> Sequence[Row]:
        """Send a statement until its outcome is known, for `RETRY_S` after the first failure."""
        loop = asyncio.get_running_loop()
        end_s: float | None = None
        is_sent = False
        is_first = True
        while True:
            has_connected = False
            try:
                await slot.open()
                has_connected, self._away_since_s = True, None
                left_s = ANSWER_S if end_s is None else max(end_s - loop.time(), PAUSE_S)
                rows = await slot.fetch(sql, values, timeout_s=min(ANSWER_S, left_s))
            except Exception as error:
                is_broken = is_lost(error) or slot.is_broken()
                if is_broken:
                    slot.drop()
                    is_sent |= has_connected and is_write
                elif not is_repeatable(error):
                    raise translate_error(error) from error
                now_s = loop.time()
                if not has_connected and self._away_since_s is None:
                    self._away_since_s = now_s
                if end_s is None:
                    end_s = RETRY_S + (now_s if has_connected or self._away_since_s is None else self._away_since_s)
                if now_s >= end_s:
                    if is_sent:
                        raise UncertainError(
                            f"PostgreSQL went away while it wrote, and whether it did is unknown: {error!r}"
                        ) from error
                    raise translate_error(error) from error
                if has_connected and is_first:
                    log.warning("a call of the store %s is sent again: %r", self._name, error)
                # An idle connection may be gone while the server is there. PgBouncer takes connections without it.
                if not (is_first and has_connected and is_broken):
                    await asyncio.sleep(PAUSE_S)
                is_first = False
            else:
                return rows
