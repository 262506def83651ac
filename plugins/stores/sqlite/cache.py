"""The lists that were read from a SQLite file, cached until what they are read from changes.

The check for a change runs on the event loop. It takes microseconds and never waits. The thread that reads costs a
tenth of a millisecond and more, most of it for being woken.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from cachetools import LRUCache

from .file import IN_MEMORY, SqliteError, connect

T = TypeVar("T")
#: What each list costs besides what is in it, roughly, in bytes.
_OVERHEAD = 500


class _Kept(NamedTuple, Generic[T]):
    version: int
    found: Sequence[T]
    size: int


class SqliteCache(Generic[T]):
    """The cached lists of one file. For a database in memory nothing is cached.

    `version` is a statement that reads one number, which each commit changes that changes a list. A returned list is
    therefore never older than the last commit, of this process or of any other. `limit` is for the sum of `size_of` of
    each.
    """

    def __init__(self, place: str, *, version: str, limit: int, size_of: Callable[[T], int]) -> None:
        self._place = place
        self._statement = version
        self._limit = limit
        self._connection: sqlite3.Connection | None = None
        self._kept: LRUCache[Hashable, _Kept[T]] = LRUCache(limit, getsizeof=lambda kept: kept.size)
        self._size_of = size_of

    def open(self) -> None:
        """Open the connection that looks, once the file has been made. If it cannot be opened, nothing is cached."""
        if self._place != IN_MEMORY:
            with suppress(SqliteError, sqlite3.Error):
                self._connection = connect(self._place, mode="ro")
                self._connection.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Sequence[T]]], *, nothing: Hashable) -> Sequence[T]:
        """Return the result of `read`, from the cache if nothing has changed since.

        `nothing` is common to all keys for which `read` returns an empty list as soon as it does so for one.
        """
        version = self._version()
        if version is None:
            return await read()
        for known in (nothing, key):
            kept = self._kept.get(known)
            if kept is not None and kept.version == version:
                return kept.found
        found = await read()  # what is committed meanwhile changes the version once more
        size = _OVERHEAD + sum(map(self._size_of, found))
        if size <= self._limit:
            self._kept[key if found else nothing] = _Kept(version, found, size)
        return found

    def _version(self) -> int | None:
        """Return the version of the lists. None: it cannot be determined now."""
        if self._connection is None:
            return None
        try:
            version: int = self._connection.execute(self._statement).fetchone()[0]
        except sqlite3.Error:
            return None
        return version
