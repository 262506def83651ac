"""Memories in the SQLite store: their tables, and statements and transactions on a connection.

1. A memory is found by its words. Triggers maintain an index of them (`memory_words`). They count how many memories of
   an owner have each word (`memory_word_counts`). So the cost of a look does not grow with the number of memories.
2. Work that grows with it, such as forgetting all of an owner, is done in steps of `STEP` memories. Each step is a
   separate transaction, and runs are written in between.
3. `number` orders memories by age. `words` is a JSON list; NULL: they are not indexed yet.
4. Triggers count the changes of memories. Memories that were read stay good while other rows of the store change,
   whichever process changes them.
"""

import heapq
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gateway.plugin.text import extract_keywords

Row: TypeAlias = Sequence[Any]

#: Memories that one transaction deletes, or reads the words of.
STEP = 50
#: Entries of the index that one look reads. Beyond, of a word that many memories have, the newest count.
_READ = 512
#: The best of what was found by the index, of which all words are compared.
_COMPARED = 64

MEMORIES_OF_USERS: Sequence[str] = (
    # Memories belong to end users; of callers that named none, to their keys. Their words are read at the start.
    "ALTER TABLE memories RENAME TO memories_of_callers",
    """CREATE TABLE memory_owners (
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, owner TEXT NOT NULL, memories INTEGER NOT NULL DEFAULT 0,
        UNIQUE (tenant, owner))""",
    """CREATE TABLE memories (
        number INTEGER PRIMARY KEY, owner_id INTEGER NOT NULL, conversation TEXT NOT NULL, id TEXT NOT NULL,
        text TEXT NOT NULL, created_s REAL NOT NULL, words TEXT,
        UNIQUE (id, owner_id), UNIQUE (owner_id, conversation, text))""",
    "CREATE INDEX memories_by_owner ON memories (owner_id)",
    "CREATE INDEX memories_by_conversation ON memories (owner_id, conversation)",
    "CREATE INDEX memories_without_words ON memories (number) WHERE words IS NULL",
    """CREATE TABLE memory_words (
        owner_id INTEGER NOT NULL, conversation TEXT NOT NULL, word TEXT NOT NULL, number INTEGER NOT NULL,
        PRIMARY KEY (owner_id, conversation, word, number)) WITHOUT ROWID""",
    """CREATE TABLE memory_word_counts (
        owner_id INTEGER NOT NULL, conversation TEXT NOT NULL, word TEXT NOT NULL, memories INTEGER NOT NULL,
        PRIMARY KEY (owner_id, conversation, word)) WITHOUT ROWID""",
    """CREATE TRIGGER memories_are_added AFTER INSERT ON memories BEGIN
        UPDATE memory_owners SET memories = memories + 1 WHERE id = NEW.owner_id;
        INSERT INTO memory_words SELECT NEW.owner_id, NEW.conversation, value, NEW.number
            FROM json_each(coalesce(NEW.words, '[]')); END""",
    """CREATE TRIGGER memories_are_read AFTER UPDATE OF words ON memories BEGIN
        DELETE FROM memory_words WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation
            AND number = OLD.number AND word IN (SELECT value FROM json_each(coalesce(OLD.words, '[]')));
        INSERT INTO memory_words SELECT NEW.owner_id, NEW.conversation, value, NEW.number
            FROM json_each(coalesce(NEW.words, '[]')); END""",
    """CREATE TRIGGER memories_are_deleted AFTER DELETE ON memories BEGIN
        DELETE FROM memory_words WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation
            AND number = OLD.number AND word IN (SELECT value FROM json_each(coalesce(OLD.words, '[]')));
        UPDATE memory_owners SET memories = memories - 1 WHERE id = OLD.owner_id;
        DELETE FROM memory_owners WHERE id = OLD.owner_id AND memories = 0; END""",
    """CREATE TRIGGER memory_words_are_added AFTER INSERT ON memory_words BEGIN
        INSERT INTO memory_word_counts VALUES (NEW.owner_id, NEW.conversation, NEW.word, 1)
            ON CONFLICT DO UPDATE SET memories = memories + 1; END""",
    """CREATE TRIGGER memory_words_are_deleted AFTER DELETE ON memory_words BEGIN
        UPDATE memory_word_counts SET memories = memories - 1
            WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation AND word = OLD.word;
        DELETE FROM memory_word_counts WHERE owner_id = OLD.owner_id AND conversation = OLD.conversation
            AND word = OLD.word AND memories = 0; END""",
    """INSERT INTO memory_owners (tenant, owner)
        SELECT DISTINCT tenant, 'key:' || caller FROM memories_of_callers""",
    """INSERT OR IGNORE INTO memories (owner_id, conversation, id, text, created_s)
        SELECT owners.id, coalesce(old.conversation, ''), old.id, old.text, old.created_s
        FROM memories_of_callers AS old JOIN memory_owners AS owners
        ON owners.tenant = old.tenant AND owners.owner = 'key:' || old.caller
        ORDER BY old.created_s, old.rowid""",
    "DROP TABLE memories_of_callers",
)

