"""Memories are found by their words at a cost that does not grow with them; their index goes with them."""

import sqlite3
from collections.abc import Callable

import pytest

from gateway.plugins.stores.sqlite import memory_statements as sql
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS, execute_statements

WHOSE = {"tenant": "t", "owner": "user:ann"}


def keep(connection: sqlite3.Connection, *texts: str, limit: int = 1_000_000, conversation: str | None = None) -> None:
    for i, text in enumerate(texts):
        row = (f"mem_{conversation}_{text}", "t", "user:ann", conversation, text, float(i))
        sql.remember(connection, row, limit=limit)


def found(connection: sqlite3.Connection, text: str, *, limit: int = 9, conversation: str | None = None) -> list[str]:
    rows = sql.recall(connection, text, **WHOSE, conversation=conversation, limit=limit)
    return [row[4] for row, _ in rows]


@pytest.mark.parametrize(
    "name",
    [
        "OWNER",
        "SOME",
        "NEWEST",
        "PAGE",
        "COUNTS",
        "HAVING",
        "FORGET",
        "FORGET_ALL",
        "FORGET_IN",
        "UNREAD",
        "DROP_OLDEST",
    ],
)
def test_memory_lookups_use_an_index(connection: sqlite3.Connection, name: str) -> None:
    """However many rows there are, and in order without being sorted."""
    statement = getattr(sql, name)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * statement.count("?")).fetchall()
    told = [row[3] for row in plan if "json_each" not in row[3]]
    assert [step for step in told if step.startswith("SCAN") and "USING" not in step] == []
    assert [step for step in told if "TEMP B-TREE FOR ORDER" in step] == []


def test_rare_words_rank_higher(connection: sqlite3.Connection) -> None:
    """A word that most memories have tells little; of equals, the newest is first, and behind them the newest."""
    keep(connection, "likes tea from China", "likes tea and Rome", "likes tea", "likes tea a lot", "cats")
    assert found(connection, "tea in Rome", limit=3) == ["likes tea and Rome", "likes tea a lot", "likes tea"]
    newest = ["cats", "likes tea a lot", "likes tea", "likes tea and Rome", "likes tea from China"]
    assert found(connection, "hello") == found(connection, "") == found(connection, "cats") == newest


def test_chinese_text_is_found_by_character_pairs(connection: sqlite3.Connection) -> None:
    """By pairs of characters."""
    keep(connection, "我住在北京", "我喜欢喝茶", "我有一只猫")
    assert found(connection, "北京天气", limit=1) == ["我住在北京"]


def test_recall_share_reports_the_matched_part_of_the_text(connection: sqlite3.Connection) -> None:
    """All of it is 1, nothing of it is 0."""
    keep(connection, "a blue car", "a red car", "a boat")
    rows = sql.recall(connection, "the blue car", **WHOSE, conversation=None, limit=3)
    (blue, red, boat) = [share for _, share in rows]
    assert (blue, boat) == (1.0, 0.0) and 0.2 < red < 0.5


def test_best_match_is_found_among_memories_with_common_words(connection: sqlite3.Connection) -> None:
    """Of words that so many memories have that only the newest are read, one with a rare word has them, too."""
    keep(connection, "wild geese like seeds", *(f"geese like number {i}" for i in range(2000)))
    rows = sql.recall(connection, "wild geese like", **WHOSE, conversation=None, limit=2)
    assert [(row[4], share) for row, share in rows][:1] == [("wild geese like seeds", 1.0)]
    assert rows[1][0][4] == "geese like number 1999" and 0 < rows[1][1] < 0.5


def test_recall_returns_memories_of_the_conversation_and_general_ones(connection: sqlite3.Connection) -> None:
    """The limit counts all of them together."""
    keep(connection, "tea one", conversation="c1")
    keep(connection, "tea two")
    keep(connection, "tea three", conversation="c2")
    seen = {place: set(found(connection, "tea", conversation=place)) for place in (None, "c1", "c2")}
    assert seen == {None: {"tea two"}, "c1": {"tea one", "tea two"}, "c2": {"tea two", "tea three"}}
    keep(connection, "tea four", limit=2)
    assert found(connection, "tea", conversation="c2") == ["tea four", "tea three"]


