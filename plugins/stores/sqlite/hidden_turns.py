"""The hidden turns of the SQLite store: the methods of `Store` for them, on the threads of the store.

Most answers have no hidden part, and each of them is recorded. A write by itself would cost a request a tenth of its
time. So the turns of 50 milliseconds are written together, and a search for one of them writes them at once.
"""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from gateway.plugin import HiddenTurn, StoreError

from .connection_thread import SharedLooks, SqliteWork
from .general_tx import Row
from .rows import Rows

log = logging.getLogger("gateway")

#: So long an answer waits for others, so many keys wait at most, and so many times as many until the disk goes on.
TOGETHER_S: Final = 0.05
_KEYS_AT_ONCE, _BATCHES = 512, 8

HIDDEN = Rows(HiddenTurn)

_PUT_TURN: Final = """INSERT OR REPLACE INTO hidden
    (id, run_id, "start", "end", "before", behind, tainted, conversation, tenant, created_s)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_PUT_KEY: Final = """INSERT INTO hidden_keys (tenant, key, turn, created_s) VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, key) DO UPDATE SET turn = CASE WHEN turn = excluded.turn THEN turn END,
    created_s = excluded.created_s"""
KEYS: Final = """SELECT key, turn FROM hidden_keys
    WHERE tenant = ? AND key IN (SELECT value FROM json_each(?))"""
TURNS: Final = """SELECT id, run_id, "start", "end", "before", behind, tainted, conversation FROM hidden
    WHERE tenant = ? AND id IN (SELECT value FROM json_each(?))"""


class _Batch:
    """Keys that are written together. `is_due` ends their wait."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, float]] = []
        self.keys: set[tuple[str, str]] = set()
        self.is_due = asyncio.Event()
        self.writing: asyncio.Task[None] | None = None


class SqliteHiddenTurns(SqliteWork):
    """The part of a store for hidden turns."""

    def __init__(self) -> None:
        self._hidden_looks = SharedLooks(self._read, _hidden)
        self._filling: _Batch | None = None
        self._batches: list[_Batch] = []  # that are not written, in their order

    async def close_hidden(self) -> None:
        """Write down the answers that wait."""
        await self._write_batches(self._batches)

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        _, run_id, start, end, before, behind, tainted, conversation = HIDDEN.values(turn)
        about = (turn.id, run_id, start, end, json.dumps(before), json.dumps(behind), tainted, conversation)

        def put(connection: sqlite3.Connection) -> None:
            connection.execute(_PUT_TURN, (*about, tenant, now_s))
            connection.executemany(_PUT_KEY, [(tenant, key, turn.id, now_s) for key in keys])

        await self._write(put)

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
            asked = {(tenant, key) for key in keys}
            await self._write_batches([batch for batch in self._batches if not asked.isdisjoint(batch.keys)])
        rows = await self._hidden_looks.ask((tenant, keys))
        return {key: None if row is None else HIDDEN.fact(row) for key, row in rows.items()}

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
            await self._write(lambda c: c.executemany(_PUT_KEY, batch.rows).rowcount)
        except StoreError as error:
            log.warning("%d keys of answers without hidden turns are not kept: %s", len(batch.rows), error)
        finally:
            self._batches.remove(batch)


def _hidden(
    connection: sqlite3.Connection, asked: Sequence[tuple[str, Sequence[str]]]
) -> Sequence[Mapping[str, Row | None]]:
    """Return the hidden turns of each question, which is a tenant and keys."""
    return [_read_turns(connection, tenant, keys) for tenant, keys in asked]


def _read_turns(connection: sqlite3.Connection, tenant: str, keys: Sequence[str]) -> Mapping[str, Row | None]:
    """Return the rows of hidden turns by the keys that mean one, and None for keys that mean two.

    Each turn is read once.
    """
    meant = dict(connection.execute(KEYS, (tenant, json.dumps(keys))))
    if not meant:
        return {}
    found = connection.execute(TURNS, (tenant, json.dumps(sorted({turn for turn in meant.values() if turn}))))
    turns = {row[0]: (*row[:4], json.loads(row[4]), json.loads(row[5]), *row[6:]) for row in found}
    return {key: turns.get(turn) for key, turn in meant.items() if turn is None or turn in turns}
