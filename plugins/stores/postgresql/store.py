"""The store in a PostgreSQL database: the methods of `Store`, by subject in the modules beside this one.

How to add methods: a mixin of `PostgresqlBase` in a module of its own, with its tables and functions in a file of
`sql/` that `migrations.SCHEMA` names.

1. A method that reads is one SELECT, by `_read`, `_all` or `_first`. It may be sent again when a connection breaks.
2. A method that writes is one call of a function, by `_call`, `_call_value` or `_write`. The function takes the
   identity of the write first (`p_writer text, p_number bigint`), and begins with `twolane.begin_write`. Where that is
   false, the write was done before: the function returns what it kept with `twolane.keep_result`, or does over what
   does no harm. Errors with the codes TW001 to TW003 become ConflictError, AskedAlreadyError and KeyTakenError.
3. Text is `text COLLATE "C"`, times are `double precision`, JSON parameters come from `list_json` and `to_json`.
4. Leases and other claims use `twolane.now_s()`, with durations from the caller.
"""

import asyncio
from contextlib import suppress
from typing import Final

from gateway.plugin import PartialError, StoreError

from .approvals import PostgresqlApprovals
from .general import PostgresqlGeneral
from .grants import PostgresqlGrants
from .hidden_turns import PostgresqlHiddenTurns
from .keys import PostgresqlKeys
from .memories import PostgresqlMemories
from .migrations import migrate
from .pool import PostgresqlPool
from .quota import PostgresqlQuota
from .records import PostgresqlRecords
from .responses import PostgresqlResponses
from .run_lists import PostgresqlRunLists
from .runs import PostgresqlRuns
from .usage import PostgresqlUsage

#: In this order: what other rows belong to is deleted after them.
_PRUNED: Final = (
    *("prune_hidden", "prune_journal", "prune_worker_services", "prune_keys", "prune_responses", "prune_conversations"),
)

LOOK_S = 1.0
_FIND_LOSS: Final = (
    "SELECT current_setting('transaction_read_only'), to_regclass('twolane.schema_versions') IS NOT NULL"
)


class PostgresqlStore(
    PostgresqlRuns,
    PostgresqlRunLists,
    PostgresqlApprovals,
    PostgresqlGrants,
    PostgresqlRecords,
    PostgresqlResponses,
    PostgresqlMemories,
    PostgresqlHiddenTurns,
    PostgresqlKeys,
    PostgresqlUsage,
    PostgresqlQuota,
    PostgresqlGeneral,
):
    """The `gateway.contracts.storage.store.Store` in one database. Call `open` first.

    `place` is the URL without its secrets, `size` the number of its connections.
    """

    def __init__(self, url: str, *, place: str, size: int) -> None:
        super().__init__(place)
        self._url = url
        self._size = size
        self._loss_reason: str | None = None

    def __repr__(self) -> str:
        return f"PostgresqlStore({self.place!r})"

    async def open(self) -> None:
        """Open the store. Raises StoreError if the database cannot be used. You may call `close` after that, too."""
        await migrate(self._url)
        self._pool = PostgresqlPool(self._url, size=self._size, name=self.place)
        self.open_records()
        self.open_memories()

    async def close(self) -> None:
        self.close_memories()
        await self._changes.close()
        if self._pool is not None:
            await self.close_hidden()
        await self.close_records()
        if self._pool is not None:
            await self._pool.close()

    async def read_clock(self) -> float:
        ((now_s,),) = await self._read("SELECT twolane.now_s()")
        return float(now_s)

    async def find_loss_reason(self) -> str | None:
        looking = asyncio.ensure_future(self._find_loss_reason())
        # A server that is away loses nothing: what is written meanwhile fails. It is the reason of the last time.
        with suppress(TimeoutError, StoreError):
            self._loss_reason = await asyncio.wait_for(looking, LOOK_S)
        return self._loss_reason

    async def _find_loss_reason(self) -> str | None:
        ((is_read_only, is_there),) = await self._read(_FIND_LOSS)
        if is_read_only == "on":
            return "the database is read-only, as a standby is: name the primary in the URL of the store"
        return None if is_there else "the schema `twolane` is gone from the database: restore it, or start again"

    async def prune(self, *, before_s: float, limit: int) -> int:
        gone = 0
        for function in _PRUNED:
            try:
                if gone < limit:
                    gone += int(await self._call_value(function, before_s, limit - gone))
            except StoreError as error:
                if gone:
                    raise PartialError(str(error)) from error
                raise
        return gone