def test_duplicate_text_is_stored_once_per_conversation(connection: sqlite3.Connection) -> None:
    """In each conversation."""
    row = ("m1", "t", "user:ann", None, "tea", 1.0)
    again = [("m2", *row[1:]), ("m3", "t", "user:ann", "c1", "tea", 1.0), ("m4", "t", "user:bob", None, "tea", 1.0)]
    assert [sql.remember(connection, each, limit=9)[0] for each in (row, *again)] == [True, False, True, True]


def test_drop_oldest_deletes_memories_in_steps(connection: sqlite3.Connection) -> None:
    """A limit that was lowered deletes no more than a step at once, and says that there is more."""
    keep(connection, *(f"thing {i}" for i in range(130)))
    row = ("new", "t", "user:ann", None, "newest", 1.0)
    assert sql.remember(connection, row, limit=10) == (True, True)
    assert sql.drop_oldest(connection, **WHOSE, limit=10) is True
    assert sql.drop_oldest(connection, **WHOSE, limit=10) is False
    assert found(connection, "", limit=99)[0] == "newest" and len(found(connection, "", limit=99)) == 10


class Steps:
    """How many steps SQLite's machine makes, in hundreds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.hundreds = 0
        connection.set_progress_handler(self._count, 100)

    def _count(self) -> int:
        self.hundreds += 1
        return 0

    def of(self, work: Callable[[], object]) -> int:
        """Returns the steps of `work`, in hundreds."""
        before = self.hundreds
        work()
        return self.hundreds - before


def test_recall_cost_is_independent_of_the_number_of_memories(connection: sqlite3.Connection) -> None:
    """Also for words that all of them have; and forgetting one costs the same."""
    texts = ("what do I like", "geese", "wild " * 90, "我" * 500, " ".join(map(str, range(500))))
    goose = "I like wild geese of kind {} and number {}"
    steps, few = Steps(connection), dict[str, int]()
    keep(connection, *(goose.format(i % 97, i) for i in range(1_000)))
    for text in texts:
        few[text] = steps.of(lambda text=text: found(connection, text))
    keep(connection, *(goose.format(i % 97, i) for i in range(1_000, 10_000)))
    for text in texts:
        assert steps.of(lambda text=text: found(connection, text)) <= 1.5 * few[text] + 10, text
    whose = {"tenant": "t", "owner": None}
    assert steps.of(lambda: sql.forget(connection, [f"mem_None_{goose.format(1, 1)}"], **whose)) <= 50
    assert len(found(connection, "geese number 1", limit=3)) == 3


# The tables.


def index(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """How many entries the index, its counts and the owners have."""
    tables = ("memory_words", "memory_word_counts", "memory_owners")
    n_words, n_counts, n_owners = (
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables
    )
    return n_words, n_counts, n_owners


def test_index_rows_are_deleted_with_their_memories(connection: sqlite3.Connection) -> None:
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


def test_each_memory_change_increments_the_version(connection: sqlite3.Connection) -> None:
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


def test_migration_moves_memories_of_callers_to_their_keys() -> None:
    """Their words are read afterwards, in steps; until then the newest are found."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    before = MIGRATIONS.index(sql.MEMORIES_OF_USERS)
    execute_statements(MIGRATIONS[:before], connection)
    rows = [("t", caller, f"m{i}", place, f"fact {i}", float(-i)) for i in range(60) for caller, place in WHO]
    connection.executemany("INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("INSERT INTO memories VALUES ('t', 'ann', 'twice', NULL, 'fact 1', 5)")
    execute_statements(MIGRATIONS[before:], connection)
    of_ann = {"tenant": "t", "owner": "key:ann", "conversation": None, "limit": 2}
    assert [row[4] for row, _ in sql.recall(connection, "fact 40", **of_ann)] == ["fact 0", "fact 1"]
    assert [sql.read_words(connection) for _ in range(4)] == [50, 50, 20, 0] and not sql.is_unread(connection)
    assert sql.recall(connection, "fact 40", **of_ann)[0] == (("m40", "t", "key:ann", None, "fact 40", -40.0), 1.0)
    assert sql.recall(connection, "fact 40", **{**of_ann, "owner": "key:ben"}) == []
    assert sql.recall(connection, "fact 40", **{**of_ann, "owner": "key:ben", "conversation": "c"})[0][1] == 1.0
    connection.close()


WHO = (("ann", None), ("ben", "c"))
