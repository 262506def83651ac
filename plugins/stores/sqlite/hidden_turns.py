"""The hidden turns of the SQLite store: the methods of `Store` for them, on the threads of the store."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.plugin import HiddenTurn
from gateway.plugin.answer_keys import AnswerKeyBatch

from .connection_thread import SharedLooks, SqliteWork
from .general_tx import Row
from .rows import Rows

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


class SqliteHiddenTurns(SqliteWork):
    """The part of a store for hidden turns."""

    def __init__(self) -> None:
        self._hidden_looks = SharedLooks(self._read, _find_hidden_turns)
        self._answer_keys = AnswerKeyBatch(lambda rows: self._write(lambda c: c.executemany(_PUT_KEY, rows).rowcount))

    async def close_hidden(self) -> None:
        """Write down the answers that wait."""
        await self._answer_keys.write_all()

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        _, run_id, start, end, before, behind, tainted, conversation = HIDDEN.values(turn)
        about = (turn.id, run_id, start, end, json.dumps(before), json.dumps(behind), tainted, conversation)

        def put(connection: sqlite3.Connection) -> None:
            connection.execute(_PUT_TURN, (*about, tenant, now_s))
            connection.executemany(_PUT_KEY, [(tenant, key, turn.id, now_s) for key in keys])

        await self._write(put)

    async def record_answer(self, turn_id: str, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        await self._answer_keys.add(turn_id, keys=keys, tenant=tenant, now_s=now_s)

    async def find_hidden_turns(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn | None]:
        await self._answer_keys.write_any(keys, tenant=tenant)
        rows = await self._hidden_looks.read_shared((tenant, keys))
        return {key: None if row is None else HIDDEN.read_fact(row) for key, row in rows.items()}


def _find_hidden_turns(
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
