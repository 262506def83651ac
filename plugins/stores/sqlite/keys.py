"""The keys of the SQLite store: the methods of `KeyStore`, on the threads of the store."""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial

from gateway.plugin import Adding, AuditLine, StoredKey

from .connection_thread import SqliteWork
from .journal_tx import execute_audited
from .rows import Rows
from .transactions import Lasts

KEYS = Rows(StoredKey)

_COLUMNS = ", ".join(KEYS.names)
_VALID = "revoked_s IS NULL AND (expires_s IS NULL OR expires_s > ?)"
ADD = f"INSERT INTO keys ({_COLUMNS}) VALUES ({', '.join('?' * len(KEYS.names))})"  # noqa: S608 - constants
TAKEN = f"SELECT count(*), coalesce(sum(name = ?2), 0) FROM keys WHERE {_VALID.replace('?', '?1')}"  # noqa: S608
ONE = f"SELECT {_COLUMNS} FROM keys WHERE tenant = ? AND id = ?"  # noqa: S608
NEWEST = f"SELECT {_COLUMNS} FROM keys WHERE tenant = ? ORDER BY number DESC LIMIT ?"  # noqa: S608
BEHIND = f"""SELECT {_COLUMNS} FROM keys WHERE tenant = ?1
    AND number < (SELECT number FROM keys WHERE tenant = ?1 AND id = ?2) ORDER BY number DESC LIMIT ?3"""  # noqa: S608
IN_USE = f"SELECT {_COLUMNS} FROM keys WHERE revoked_s IS NULL ORDER BY number"  # noqa: S608
END = f"""UPDATE keys SET expires_s = min(coalesce(expires_s, ?1), ?1) WHERE tenant = ?2 AND id = ?3
    AND {_VALID.replace("?", "?4")} AND NOT EXISTS (SELECT 1 FROM keys AS next WHERE next.rotated_from = ?3)"""  # noqa: S608
REVOKE = f"""UPDATE keys SET revoked_s = ?1, revoked_by = ?2 WHERE tenant = ?3 AND id = ?4
    AND {_VALID.replace("?", "?1")}"""  # noqa: S608
#: By this count each process sees that a key has changed.
CHANGES = "SELECT coalesce(max(value), 0) FROM counters WHERE name = 'keys'"
CHANGED = "INSERT INTO counters VALUES ('keys', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
USED = "UPDATE keys SET used_s = ?2 WHERE id = ?1 AND coalesce(used_s, 0) < ?2"
PRUNE = """DELETE FROM keys WHERE number IN
    (SELECT number FROM keys WHERE coalesce(revoked_s, expires_s) < ? LIMIT ?)"""


class SqliteKeys(SqliteWork):
    """The part of a store for keys."""

    async def add_key(self, key: StoredKey, *, most: int, audit: Sequence[AuditLine]) -> Adding:
        return await self._write(partial(insert_key, key=key, most=most, audit=audit), lasts=Lasts.FOR_SURE)

    async def rotate_key(self, key: StoredKey, *, until_s: float, audit: Sequence[AuditLine]) -> bool:
        return await self._write(partial(replace_key, key=key, until_s=until_s, audit=audit), lasts=Lasts.FOR_SURE)

    async def revoke_key(self, key_id: str, *, tenant: str, by: str, now_s: float, audit: Sequence[AuditLine]) -> bool:
        work = partial(execute_counted, statement=REVOKE, values=(now_s, by, tenant, key_id), audit=audit)
        return await self._write(work, lasts=Lasts.FOR_SURE)

    async def get_key(self, key_id: str, *, tenant: str) -> StoredKey | None:
        return await self._fetch_first(KEYS, ONE, (tenant, key_id))

    async def list_keys(self, *, tenant: str, after: str | None = None, limit: int) -> Sequence[StoredKey]:
        if after is None:
            return await self._fetch_all(KEYS, NEWEST, (tenant, limit))
        return await self._fetch_all(KEYS, BEHIND, (tenant, after, limit))

    async def list_keys_in_use(self) -> Sequence[StoredKey]:
        return await self._fetch_all(KEYS, IN_USE, ())

    async def count_key_changes(self) -> int:
        return int(await self._read(lambda c: c.execute(CHANGES).fetchone()[0]))

    async def note_key_use(self, used_s: Mapping[str, float]) -> None:
        await self._write(lambda c: c.executemany(USED, used_s.items()).rowcount)


def insert_key(connection: sqlite3.Connection, *, key: StoredKey, most: int, audit: Sequence[AuditLine]) -> Adding:
    """Store a key unless there are `most`, or one of its name. Return what became of it."""
    count, same = connection.execute(TAKEN, (key.created_s, key.name)).fetchone()
    if same:
        return "name_taken"
    if count >= most:
        return "full"
    execute_counted(connection, statement=ADD, values=KEYS.values(key), audit=audit)
    return "added"


def replace_key(connection: sqlite3.Connection, *, key: StoredKey, until_s: float, audit: Sequence[AuditLine]) -> bool:
    """Store a key in the place of another one. Return whether that one was valid and had no successor."""
    which = (until_s, key.tenant, key.rotated_from, key.created_s)
    if not connection.execute(END, which).rowcount:
        return False
    return execute_counted(connection, statement=ADD, values=KEYS.values(key), audit=audit)


def execute_counted(
    connection: sqlite3.Connection, *, statement: str, values: Sequence[object], audit: Sequence[AuditLine]
) -> bool:
    """Execute a statement, and if it changed a row, count that and write `audit`. Return whether it did."""
    is_changed = execute_audited(connection, statement=statement, values=values, audit=audit)
    if is_changed:
        connection.execute(CHANGED)
    return is_changed


def prune_keys(connection: sqlite3.Connection, *, before_s: float, limit: int) -> int:
    """Delete the keys that ended before, up to `limit`. Return how many."""
    return connection.execute(PRUNE, (before_s, limit)).rowcount
