"""Keys in the PostgreSQL store: the methods of `KeyStore` (`sql/keys.sql`)."""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.plugin import Adding, AuditLine, StoredKey

from .base import PostgresqlBase, list_json, to_json
from .rows import PostgresqlRows, to_arrays
from .runs import AUDIT

KEYS = PostgresqlRows(StoredKey)

_KEYS: Final = f"SELECT {KEYS.list_columns()} FROM twolane.keys"
_ONE: Final = f"{_KEYS} WHERE tenant = $1 AND id = $2"
_NEWEST: Final = f"{_KEYS} WHERE tenant = $1 ORDER BY number DESC LIMIT $2"
_BEHIND: Final = f"""{_KEYS} WHERE tenant = $1
    AND number < (SELECT number FROM twolane.keys WHERE tenant = $1 AND id = $3) ORDER BY number DESC LIMIT $2"""
_IN_USE: Final = f"{_KEYS} WHERE revoked_s IS NULL ORDER BY number"
#: By this count each process sees that a key has changed.
_CHANGES: Final = "SELECT value FROM twolane.counters WHERE name = 'keys'"


class PostgresqlKeys(PostgresqlBase):
    """The part of a store for keys."""

    async def add_key(self, key: StoredKey, *, most: int, audit: Sequence[AuditLine]) -> Adding:
        outcome: Adding = await self._call_value("add_key", to_json(KEYS.to_json(key)), most, list_json(AUDIT, audit))
        return outcome

    async def rotate_key(self, key: StoredKey, *, until_s: float, audit: Sequence[AuditLine]) -> bool:
        facts = (to_json(KEYS.to_json(key)), until_s, list_json(AUDIT, audit))
        return bool(await self._call_value("rotate_key", *facts))

    async def revoke_key(self, key_id: str, *, tenant: str, by: str, now_s: float, audit: Sequence[AuditLine]) -> bool:
        facts = (key_id, tenant, by, now_s, list_json(AUDIT, audit))
        return bool(await self._call_value("revoke_key", *facts))

    async def get_key(self, key_id: str, *, tenant: str) -> StoredKey | None:
        return await self._fetch_first(KEYS, _ONE, tenant, key_id)

    async def list_keys(self, *, tenant: str, after: str | None = None, limit: int) -> Sequence[StoredKey]:
        if after is None:
            return await self._fetch_all(KEYS, _NEWEST, tenant, limit)
        return await self._fetch_all(KEYS, _BEHIND, tenant, limit, after)

    async def list_keys_in_use(self) -> Sequence[StoredKey]:
        return await self._fetch_all(KEYS, _IN_USE)

    async def count_key_changes(self) -> int:
        ((value,),) = await self._read(_CHANGES)
        return int(value)

    async def note_key_use(self, used_s: Mapping[str, float]) -> None:
        await self._call("note_key_use", *to_arrays(used_s.items(), 2))
