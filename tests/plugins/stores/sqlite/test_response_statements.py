"""Statements on responses and conversations: they fit their tables, and none of them searches through a whole one."""

import re
import sqlite3
from collections.abc import Callable
from dataclasses import fields
from typing import get_args

import pytest

from gateway.contracts.storage.responses import OPEN, ResponseState, StoredConversation, StoredResponse
from gateway.plugins.stores.sqlite import response_statements as sql
from gateway.plugins.stores.sqlite.response_statements import RESPONSES
from tests.plugins.stores.contract_responses import opened, response

FOUND = {name: found for name, found in vars(sql).items() if isinstance(found, str)} | {
    f"{name}_{number}": statement
    for name, found in (
        ("DELETE_RESPONSE", sql.DELETE_RESPONSE),
        ("DELETE_CONVERSATION", sql.DELETE_CONVERSATION),
        *((f"PRUNE_{number}", each) for number, each in enumerate(sql.PRUNE)),
    )
    for number, statement in enumerate(found)
}
STATEMENTS = {name: found for name, found in FOUND.items() if re.match("(SELECT|INSERT|UPDATE|DELETE) ", found)}
#: What is read from the end of the table where the oldest rows are, as many as are wanted.
FROM_AN_END = ("OLD_RESPONSES", "PRUNE_0_0")
#: What is given, and what was found.
KNOWN = re.compile("json_each|subquery|SUBQUERY|LIST")


def nothing(statement: str) -> tuple[None, ...]:
    """As many values as it takes."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return (None,) * (max(numbered) if numbered else statement.count("?"))


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", nothing(statement))]


@pytest.mark.parametrize(
    ("table", "fact", "more"),
    [("responses", StoredResponse, []), ("conversations", StoredConversation, ["updated_s"])],
)
def test_table_columns_match_the_record_fields(
    connection: sqlite3.Connection, table: str, fact: type, more: list[str]
) -> None:
    """A field that is added to one of them is missing in the other until there is a migration."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    assert columns == ["number", *(field.name for field in fields(fact)), *more]


@pytest.mark.parametrize(("name", "statement"), STATEMENTS.items(), ids=STATEMENTS)
def test_response_lookups_use_an_index(connection: sqlite3.Connection, name: str, statement: str) -> None:
    """However many rows there are, and nothing is sorted."""
    lines = plan(connection, statement)
    scans = [line for line in lines if line.startswith("SCAN") and not KNOWN.search(line)]
    assert scans == (["SCAN responses"] if name in FROM_AN_END else [])
    assert [line for line in lines if "TEMP B-TREE" in line] == []


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("RESPONSE", "sqlite_autoindex_responses_1 (tenant=? AND id=?)"),
        ("OPEN_RESPONSE_OF", "responses_open (tenant=? AND run_id=?)"),
        ("LOG", "sqlite_autoindex_responses_1 (tenant=? AND id=?)"),
        ("LOG", "sqlite_autoindex_runs_1 (tenant=? AND id=?)"),
        ("LOG", "PRIMARY KEY (response=?)"),
        ("CHUNKS", "PRIMARY KEY (response=? AND number>?)"),
        ("CONVERSATION", "sqlite_autoindex_conversations_1 (tenant=? AND id=?)"),
        ("ITEM", "(conversation=? AND id=?)"),
        ("OLDEST_ITEMS", "PRIMARY KEY (conversation=? AND number>?)"),
        ("NEWEST_ITEMS", "PRIMARY KEY (conversation=? AND number<?)"),
        ("DELETE_ITEM", "(conversation=? AND id=?)"),
        ("DELETE_RESPONSE_1", "PRIMARY KEY (response=? AND number=?)"),
        ("DELETE_CONVERSATION_1", "PRIMARY KEY (conversation=? AND number=?)"),
        ("PRUNE_0_1", "PRIMARY KEY (response=? AND number=?)"),
        ("PRUNE_1_1", "PRIMARY KEY (conversation=? AND number=?)"),
        ("OLD_CONVERSATIONS", "COVERING INDEX conversations_by_age (updated_s<?)"),
    ],
)
def test_response_statements_use_their_index(connection: sqlite3.Connection, name: str, index: str) -> None:
    """A partial index serves only the very condition that it was made with."""
    lines = plan(connection, STATEMENTS[name])
    assert any(line.endswith(index) for line in lines), lines


def test_sql_open_states_match_the_contract(connection: sqlite3.Connection) -> None:
    """And in no other."""
    for state in get_args(ResponseState):
        asked = f"SELECT {sql.OPEN} FROM (SELECT ? AS state)"
        assert connection.execute(asked, (state,)).fetchone() == (state in OPEN,)


