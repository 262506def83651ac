"""The usage of the SQLite store: the methods of `UsageStore`, on the threads of the store."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Final

from gateway.plugin import DIMENSIONS, MOST_USAGE, Dimension, StoredUsage

from .connection_thread import SqliteWork
from .rows import Rows

USAGE = Rows(StoredUsage)
_KEY: Final = (*DIMENSIONS, "currency")
_SUMS: Final = tuple(name for name in USAGE.names if name not in _KEY)
_ADD: Final = f"""INSERT INTO usage ({", ".join(USAGE.names)}) VALUES ({", ".join("?" * len(USAGE.names))})
    ON CONFLICT (tenant, day, key, model, upstream, lane, currency) DO UPDATE SET
    {", ".join(f"{name} = min({name} + excluded.{name}, {MOST_USAGE})" for name in _SUMS)}"""  # noqa: S608 - names of columns
_MARK: Final = """INSERT INTO usage_writers (writer, added_s, number) VALUES (?, ?, ?) ON CONFLICT (writer) DO UPDATE
    SET added_s = excluded.added_s, number = excluded.number WHERE number < excluded.number"""
_UNMARK: Final = "DELETE FROM usage_writers WHERE writer = ?"
_LOST: Final = "DELETE FROM usage_writers WHERE added_s < ? RETURNING added_s"
_CHANGES: Final = "SELECT day, changes FROM usage_days WHERE day >= ? AND day <= ?"
_HAS_DAY: Final = "SELECT 1 FROM usage WHERE day = ? LIMIT 1"
#: So many values are looked up by one statement.
_AT_ONCE: Final = 500
_PRUNE: Final = "DELETE FROM usage WHERE day < ?"
_PRUNE_DAYS: Final = "DELETE FROM usage_days WHERE day < ?"


#: Gateways at work stand among the duties, each under a unique name, which no process takes as a duty.
_ATTEND: Final = "INSERT OR REPLACE INTO duties (name, owner, until_s) VALUES ('gateway ' || ?1, ?1, ?2)"
_FORGET: Final = "DELETE FROM duties WHERE name >= 'gateway ' AND name < 'gateway!' AND until_s < ?"
_LEAVE: Final = "DELETE FROM duties WHERE name = 'gateway ' || ?"
_ATTENDING: Final = "SELECT count(*) FROM duties WHERE name >= 'gateway ' AND name < 'gateway!' AND until_s >= ?"


class SqliteUsage(SqliteWork):
    """The part of a store for usage."""

    async def add_usage(self, usage: Sequence[StoredUsage], *, writer: str, number: int, now_s: float) -> None:
        rows = [USAGE.values(one) for one in usage]

        def add(connection: sqlite3.Connection) -> None:
            if connection.execute(_MARK, (writer, now_s, number)).rowcount:
                connection.executemany(_ADD, rows)

        await self._write(add)

    async def end_usage(self, writer: str) -> None:
        await self._write(lambda c: c.execute(_UNMARK, (writer,)).rowcount)

    async def forget_lost_usage(self, *, before_s: float) -> Sequence[float]:
        return await self._write(lambda c: [row[0] for row in c.execute(_LOST, (before_s,)).fetchall()])

    async def sum_usage(
        self,
        *,
        since: str,
        until: str,
        by: Sequence[Dimension],
        tenant: str | None,
        only: Collection[Sequence[str]] | None = None,
    ) -> Sequence[StoredUsage]:
        days = (since,) if since == until else (since, until)
        values = (*days, *(() if tenant is None else (tenant,)))
        if only is None:
            return await self._fetch_all(USAGE, _select(by, days=len(days), of_one=tenant is not None), values)
        found: list[StoredUsage] = []
        if len(days) == 1 and not await self._read(lambda c: c.execute(_HAS_DAY, days).fetchone()):
            return found
        ordered = sorted(set(map(tuple, only)))
        for begin in range(0, len(ordered), _AT_ONCE):  # other work goes on between two
            part = ordered[begin : begin + _AT_ONCE]
            statement = _select(by, days=len(days), of_one=tenant is not None, only=len(part))
            found += await self._fetch_all(USAGE, statement, (*chain.from_iterable(part), *values))
        return found

    async def list_usage_changes(self, *, since: str, until: str) -> Mapping[str, int]:
        return await self._read(lambda c: dict(c.execute(_CHANGES, (since, until)).fetchall()))

    async def announce_gateway(self, gateway: str, *, now_s: float, until_s: float) -> None:
        def write_gateway(connection: sqlite3.Connection) -> None:
            connection.execute(_FORGET, (now_s,))
            connection.execute(_ATTEND, (gateway, until_s))

        await self._write(write_gateway)

    async def count_gateways(self, *, now_s: float) -> int:
        count: int = (await self._read(lambda c: c.execute(_ATTENDING, (now_s,)).fetchone()))[0]
        return count

    async def withdraw_gateway(self, gateway: str) -> None:
        await self._write(lambda c: c.execute(_LEAVE, (gateway,)).rowcount)

    async def prune_usage(self, *, before: str) -> int:
        def prune(connection: sqlite3.Connection) -> int:
            connection.execute(_PRUNE_DAYS, (before,))
            return connection.execute(_PRUNE, (before,)).rowcount

        return await self._write(prune)


def _select(by: Sequence[Dimension], *, days: int, of_one: bool, only: int = 0) -> str:
    """Return the statement for one day or, if `days` is 2, from one to another, and for so many values of `by`."""
    groups = [name for name in _KEY if name in by or name == "currency"]
    columns = [f"usage.{name}" if name in groups else "''" for name in _KEY]
    columns += [
        f"CAST(min(total({name}), {MOST_USAGE}) AS INTEGER)" for name in _SUMS
    ]  # `sum` fails if it is more than fits
    where = ["day = ?" if days == 1 else "day >= ? AND day <= ?", *(("tenant = ?",) if of_one else ())]
    source, before = "usage", ""
    if only:
        row = f"({', '.join('?' * len(by))})"
        before = f"WITH wanted ({', '.join(f'{name}_' for name in by)}) AS (VALUES {', '.join([row] * only)}) "
        source = "wanted CROSS JOIN usage"  # in this order: each of them is looked up
        where += [f"{name} = {name}_" for name in by]
    listed = ", ".join(groups)
    # Only names of columns are put together here.
    return (
        f"{before}SELECT {', '.join(columns)} FROM {source} WHERE {' AND '.join(where)} "  # noqa: S608
        f"GROUP BY {listed} ORDER BY {listed}"
    )
