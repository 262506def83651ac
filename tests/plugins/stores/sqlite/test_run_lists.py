"""Lists of runs: each combination goes through an index that is made for it, so far and no farther."""

import sqlite3
from itertools import product
from typing import Any

import pytest

from gateway.plugins.stores.sqlite import run_lists
from gateway.plugins.stores.sqlite.run_lists import list_page

RARE = "bob"


def fill(connection: sqlite3.Connection, count: int) -> None:
    """Completed chats of one caller; the oldest one is another's."""
    connection.executemany(
        """INSERT INTO runs (tenant, id, caller, chain, fingerprint, state, effects, created_s, updated_s)
        VALUES ('acme', ?, ?, 'c', 'f', 'completed', 0, ?, 1.0)""",
        ((f"run_{n}", RARE if n == 0 else "ann", float(n)) for n in range(count)),
    )


def listed(connection: sqlite3.Connection, after: str | None = None, **wanted: Any) -> tuple[list[str], str | None]:
    found = list_page(connection, tenant="acme", wanted=wanted, after=after, limit=10)
    return [run.id for run in found.runs], None if found.behind is None else found.behind[1]


@pytest.mark.parametrize(
    ("wanted", "looked_at"),
    [
        ({"state": "completed", "caller": RARE}, "LOOKED_AT"),
        ({"caller": RARE, "state": "completed", "kind": "chat"}, "LOOKED_AT"),
        ({"state": "completed", "conversation": "c1", "caller": RARE}, "LOOKED_AT_IN_TABLE"),
    ],
)
def test_sparse_run_filter_is_read_page_by_page(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str], looked_at: str
) -> None:
    """A page looks at so many runs; an empty one that is not the last says where the next begins."""
    monkeypatch.setattr(run_lists, looked_at, 100)
    fill(connection, 250)
    connection.execute("UPDATE runs SET conversation = 'c1'")
    assert listed(connection, **wanted) == ([], "run_150")
    assert listed(connection, after="run_150", **wanted) == ([], "run_50")
    assert listed(connection, after="run_50", **wanted) == (["run_0"], None)


def test_run_list_filters_use_covering_indexes_only(connection: sqlite3.Connection) -> None:
    """Whichever facts are wanted besides conversations: the index has them, in the order of the list."""
    facts = {"state": "completed", "caller": "ann", "kind": "workflow", "workflow": "report", "since_s": 1.0}
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    for chosen in product((False, True), repeat=len(facts)):
        listed(connection, after="run_9", **{k: v for (k, v), on in zip(facts.items(), chosen, strict=True) if on})
    connection.set_trace_callback(None)
    for statement in {each for each in seen if "INDEXED BY" in each}:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert any("COVERING INDEX runs_" in line for line in plan), (statement, plan)
        assert not any("TEMP B-TREE" in line for line in plan), (statement, plan)


def test_run_list_uses_the_index_of_its_rarest_filter(connection: sqlite3.Connection) -> None:
    """Conversations and workflows before states, states before callers."""
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    for wanted, index in (
        ({"conversation": "c", "workflow": "w", "state": "failed"}, "runs_by_conversation"),
        ({"workflow": "w", "kind": "workflow", "state": "failed"}, "runs_by_workflow"),
        ({"kind": "workflow", "state": "failed", "caller": "ann"}, "runs_of_workflows"),
        ({"kind": "chat", "state": "failed", "caller": "ann"}, "runs_by_state"),
        ({"kind": "chat", "caller": "ann"}, "runs_by_caller"),
        ({"kind": "chat"}, "runs_by_begin"),
        ({}, "runs_by_begin"),
    ):
        seen.clear()
        listed(connection, **wanted)
        assert f"INDEXED BY {index} " in seen[0]
