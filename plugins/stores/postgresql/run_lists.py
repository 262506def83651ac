"""The lists of runs, newest first, narrowed by any combination, at a cost that does not grow with the number of runs.

The counts of what waits stand behind them.

1. One of the wanted facts leads: its index has the runs in the order of the list.
2. So many entries of the index are looked at for one page, and no more. Where they end, the next page goes on.
"""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Unpack, cast

from gateway.plugin import NarrowedRuns, RunPage, StoreBacklog, Tally

from .base import PostgresqlBase
from .runs import LISTED, RUNS
from .text_codec import restore_text

#: Entries that are looked at for one page: in an index that has all wanted facts, and where the table has them.
LOOKED_AT: Final = 10_000
LOOKED_AT_IN_TABLE: Final = 1_000
_FACTS: Final = ("state", "conversation", "kind", "caller", "workflow")
#: The order by which two lists of runs can be merged.
_ORDER: Final = "created_s DESC, id DESC"
_TIMES: Final = {"since_s": "created_s >=", "until_s": "created_s <"}

_TALLY: Final = "SELECT count(*), min(expires_s) FROM twolane.approvals WHERE state = 'pending' AND tenant = $1"
_ALIVE: Final = "state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')"
#: Of one tenant. A run that is under way and has pending approvals is shown as one that waits for them.
_TALLY_RUNS: Final = f"""SELECT CASE WHEN state = 'running' AND pending > 0 THEN 'awaiting_approval' ELSE state END,
    count(*) FROM twolane.runs WHERE tenant = $1 AND {_ALIVE} GROUP BY 1"""
#: All approvals expire after the same time: the one that expires first is the oldest.
_WAITING: Final = """SELECT count(*),
    (SELECT created_s FROM twolane.approvals WHERE state = 'pending' ORDER BY expires_s LIMIT 1),
    twolane.size_bytes()
    FROM twolane.approvals WHERE state = 'pending'"""
_ALIVE_RUNS: Final = f"""SELECT state, count(*), count(*) FILTER (WHERE state = 'running' AND lease_s < $1)
    FROM twolane.runs WHERE {_ALIVE} GROUP BY state"""


@dataclass(frozen=True, slots=True)
class _Lead:
    """A wanted fact whose index has the runs in the order of the list, and the condition that it stands for.

    `beside`: further facts that stand in the index.
    """

    fact: str | None
    condition: str
    beside: frozenset[str]
    needs_value: bool = False


#: Chats have no index of their kind.
_BY_KIND: Final = {
    "workflow": _Lead("kind", "kind = 'workflow'", frozenset(("caller", "state"))),
    "tool": _Lead("kind", "kind = 'tool'", frozenset(("caller", "state"))),
}
#: The first one that is wanted leads: conversations and workflows have few runs, states and callers many.
_LEADS: Final = (
    _Lead("conversation", "conversation = ", frozenset(), needs_value=True),
    _Lead("workflow", "workflow = ", frozenset(("caller", "state", "kind")), needs_value=True),
    *_BY_KIND.values(),
    _Lead("state", "state = ", frozenset(("caller", "kind")), needs_value=True),
    _Lead("caller", "caller = ", frozenset(("kind",)), needs_value=True),
    _Lead(None, "true", frozenset(("kind",))),
)


class PostgresqlRunLists(PostgresqlBase):
    """The methods of the store for lists and counts of runs."""

    async def list_runs(
        self, *, tenant: str, after: str | None = None, limit: int, **narrowed: Unpack[NarrowedRuns]
    ) -> RunPage:
        wanted = cast("Mapping[str, str | float | None]", narrowed)
        facts = {name: str(value) for name in _FACTS if (value := wanted.get(name)) is not None}
        lead = next(lead for lead in _LEADS if _may_lead(lead, facts))
        rest = {name: value for name, value in facts.items() if name != lead.fact}
        values: list[object] = [tenant]
        conditions = lead.condition
        if lead.needs_value:
            conditions += _add_value(values, facts[str(lead.fact)])
        for name, comparison in _TIMES.items():
            if (value := wanted.get(name)) is not None:
                conditions += f" AND {comparison} {_add_value(values, value)}"
        if after is not None:
            conditions += f""" AND (created_s, id) < (SELECT b.created_s, b.id FROM twolane.runs b
                WHERE b.tenant = $1 AND b.id = {_add_value(values, after)})"""
        seen = f"FROM twolane.runs WHERE tenant = $1 AND {conditions} ORDER BY {_ORDER}"
        look = limit + 1 if not rest else LOOKED_AT if rest.keys() <= lead.beside else LOOKED_AT_IN_TABLE
        fits, known = "", list(values)
        for name, value in rest.items():
            fits += f" AND s.{name} = {_add_value(values, value)}"
        # The inner query reads the index alone, where that has its columns. One run more than wanted shows that there
        # are more.
        listed = f"""SELECT {LISTED} FROM (
                SELECT s.id FROM (
                    SELECT {", ".join(("id", "created_s", *rest))} {seen} LIMIT {_add_value(values, look)}) s
                WHERE true{fits} ORDER BY {_ORDER} LIMIT {_add_value(values, limit + 1)}) f
            JOIN twolane.runs r ON r.tenant = $1 AND r.id = f.id ORDER BY r.created_s DESC, r.id DESC"""
        found = await self._fetch_all(RUNS, listed, *values)
        if len(found) > limit:
            return RunPage(runs=found[:limit], behind=(found[limit - 1].created_s, found[limit - 1].id))
        if not rest:
            return RunPage(runs=found)
        last = await self._read(f"SELECT created_s, id {seen} LIMIT 1 OFFSET {_add_value(known, look - 1)}", *known)
        return RunPage(runs=found, behind=None if not last else (last[0][0], restore_text(last[0][1])))

    async def tally(self, *, tenant: str) -> Tally:
        ((pending, next_s),) = await self._read(_TALLY, tenant)
        runs = {row[0]: row[1] for row in await self._read(_TALLY_RUNS, tenant)}
        return Tally(pending=pending, next_s=next_s, runs=runs)

    async def count_backlog(self, *, stuck_before_s: float) -> StoreBacklog:
        ((pending, oldest_s, size_bytes),) = await self._read(_WAITING)
        alive = await self._read(_ALIVE_RUNS, stuck_before_s)
        runs, stuck = {state: count for state, count, _ in alive}, sum(late for _, _, late in alive)
        return StoreBacklog(pending=pending, oldest_s=oldest_s, stuck=stuck, runs=runs, size_bytes=size_bytes)


def _may_lead(lead: _Lead, facts: Mapping[str, str]) -> bool:
    if lead.fact == "kind":
        return lead is _BY_KIND.get(facts.get("kind", ""))
    return lead.fact is None or lead.fact in facts


def _add_value(values: list[object], value: object) -> str:
    """Return the place of a further value in a statement."""
    values.append(value)
    return f"${len(values)}"
