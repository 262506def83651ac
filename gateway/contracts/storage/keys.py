"""Keys that were made at run time, as they are stored: by their SHA-256, never as their text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from gateway.contracts.storage.journal import AuditLine

#: What became of a key that was to be stored: its name is taken, or there are as many keys as a store may have.
Adding: TypeAlias = Literal["added", "name_taken", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key that was made at run time.

    `sha256` (hex) is that of its text, whose last characters are `hint`. `terms` is the JSON object of what it may do,
    as the configuration has it for its keys, without its end. Times are Unix times. `rotated_from` is the id of the key
    in whose place it came. `used_s` is when it was used last, some minutes late.
    """

    id: str
    tenant: str
    name: str
    sha256: str
    hint: str
    terms: str
    created_s: float
    created_by: str
    expires_s: float | None = None
    revoked_s: float | None = None
    revoked_by: str | None = None
    rotated_from: str | None = None
    used_s: float | None = None

    def has_ended(self, now_s: float) -> bool:
        """Return whether the key is not valid any more."""
        return self.revoked_s is not None or (self.expires_s is not None and self.expires_s <= now_s)


class KeyStore(Protocol):
    """The part of a store for keys. A method raises StoreError when it fails; then nothing has changed."""

    async def add_key(self, key: StoredKey, *, most: int, audit: Sequence[AuditLine]) -> Adding:
        """Store a key, unless another one of its name is valid when it is created, or `most` keys are, of all tenants.

        Durable.
        """
        ...

    async def rotate_key(self, key: StoredKey, *, until_s: float, audit: Sequence[AuditLine]) -> bool:
        """Store a key that comes in the place of `rotated_from`, which ends at `until_s`, or before as it would have.

        False: that one is not valid any more, or another key has come in its place. Durable.
        """
        ...

    async def revoke_key(self, key_id: str, *, tenant: str, by: str, now_s: float, audit: Sequence[AuditLine]) -> bool:
        """Revoke a key that is valid; return whether there was one. Durable."""
        ...

    async def get_key(self, key_id: str, *, tenant: str) -> StoredKey | None: ...

    async def list_keys(self, *, tenant: str, after: str | None = None, limit: int) -> Sequence[StoredKey]:
        """Return the keys of a tenant, the newest first, behind the one of the id `after`: also ended ones."""
        ...

    async def list_keys_in_use(self) -> Sequence[StoredKey]:
        """Return the keys of all tenants that are not revoked, in the order in which they were created."""
        ...

    async def count_key_changes(self) -> int:
        """Return the number of changes of keys, by all processes. That one was used is none."""
        ...

    async def note_key_use(self, used_s: Mapping[str, float]) -> None:
        """Store when keys were used last (Unix time), by their ids. An earlier time than the stored one is ignored."""
        ...
