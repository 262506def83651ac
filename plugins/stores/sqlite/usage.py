"""The usage of the SQLite store: the methods of `UsageStore`, on the threads of the store."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gateway.plugin import DIMENSIONS, Dimension, StoredUsage

from .rows import Rows
from .thread import SqliteWork

USAGE = Rows(StoredUsage)
_KEY: Final = (*DIMENSIONS, "currency")
_SUMS: Final = tuple(name for name in USAGE.names if name not in _KEY)
_ADD: Final = f"""INSERT INTO usage ({", ".join(USAGE.names)}) VALUES ({", ".join("?" * len(USAGE.names))})
    ON CONFLICT (tenant, day, key, model, upstream, lane, currency) DO UPDATE SET
    {", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMS)}"""  # noqa: S608 - names of columns
_MARK: Final = "INSERT OR REPLACE INTO usage_writers (writer, added_s) VALUES (?, ?)"
_UNMARK: Final = "DELETE FROM usage_writers WHERE writer = ?"
_LOST: Final = "DELETE FROM usage_writers WHERE added_s < ? RETURNING added_s"
_CHANGES: Final = "SELECT day, changes FROM usage_days WHERE day >= ? AND day <= ?"
_PRUNE: Final = "DELETE FROM usage WHERE day < ?"
_PRUNE_DAYS: Final = "DELETE FROM usage_days WHERE day < ?"


class SqliteUsage(SqliteWork):
    """The part of a store for usage."""

    async def add_usage(self, usage: Sequence[StoredUsage], *, writer: str, now_s: float) -> None:
        rows = [USAGE.values(one) for one in usage]

        def add(connection: sqlite3.Connection) -> None:
            connection.executemany(_ADD, rows)
            connection.execute(_MARK, (writer, now_s))

        await self._write(add)

    async def end_usage(self, writer: str) -> None:
        await self._write(lambda c: c.execute(_UNMARK, (writer,)).rowcount)

    async def lost_usage(self, *, before_s: float) -> Sequence[float]:
        return await self._write(lambda c: [row[0] for row in c.execute(_LOST, (before_s,)).fetchall()])

    async def usage(
        self, *, since: str, until: str, by: Collection[Dimension], tenant: str | None
    ) -> Sequence[StoredUsage]:
        statement = _select(by, of_one=tenant is not None)
        return await self._all(USAGE, statement, (since, until, *(() if tenant is None else (tenant,))))

    async def usage_changes(self, *, since: str, until: str) -> Mapping[str, int]:
        return await self._read(lambda c: dict(c.execute(_CHANGES, (since, until)).fetchall()))

    async def prune_usage(self, *, before: str) -> int:
        def prune(connection: sqlite3.Connection) -> int:
            connection.execute(_PRUNE_DAYS, (before,))
            return connection.execute(_PRUNE, (before,)).rowcount

        return await self._write(prune)


def _select(by: Collection[Dimension], *, of_one: bool) -> str:
    groups = [name for name in _KEY if name in by or name == "currency"]
    columns = [name if name in groups else "''" for name in _KEY] + [f"sum({name})" for name in _SUMS]
    where = "day >= ? AND day <= ?" + (" AND tenant = ?" if of_one else "")
    listed = ", ".join(groups)
    # Only names of columns are put together here.
    return f"SELECT {', '.join(columns)} FROM usage WHERE {where} GROUP BY {listed} ORDER BY {listed}"  # noqa: S608
