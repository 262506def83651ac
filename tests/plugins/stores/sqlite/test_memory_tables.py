"""The tables of memories: what they were before becomes what they are, and the index of words is always in step."""

import sqlite3

from gateway.plugins.stores.sqlite import memory_statements as sql
from gateway.plugins.stores.sqlite.memory_tables import MEMORIES_OF_USERS
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS, carry_out
from tests.plugins.stores.sqlite.test_memory_statements import WHOSE, keep


def index(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """How many entries the index, its counts and the owners have."""
    tables = ("memory_words", "memory_word_counts", "memory_owners")
    n_words, n_counts, n_owners = (
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables
    )
    return n_words, n_counts, n_owners


def test_the_index_goes_with_its_memories(connection: sqlite3.Connection) -> None:
    """By whichever way they go, and the owner with the last of them."""
    texts = [f"one two {i}" for i in range(120)]
    keep(connection, *texts[:3])
    assert index(connection) == (9, 5, 1)
    assert sql.forget(connection, ["mem_None_one two 0", "x"], tenant="t", owner=None) == 1
    assert sql.forget(connection, ["mem_None_one two 1"], tenant="t", owner="user:bob") == 0
    assert index(connection) == (6, 4, 1)
    keep(connection, *texts)
    steps = [sql.forget_step(connection, **WHOSE, places=places) for places in (("", ""), None, None, None)]
    assert (steps, index(connection)) == ([50, 50, 20, 0], (0, 0, 0))
    keep(connection, "one", limit=0)
    assert index(connection) == (0, 0, 0)


def test_each_change_of_a_memory_is_counted(connection: sqlite3.Connection) -> None:
    """Of its words, too, and by whichever way it goes; what changes nothing is not."""

    def version() -> int:
        return int(connection.execute(sql.VERSION).fetchone()[0])

    before = version()
    keep(connection, "one two")
    assert version() > before
    before = version()
    keep(connection, "one two")
    assert sql.forget(connection, ["x"], tenant="t", owner=None) == 0 and version() == before
    connection.execute("UPDATE memories SET words = NULL")
    assert sql.read_words(connection) == 1 and version() == before + 2
    assert sql.forget_step(connection, **WHOSE, places=None) == 1 and version() == before + 3
    keep(connection, "one", limit=0)
    assert version() == before + 5


def test_memories_of_callers_become_those_of_their_keys() -> None:
    """Their words are read afterwards, in steps; until then the newest are found."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    before = MIGRATIONS.index(MEMORIES_OF_USERS)
    carry_out(MIGRATIONS[:before], connection)
    rows = [("t", caller, f"m{i}", place, f"fact {i}", float(-i)) for i in range(60) for caller, place in WHO]
    connection.executemany("INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("INSERT INTO memories VALUES ('t', 'ann', 'twice', NULL, 'fact 1', 5)")
    carry_out(MIGRATIONS[before:], connection)
    of_ann = {"tenant": "t", "owner": "key:ann", "conversation": None, "limit": 2}
    assert [row[4] for row, _ in sql.recall(connection, "fact 40", **of_ann)] == ["fact 0", "fact 1"]
    assert [sql.read_words(connection) for _ in range(4)] == [50, 50, 20, 0] and not sql.is_unread(connection)
    assert sql.recall(connection, "fact 40", **of_ann)[0] == (("m40", "t", "key:ann", None, "fact 40", -40.0), 1.0)
    assert sql.recall(connection, "fact 40", **{**of_ann, "owner": "key:ben"}) == []
    assert sql.recall(connection, "fact 40", **{**of_ann, "owner": "key:ben", "conversation": "c"})[0][1] == 1.0
    connection.close()


WHO = (("ann", None), ("ben", "c"))
