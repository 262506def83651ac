"""The parts that all methods of the PostgreSQL store share: its connections, and rows as records."""

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from gateway.plugin import StoreError

from .pool import PostgresqlPool, Row
from .rows import PostgresqlRows
from .text_codec import encode_json

RecordT = TypeVar("RecordT")


class PostgresqlBase:
    """The calls of a store on its database. `place` names it in messages."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._pool: PostgresqlPool | None = None

    async def _read(self, sql: str, *values: object) -> Sequence[Row]:
        """Return the rows of a query that changes nothing."""
        return await self._get_pool().read(sql, *values)

    async def _write(self, sql: str, *values: object) -> Sequence[Row]:
        """Return the rows of a statement that writes; see `PostgresqlPool.write`."""
        return await self._get_pool().write(sql, *values)

    async def _call(self, function: str, *values: object) -> Sequence[Row]:
        """Return the rows of a function that writes, whose first two parameters are the identity of the write."""
        return await self._write(_build_call(function, len(values)), *values)

    async def _call_value(self, function: str, *values: object) -> Any:
        """Return the one value of a function that writes."""
        ((value,),) = await self._call(function, *values)
        return value

    async def _fetch_all(self, rows: PostgresqlRows[RecordT], sql: str, *values: object) -> Sequence[RecordT]:
        return [rows.from_row(row) for row in await self._read(sql, *values)]

    async def _fetch_first(self, rows: PostgresqlRows[RecordT], sql: str, *values: object) -> RecordT | None:
        return next(iter(await self._fetch_all(rows, sql, *values)), None)

    def _get_pool(self) -> PostgresqlPool:
        if self._pool is None:
            raise StoreError(f"the store {self.place!r} is not open")
        return self._pool


@cache
def _build_call(function: str, count: int) -> str:
    places = ", ".join(f"${place}" for place in range(1, count + 3))
    return f"SELECT * FROM twolane.{function}({places})"  # noqa: S608 - names of this plugin


def list_json(rows: PostgresqlRows[RecordT], records: Sequence[RecordT]) -> str | None:
    """Return records as a JSON parameter; None for none of them."""
    return to_json([rows.to_json(record) for record in records]) if records else None


def to_json(value: object) -> str:
    """Return a value as a JSON parameter. Raises StoreError for text that cannot be stored."""
    try:
        return encode_json(value)
    except TypeError as error:
        raise StoreError(f"text that is not Unicode cannot be stored: {error}") from None
