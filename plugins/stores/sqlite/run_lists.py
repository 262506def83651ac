"""The lists of runs, newest first, narrowed by any combination, at a cost that does not grow with the number of runs.

The counts of what waits stand behind them.

1. One of the wanted facts leads: its index has the runs in the order of the list.
2. The other facts are compared in the same index, where it has them, and no row of the table is read for that.
3. So many entries of the index are looked at for one page, and no more. Where they end, the next page goes on.
"""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.plugin import RunPage, StoreBacklog, Tally

from . import journal_statements as journal
from .journal_tx import RUNS

#: Entries that are looked at for one page: in an index that has all wanted facts, and where the table has them.
LOOKED_AT: Final = 50_000
LOOKED_AT_IN_TABLE: Final = 2_000
#: The order by which two lists of runs can be merged: a run shows its id and not its row.
_ORDER: Final = "created_s DESC, id DESC"
_BEHIND: Final = " AND (created_s, id) < (SELECT created_s, id FROM runs WHERE tenant = ? AND id = ?)"
_FACTS: Final = ("state", "conversation", "kind", "caller", "workflow")
_TIMES: Final = {"since_s": "created_s >= ?", "until_s": "created_s < ?"}


@dataclass(frozen=True, slots=True)
class _Index:
    """An index that leads a list: the condition that it stands for, the wanted fact in it, the facts beside it."""

    name: str
    condition: str
    leads: str | None
    beside: frozenset[str]


#: By the kind; chats have none.
_BY_KIND: Final = {
    "workflow": _Index("runs_of_workflows", " AND kind = 'workflow'", "kind", frozenset(("caller", "state"))),
    "tool": _Index("runs_of_tools", " AND kind = 'tool'", "kind", frozenset(("caller", "state"))),
}
#: The first one whose fact is wanted leads: conversations and workflows have few runs, states and callers many.
_INDEXES: Final = (
    _Index("runs_by_conversation", " AND conversation = ?", "conversation", frozenset()),
    _Index("runs_by_workflow", " AND workflow = ?", "workflow", frozenset(("caller", "state", "kind"))),
    *_BY_KIND.values(),
    _Index("runs_by_state", " AND state = ?", "state", frozenset(("caller", "kind"))),
    _Index("runs_by_caller", " AND caller = ?", "caller", frozenset(("kind",))),
    _Index("runs_by_begin", "", None, frozenset(("kind",))),
)


def list_page(
    connection: sqlite3.Connection,
    *,
    tenant: str,
    wanted: Mapping[str, str | float | None],
    after: str | None,
    limit: int,
) -> RunPage:
    """Return one page of the runs of a tenant."""
    facts = {name: value for name in _FACTS if (value := wanted.get(name)) is not None}
    index = next(index for index in _INDEXES if _may_lead(index, facts))
    rest = {name: value for name, value in facts.items() if name != index.leads}
    look = limit + 1 if not rest else LOOKED_AT if rest.keys() <= index.beside else LOOKED_AT_IN_TABLE
    seen, values = _build_index_scan(index, tenant, facts, wanted, after)
    columns = "".join(f", {name} AS seen_{name}" for name in rest)
    # One run more than wanted shows that there are more. The rows of a subquery with a limit come in its own order.
    found = connection.execute(
        f"SELECT place, begin, run_id FROM (SELECT rowid AS place, created_s AS begin, id AS run_id{columns} {seen} "
        f"LIMIT ?) WHERE true{''.join(f' AND seen_{name} = ?' for name in rest)} LIMIT ?",
        (*values, look, *rest.values(), limit + 1),
    ).fetchall()
    runs = [
        RUNS.read_fact(row) for place, *_ in found[:limit] for row in connection.execute(journal.RUN_LISTED, (place,))
    ]
    if len(found) > limit:
        return RunPage(runs=runs, behind=(found[limit - 1][1], found[limit - 1][2]))
    if not rest:
        return RunPage(runs=runs)
    last = connection.execute(f"SELECT created_s, id {seen} LIMIT 1 OFFSET ?", (*values, look - 1)).fetchone()
    return RunPage(runs=runs, behind=None if last is None else tuple(last))


def _may_lead(index: _Index, facts: Mapping[str, object]) -> bool:
    if index.leads == "kind":
        return index is _BY_KIND.get(str(facts.get("kind")))
    return index.leads is None or index.leads in facts


def _build_index_scan(
    index: _Index,
    tenant: str,
    facts: Mapping[str, str | float],
    wanted: Mapping[str, str | float | None],
    after: str | None,
) -> tuple[str, list[str | float]]:
    """Return the end of a statement that reads the index, without its limit, and the values in it."""
    values: list[str | float] = [tenant]
    if "?" in index.condition:
        values.append(facts[str(index.leads)])
    conditions = index.condition
    for name, condition in _TIMES.items():
        if (value := wanted.get(name)) is not None:
            conditions += f" AND {condition}"
            values.append(value)
    if after is not None:
        conditions += _BEHIND
        values += [tenant, after]
    return f"FROM runs INDEXED BY {index.name} WHERE tenant = ?{conditions} ORDER BY {_ORDER}", values


def tally(connection: sqlite3.Connection, *, tenant: str) -> Tally:
    """Count the pending approvals and the runs that have not ended, of one tenant."""
    pending, next_s = connection.execute(journal.TALLY, (tenant,)).fetchone()
    runs: Counter[str] = Counter()
    for state, count in connection.execute(journal.TALLY_RUNS, (tenant,)):
        runs[state] += count
    return Tally(pending=pending, next_s=next_s, runs=runs)


def count_backlog(connection: sqlite3.Connection, *, stuck_before_s: float) -> StoreBacklog:
    """Count the approvals and runs that wait, of all tenants."""
    pending, oldest_s, size_bytes = connection.execute(journal.STANDING).fetchone()
    alive = connection.execute(journal.ALIVE_RUNS, (stuck_before_s,)).fetchall()
    runs, stuck = {state: count for state, count, _ in alive}, sum(late for _, _, late in alive)
    return StoreBacklog(pending=pending, oldest_s=oldest_s, stuck=stuck, runs=runs, size_bytes=size_bytes)
