"""Hidden turns in the PostgreSQL store (`sql/hidden_turns.sql`)."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.plugin import HiddenTurn
from gateway.plugin.answer_keys import AnswerKeyBatch

from .base import PostgresqlBase
from .rows import PostgresqlRows, to_arrays
from .text_codec import restore_text, restore_values

HIDDEN = PostgresqlRows(HiddenTurn)
#: One row for each turn that the keys mean, and one for the keys that mean two.
_TURNS: Final = """SELECT m.keys, m.turn, h.run_id, h.start, h."end", h.before, h.behind, h.tainted, h.conversation
    FROM (SELECT array_agg(key) AS keys, turn FROM twolane.hidden_keys WHERE tenant = $1 AND key = ANY ($2)
        GROUP BY turn) m
    LEFT JOIN twolane.hidden h ON h.tenant = $1 AND h.id = m.turn"""


class PostgresqlHiddenTurns(PostgresqlBase):
    """The part of a store for hidden turns."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._answer_keys = AnswerKeyBatch(lambda rows: self._call("put_hidden_keys", *to_arrays(rows, 4)))

    async def close_hidden(self) -> None:
        """Write down the answers that wait."""
        await self._answer_keys.write_all()

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        before, behind = json.dumps(turn.before), json.dumps(turn.behind)
        facts = (turn.id, turn.run_id, turn.start, turn.end, before, behind, turn.tainted, turn.conversation)
        await self._call("put_hidden", *facts, tenant, now_s, list(keys))

    async def record_answer(self, turn_id: str, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        await self._answer_keys.add(turn_id, keys=keys, tenant=tenant, now_s=now_s)

    async def find_hidden_turns(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn | None]:
        await self._answer_keys.write_any(keys, tenant=tenant)
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