def test_run_index_contains_only_open_responses(connection: sqlite3.Connection) -> None:
    """One that has ended costs one index, and one with an Idempotency-Key of its own one more."""
    for number in range(9):
        connection.execute(sql.PUT_RESPONSE, RESPONSES.values(response(f"resp_{number}")))
    connection.execute(sql.PUT_RESPONSE, RESPONSES.values(opened("open")))
    entries = "SELECT count(*) FROM responses INDEXED BY responses_open WHERE " + sql.OPEN
    assert connection.execute(entries).fetchone() == (1,)
    indexes = {row[1] for row in connection.execute("PRAGMA index_list(responses)")}
    assert indexes == {"sqlite_autoindex_responses_1", "responses_open", "responses_by_key"}
    connection.execute(sql.PUT_RESPONSE, RESPONSES.values(response("keyed", idempotency_key="k")))
    entries = "SELECT count(*) FROM responses INDEXED BY responses_by_key WHERE idempotency_key IS NOT NULL"
    assert connection.execute(entries).fetchone() == (1,)


def steps_of(connection: sqlite3.Connection, work: Callable[[], object]) -> int:
    """How many steps SQLite's machine makes, in tens."""
    tens = 0

    def count() -> int:
        nonlocal tens
        tens += 1
        return 0

    connection.set_progress_handler(count, 10)
    work()
    connection.set_progress_handler(None, 0)
    return tens


def test_cost_of_reading_a_chain_is_linear_in_its_length(connection: sqlite3.Connection) -> None:
    """Ten times the responses are ten times the work, among however many others."""
    for number in range(1000):
        for name in ("resp", "other"):
            chained = response(f"{name}_{number}", previous_id=f"{name}_{number - 1}")
            connection.execute(sql.PUT_RESPONSE, RESPONSES.values(chained))

    def read(length: int) -> int:
        chain = sql.list_response_chain(connection, "resp_999", tenant="acme", limit=length)
        assert len(chain) == length
        return len(chain)

    short, long = (steps_of(connection, lambda length=length: read(length)) for length in (100, 1000))
    assert 9 * short <= long <= 11 * short


def test_append_cost_is_independent_of_the_log_length(connection: sqlite3.Connection) -> None:
    """So does an item behind a long conversation, and either's reading from its end."""
    connection.execute(sql.PUT_RESPONSE, RESPONSES.values(opened()))
    connection.execute(
        """INSERT INTO runs (tenant, id, caller, chain, fingerprint, state, effects, created_s, updated_s)
        VALUES ('acme', 'run_1', 'ann', 'c', 'f', 'running', 0, 1.0, 1.0)"""
    )
    connection.execute(sql.PUT_CONVERSATION, ("conv_1", "acme", 1.0, b"{}", 1.0))
    place = {"tenant": "acme", "fence": 0}
    costs = []
    for start in (0, 5000):
        sql.append_answer(connection, "resp_1", **place, start=start, chunks=[b"x"] * 4999)
        last, items = start + 4999, [(f"i{start + number}", b"x") for number in range(4999)]
        sql.add_items(connection, "conv_1", items=items, tenant="acme", now_s=1.0)

        def extend(last: int = last) -> None:
            sql.append_answer(connection, "resp_1", **place, start=last, chunks=[b"x"])
            sql.add_items(connection, "conv_1", items=[(f"i{last}", b"x")], tenant="acme", now_s=1.0)
            which = {"tenant": "acme", "after": None, "limit": 3, "newest_first": True}
            assert len(sql.list_items(connection, "conv_1", **which)) == 3
            assert len(connection.execute(sql.CHUNKS, ("acme", "resp_1", last, 9)).fetchall()) == 1

        costs.append(steps_of(connection, extend))
    assert costs[1] <= costs[0] + 5


def test_delete_step_removes_a_bounded_number_of_rows(connection: sqlite3.Connection) -> None:
    """The response goes with the last step; no row of its log is left, nor one of another's is gone."""
    connection.execute(
        """INSERT INTO runs (tenant, id, caller, chain, fingerprint, state, effects, created_s, updated_s)
        VALUES ('acme', 'run_1', 'ann', 'c', 'f', 'running', 0, 1.0, 1.0)"""
    )
    for name in ("resp_1", "resp_2"):
        connection.execute(sql.PUT_RESPONSE, RESPONSES.values(opened(name)))
        sql.append_answer(connection, name, tenant="acme", fence=0, start=0, chunks=[b"x"] * (2 * sql.STEP))
    which = {"tenant": "acme", "row_id": "resp_1"}
    steps = [sql.delete_batch(connection, sql.DELETE_RESPONSE, **which) for _ in range(4)]
    assert steps == [None, None, True, False]
    assert connection.execute("SELECT count(*) FROM answer_chunks").fetchone() == (2 * sql.STEP,)
