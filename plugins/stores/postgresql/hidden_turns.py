"""Hidden turns in the PostgreSQL store (`sql/hidden_turns.sql`).

Most answers have no hidden part, and each of them is recorded. So the answers of 50 milliseconds are written together,
and a search for one of them writes them at once.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from gateway.plugin import HiddenTurn, StoreError

from .base import PostgresqlBase
from .rows import PostgresqlRows, to_arrays
from .text_codec import restore_text, restore_values

log = logging.getLogger("gateway")

#: So long an answer waits for others, so many keys wait at most, and so many times as many until the server goes on.
TOGETHER_S: Final = 0.05
_KEYS_AT_ONCE, _BATCHES = 512, 8

HIDDEN = PostgresqlRows(HiddenTurn)
#: One row for each turn that the keys mean, and one for the keys that mean two.
_TURNS: Final = """SELECT m.keys, m.turn, h.run_id, h.start, h."end", h.before, h.behind, h.tainted, h.conversation
    FROM (SELECT array_agg(key) AS keys, turn FROM twolane.hidden_keys WHERE tenant = $1 AND key = ANY ($2)
        GROUP BY turn) m
    LEFT JOIN twolane.hidden h ON h.tenant = $1 AND h.id = m.turn"""


class _Batch:
    """Keys that are written together. `is_due` ends their wait."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, float]] = []
        self.keys: set[tuple[str, str]] = set()
        self.is_due = asyncio.Event()
        self.writing: asyncio.Task[None] | None = None


class PostgresqlHiddenTurns(PostgresqlBase):
    """The part of a store for hidden turns."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._filling: _Batch | None = None
        self._batches: list[_Batch] = []  # that are not written, in their order

    async def close_hidden(self) -> None:
        """Write down the answers that wait."""
        await self._write_batches(self._batches)

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        before, behind = json.dumps(turn.before), json.dumps(turn.behind)
        facts = (turn.id, turn.run_id, turn.start, turn.end, before, behind, turn.tainted, turn.conversation)
        await self._call("put_hidden", *facts, tenant, now_s, list(keys))

    async def record_answer(self, turn_id: str, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        batch = self._filling
        if batch is None:
            if len(self._batches) >= _BATCHES:
                await self._write_batches(self._batches[:1])
            batch = self._filling = _Batch()
            self._batches.append(batch)
            batch.writing = asyncio.create_task(self._write_when_due(batch))
        for key in keys:
            batch.rows.append((tenant, key, turn_id, now_s))
            batch.keys.add((tenant, key))
        if len(batch.rows) >= _KEYS_AT_ONCE:
            batch.is_due.set()

    async def hidden(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn | None]:
        if self._batches:
            wanted = {(tenant, key) for key in keys}
            await self._write_batches([batch for batch in self._batches if not wanted.isdisjoint(batch.keys)])
        found: dict[str, HiddenTurn | None] = {}
        for escaped_keys, *row in await self._read(_TURNS, tenant, list(keys)):
            its_keys = [restore_text(key) for key in escaped_keys]
            turn, run_id, start, end, before, behind, *rest = restore_values(row)
            if turn is None:
                found.update(dict.fromkeys(its_keys))
            elif run_id is not None:  # else an answer without a hidden part
                facts = (turn, run_id, start, end, json.loads(before), json.loads(behind), *rest)
                found.update(dict.fromkeys(its_keys, HIDDEN.from_row(facts)))
        return found

    async def _write_batches(self, batches: Sequence[_Batch]) -> None:
        writing = [batch.writing for batch in batches if batch.writing is not None]
        for batch in batches:
            batch.is_due.set()
        if writing:
            await asyncio.wait(writing)

    async def _write_when_due(self, batch: _Batch) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER_S):
                await batch.is_due.wait()
        if self._filling is batch:
            self._filling = None
        try:
            await self._call("put_hidden_keys", *to_arrays(batch.rows, 4))
        except StoreError as error:
            log.warning("%d keys of answers without hidden turns are not kept: %s", len(batch.rows), error)
        finally:
            self._batches.remove(batch)
