"""The tables of the SQLite store, as the steps that lead to them, and the statements of the store on these tables.

`user_version` counts the steps that a file has seen. A step that was released is never changed; a new one is put
behind it. Every key begins with the tenant, so that an id that somebody guessed or chose names nothing of another.
"""

from collections.abc import Sequence
from typing import TypeAlias

Migration: TypeAlias = Sequence[str]

#: "Twol": tells a store from any other SQLite file (PRAGMA application_id).
APPLICATION_ID = 0x54776F6C

MIGRATIONS: Sequence[Migration] = (
    (
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO counters VALUES ('generation', 0)",
        """CREATE TABLE prompts (
            id TEXT PRIMARY KEY, text TEXT NOT NULL, version INTEGER NOT NULL, updated_s REAL NOT NULL)""",
        """CREATE TABLE memories (
            tenant TEXT NOT NULL, caller TEXT NOT NULL, id TEXT NOT NULL, conversation TEXT, text TEXT NOT NULL,
            created_s REAL NOT NULL, PRIMARY KEY (tenant, caller, id))""",
        "CREATE INDEX memories_by_age ON memories (tenant, caller, created_s)",
        """CREATE TABLE hidden (
            tenant TEXT NOT NULL, prefix TEXT NOT NULL, messages TEXT NOT NULL, created_s REAL NOT NULL,
            PRIMARY KEY (tenant, prefix))""",
        "CREATE INDEX hidden_by_age ON hidden (created_s)",
        """CREATE TABLE runs (
            tenant TEXT NOT NULL, id TEXT NOT NULL, caller TEXT NOT NULL, chain TEXT NOT NULL,
            fingerprint TEXT NOT NULL, idempotency_key TEXT, state TEXT NOT NULL, effects INTEGER NOT NULL,
            created_s REAL NOT NULL, updated_s REAL NOT NULL, answer BLOB, error_code TEXT,
            PRIMARY KEY (tenant, id))""",
        "CREATE INDEX runs_by_fingerprint ON runs (tenant, fingerprint, updated_s)",
        "CREATE INDEX runs_by_key ON runs (tenant, caller, idempotency_key) WHERE idempotency_key IS NOT NULL",
        "CREATE INDEX runs_by_age ON runs (updated_s)",
    ),
)

# Statements; a table's columns stand in the order of its dataclass in `gateway.contracts`.

PROMPTS = "SELECT id, text, version, updated_s FROM prompts ORDER BY id"
PROMPT = "SELECT id, text, version, updated_s FROM prompts WHERE id = ?"
PUT_PROMPT = """INSERT INTO prompts (id, text, version, updated_s) VALUES (?, ?, 1, ?) ON CONFLICT (id) DO UPDATE
    SET text = excluded.text, version = version + 1, updated_s = excluded.updated_s
    RETURNING id, text, version, updated_s"""
DELETE_PROMPT = "DELETE FROM prompts WHERE id = ?"
GENERATION = "SELECT value FROM counters WHERE name = 'generation'"
NEXT_GENERATION = "UPDATE counters SET value = value + 1 WHERE name = 'generation'"

PUT_MEMORY = """INSERT OR REPLACE INTO memories (id, tenant, caller, conversation, text, created_s)
    VALUES (?, ?, ?, ?, ?, ?)"""
DROP_OLD_MEMORIES = """DELETE FROM memories WHERE rowid IN (SELECT rowid FROM memories
    WHERE tenant = ? AND caller = ? ORDER BY created_s DESC, rowid DESC LIMIT -1 OFFSET ?)"""
MEMORIES = """SELECT id, tenant, caller, conversation, text, created_s FROM memories
    WHERE tenant = ? AND caller = ? AND (conversation IS NULL OR conversation = ?) ORDER BY created_s, rowid"""
FORGET = "DELETE FROM memories WHERE tenant = ? AND caller = ? AND id IN (SELECT value FROM json_each(?))"

PUT_HIDDEN = "INSERT OR REPLACE INTO hidden (tenant, prefix, messages, created_s) VALUES (?, ?, ?, ?)"
HIDDEN = "SELECT prefix, messages FROM hidden WHERE tenant = ? AND prefix IN (SELECT value FROM json_each(?))"

PUT_RUN = """INSERT OR REPLACE INTO runs (id, tenant, caller, chain, fingerprint, idempotency_key, state, effects,
    created_s, updated_s, answer, error_code) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_RUNS = """SELECT id, tenant, caller, chain, fingerprint, idempotency_key, state, effects, created_s, updated_s, answer,
    error_code FROM runs WHERE """
_NEWEST_FIRST = " ORDER BY created_s DESC, rowid DESC"
RUN = _RUNS + "tenant = ? AND id = ?"
RUNS_LIKE = _RUNS + "tenant = ? AND fingerprint = ? AND updated_s >= ?" + _NEWEST_FIRST
RUNS_WITH_KEY = _RUNS + "tenant = ? AND caller = ? AND idempotency_key = ?" + _NEWEST_FIRST

PRUNE = ("DELETE FROM runs WHERE updated_s < ? AND state <> 'running'", "DELETE FROM hidden WHERE created_s < ?")
