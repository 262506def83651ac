"""The leases of workers in the SQLite store: the methods of `ReplicaStore`, each one transaction."""

import sqlite3
import time
from collections.abc import Collection, Sequence
from typing import Final

from gateway.plugin import ReplicaLease

from .connection_thread import SqliteWork

#: A lease whose end is this much further away than a new one's was taken by a clock that was ahead.
_AHEAD_S: Final = 60.0
_HOLD: Final = f"""INSERT INTO replica_leases (name, owner, address, until_s) VALUES (?1, ?2, ?3, ?5)
    ON CONFLICT (name) DO UPDATE SET owner = ?2, address = ?3, until_s = ?5
    WHERE owner = ?2 OR until_s < ?4 OR until_s > ?5 + {_AHEAD_S}"""  # noqa: S608 - a constant
_FORGET: Final = "DELETE FROM replica_leases WHERE until_s < ?"
_ALL: Final = "SELECT name, owner, address FROM replica_leases ORDER BY name"
_RELEASE: Final = "DELETE FROM replica_leases WHERE name = ? AND owner = ?"


class SqliteReplicas(SqliteWork):
    """The part of a store for leases of workers."""

    async def hold_leases(
        self, names: Collection[str], *, owner: str, address: str, now_s: float, until_s: float
    ) -> Sequence[ReplicaLease]:
        called_s = time.monotonic()

        def hold(connection: sqlite3.Connection) -> Sequence[ReplicaLease]:
            # The process may have stood still since: with the time of the call, leases of others would look wrong.
            waited_s = time.monotonic() - called_s
            begins_s, ends_s = now_s + waited_s, until_s + waited_s
            connection.execute(_FORGET, (begins_s,))
            connection.executemany(_HOLD, [(name, owner, address, begins_s, ends_s) for name in names])
            return [
                ReplicaLease(name=name, owner=holder, address=place) for name, holder, place in connection.execute(_ALL)
            ]

        return await self._write(hold)

    async def release_leases(self, names: Collection[str], *, owner: str) -> None:
        await self._write(lambda c: c.executemany(_RELEASE, [(name, owner) for name in names]))