#: The triggers are per row: SQLite has no others.
COUNTED_CHANGES: Sequence[str] = (
    "CREATE TABLE memory_changes (number INTEGER NOT NULL)",  # one row
    "INSERT INTO memory_changes VALUES (0)",
    """CREATE TRIGGER memory_additions_are_counted AFTER INSERT ON memories BEGIN
        UPDATE memory_changes SET number = number + 1; END""",
    """CREATE TRIGGER memory_updates_are_counted AFTER UPDATE ON memories BEGIN
        UPDATE memory_changes SET number = number + 1; END""",
    """CREATE TRIGGER memory_deletions_are_counted AFTER DELETE ON memories BEGIN
        UPDATE memory_changes SET number = number + 1; END""",
)

#: A number that changes with each change of a memory (`COUNTED_CHANGES`).
VERSION = "SELECT number FROM memory_changes"
OWNER = "SELECT id, memories FROM memory_owners WHERE tenant = ? AND owner = ?"
_ADD_OWNER = """INSERT INTO memory_owners (tenant, owner) VALUES (?, ?) ON CONFLICT (tenant, owner)
    DO UPDATE SET owner = excluded.owner RETURNING id"""
_ADD = """INSERT INTO memories (owner_id, conversation, id, text, created_s, words) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
DROP_OLDEST = """DELETE FROM memories WHERE number IN (SELECT number FROM memories WHERE owner_id = ? ORDER BY number
    LIMIT ?)"""

#: Columns in the order of the fields of `gateway.contracts.storage.store.Memory`, then the number and the words.
_ROWS = """SELECT memories.id, tenant, owner, nullif(conversation, '') AS conversation, text, created_s, number, words
    FROM memories JOIN memory_owners AS owners ON owners.id = owner_id WHERE """
SOME = _ROWS + "number IN (SELECT value FROM json_each(?))"  # noqa: S608 - constants
NEWEST = _ROWS + "owner_id = ? AND conversation = ? ORDER BY number DESC LIMIT ?"
PAGE = _ROWS + "tenant = ? AND owner = ? AND number < ? ORDER BY number DESC LIMIT ?"

COUNTS = """SELECT word, sum(memories) FROM memory_word_counts
    WHERE owner_id = ? AND conversation IN ('', ?) AND word IN (SELECT value FROM json_each(?)) GROUP BY word"""
HAVING = """SELECT number FROM memory_words WHERE owner_id = ? AND conversation = ? AND word = ?
    ORDER BY number DESC LIMIT ?"""

FORGET = """DELETE FROM memories WHERE id IN (SELECT value FROM json_each(?)) AND owner_id IN
    (SELECT id FROM memory_owners WHERE tenant = ? AND owner = coalesce(?, owner))"""
FORGET_ALL = """DELETE FROM memories WHERE number IN (SELECT number FROM memories WHERE owner_id =
    (SELECT id FROM memory_owners WHERE tenant = ? AND owner = ?) LIMIT ?)"""
FORGET_IN = """DELETE FROM memories WHERE number IN (SELECT number FROM memories WHERE owner_id =
    (SELECT id FROM memory_owners WHERE tenant = ? AND owner = ?) AND conversation IN ('', ?) LIMIT ?)"""
UNREAD = "SELECT number, text FROM memories WHERE words IS NULL LIMIT ?"
_READ_WORDS = "UPDATE memories SET words = ? WHERE number = ?"


def count_versions(connection: sqlite3.Connection, asked: Sequence[None]) -> list[int]:
    """Return the number that changes with each change of a memory, for each caller."""
    return [int(connection.execute(VERSION).fetchone()[0])] * len(asked)


def remember(connection: sqlite3.Connection, row: Row, *, limit: int) -> tuple[bool, bool]:
    """Add a memory. Return whether it is new, and whether more than a step of old ones is still to go.

    `row` has the fields of `gateway.contracts.storage.store.Memory`. The oldest of the same owner are deleted.
    """
    memory_id, tenant, owner, conversation, text, created_s = row
    ((owner_id,),) = connection.execute(_ADD_OWNER, (tenant, owner)).fetchall()
    values = (owner_id, conversation or "", memory_id, text, created_s, _list_json_words(text))
    is_new = connection.execute(_ADD, values).rowcount > 0
    return is_new, drop_oldest(connection, tenant=tenant, owner=owner, limit=limit)


def drop_oldest(connection: sqlite3.Connection, *, tenant: str, owner: str, limit: int) -> bool:
    """Delete up to a step of the surplus over `limit`. Return whether there is still more."""
    owner_id, kept = connection.execute(OWNER, (tenant, owner)).fetchone()
    surplus = kept - max(limit, 0)
    if surplus > 0:
        connection.execute(DROP_OLDEST, (owner_id, min(surplus, STEP)))
    return bool(surplus > STEP)


def is_unread(connection: sqlite3.Connection) -> bool:
    """Return whether there are memories whose words are not indexed yet."""
    return bool(connection.execute(UNREAD, (1,)).fetchall())


def read_words(connection: sqlite3.Connection) -> int:
    """Index the words of up to a step of memories that are not indexed yet. Return how many."""
    unread = connection.execute(UNREAD, (STEP,)).fetchall()
    connection.executemany(_READ_WORDS, [(_list_json_words(text), number) for number, text in unread])
    return len(unread)


def recall(
    connection: sqlite3.Connection, text: str, *, tenant: str, owner: str, conversation: str | None, limit: int
) -> list[tuple[Row, float]]:
    """Return the rows of memories, and the share of `text` in each: the best first, then the newest.

    The weight of a word is the larger the fewer memories have it.
    """
    whose = connection.execute(OWNER, (tenant, owner)).fetchone()
    if whose is None or not whose[1]:
        return []
    owner_id, kept = whose
    places = ("",) if conversation is None else ("", conversation)
    words = sorted(extract_keywords(text))
    counts = dict(connection.execute(COUNTS, (owner_id, conversation or "", json.dumps(words))))
    weights = {word: math.log(1 + kept / (counts.get(word) or 0.5)) for word in words}
    scores, cut = _compute_scores(connection, owner_id, places, weights, counts)
    best = heapq.nlargest(max(_COMPARED, limit), scores, key=lambda number: (scores[number], number))
    found = sorted(
        _iterate_score_rows(connection, best, scores, weights, cut), key=lambda each: (-each[1], -each[0][6])
    )
    whole = sum(weights.values())
    told = [(row[:6], round(score / whole, 6)) for row, score in found[:limit]]
    return [*told, *_list_newest(connection, owner_id, places, known=scores, limit=limit - len(told))]


def _compute_scores(
    connection: sqlite3.Connection,
    owner_id: int,
    places: Sequence[str],
    weights: Mapping[str, float],
    counts: Mapping[str, int],
) -> tuple[dict[int, float], dict[str, frozenset[int]]]:
    """Return the weight that each memory, by number, shares with the text, as far as the index was read.

    Rare words come first. The second result has, for each word that was not read completely, the numbers that were.
    """
    scores: dict[int, float] = {}
    cut: dict[str, frozenset[int]] = {}
    room = _READ
    for word in sorted(counts, key=lambda word: (counts[word], word)):
        numbers = [
            number for place in places for (number,) in connection.execute(HAVING, (owner_id, place, word, room))
        ]
        for number in numbers:
            scores[number] = scores.get(number, 0.0) + weights[word]
        if len(numbers) < counts[word]:
            cut[word] = frozenset(numbers)
        room = max(0, room - len(numbers))
    return scores, cut


def _iterate_score_rows(
    connection: sqlite3.Connection,
    numbers: Sequence[int],
    scores: Mapping[int, float],
    weights: Mapping[str, float],
    cut: Mapping[str, frozenset[int]],
) -> Iterator[tuple[Row, float]]:
    """Yield the rows of these memories with their whole scores."""
    for *row, words in connection.execute(SOME, (json.dumps(numbers),)):
        score = scores[row[6]]
        if cut:
            has = frozenset(json.loads(words))
            score += sum(weights[word] for word, read in cut.items() if word in has and row[6] not in read)
        yield tuple(row), round(score, 9)  # the same words in another order are a tie


def _list_newest(
    connection: sqlite3.Connection, owner_id: int, places: Iterable[str], *, known: Mapping[int, float], limit: int
) -> list[tuple[Row, float]]:
    """Return up to `limit` of the newest memories that have nothing in common with the text."""
    if limit <= 0:
        return []
    rows = [
        row
        for place in places
        for row in connection.execute(NEWEST, (owner_id, place, limit + len(known)))
        if row[6] not in known
    ]
    rows.sort(key=lambda row: -row[6])
    return [(row[:6], 0.0) for row in rows[:limit]]


def list_page(connection: sqlite3.Connection, *, tenant: str, owner: str, before: int | None, limit: int) -> list[Row]:
    """Return up to `limit` rows of all conversations, the newest first, each followed by its number."""
    which = (tenant, owner, (1 << 63) - 1 if before is None else before, limit)
    return [row[:7] for row in connection.execute(PAGE, which)]


def forget(connection: sqlite3.Connection, ids: Sequence[str], *, tenant: str, owner: str | None) -> int:
    """Delete the memories with these ids. Return how many were there. `owner` None: any owner of the tenant."""
    return connection.execute(FORGET, (json.dumps(list(ids)), tenant, owner)).rowcount


def forget_step(connection: sqlite3.Connection, *, tenant: str, owner: str, places: Sequence[str] | None) -> int:
    """Delete a step of an owner's memories, of these places or of all. Return how many they were."""
    if places is None:
        return connection.execute(FORGET_ALL, (tenant, owner, STEP)).rowcount
    return connection.execute(FORGET_IN, (tenant, owner, places[-1], STEP)).rowcount


def _list_json_words(text: str) -> str:
    return json.dumps(sorted(extract_keywords(text)), ensure_ascii=False)
