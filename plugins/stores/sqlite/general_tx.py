"""The statements and transactions of the SQLite store for everything but its journal.

Rule 1: a change of prompts and services increases the generation in its own transaction. Others notice it by that.
Rule 2: a service is changed only as the version that its reader saw.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Sequence[Any]

GENERATION = "SELECT value FROM counters WHERE name = 'generation'"
NEXT_GENERATION = "UPDATE counters SET value = value + 1 WHERE name = 'generation'"

#: Means nothing, and is never the same.
MARK = """INSERT INTO counters VALUES ('mark', random())
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""

# Columns stand in the order of the dataclasses in `gateway.contracts.exchange`.

_PROMPTS = "SELECT id, tenant, text, version, updated_s FROM prompts"
ALL_PROMPTS = f"{_PROMPTS} ORDER BY id, tenant"
PROMPTS = f"{_PROMPTS} WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?"
PROMPT = f"{_PROMPTS} WHERE tenant = ? AND id = ?"
PUT_PROMPT = """INSERT INTO prompts (id, tenant, text, version, updated_s) VALUES (?, ?, ?, 1, ?)
    ON CONFLICT (tenant, id) DO UPDATE
    SET text = excluded.text, version = version + 1, updated_s = excluded.updated_s
    RETURNING id, tenant, text, version, updated_s"""
DELETE_PROMPT = "DELETE FROM prompts WHERE tenant = ? AND id = ?"

SERVICES = "SELECT name, config, stopped, restarts, pins, version, updated_s FROM services ORDER BY name"
ADD_SERVICE = """INSERT INTO services (name, config, stopped, restarts, pins, version, updated_s)
    VALUES (?1, ?2, ?3, ?4, ?5, 1, ?7) ON CONFLICT (name) DO NOTHING"""
CHANGE_SERVICE = """UPDATE services
    SET config = ?2, stopped = ?3, restarts = ?4, pins = ?5, version = version + 1, updated_s = ?7
    WHERE name = ?1 AND version = ?8"""
DELETE_SERVICE = "DELETE FROM services WHERE name = ?"

#: So many definitions are kept, the newest.
DEFINITIONS_KEPT = 20_000
PUT_DEFINITION = "INSERT INTO definitions (sha256, content) VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING"
FORGET_DEFINITIONS = "DELETE FROM definitions WHERE seq <= (SELECT max(seq) FROM definitions) - ?"
DEFINITIONS = "SELECT sha256, content FROM definitions WHERE sha256 IN (SELECT value FROM json_each(?))"

FORGET_TOLD = "DELETE FROM worker_services WHERE worker = ?"
TELL = "INSERT OR REPLACE INTO worker_services (worker, name, state, error, updated_s) VALUES (?, ?, ?, ?, ?)"
TOLD = """SELECT worker, name, state, error, updated_s FROM worker_services WHERE updated_s >= ?
    ORDER BY name, worker"""


ADD_SIGNING = "INSERT INTO secrets (name, value) VALUES (?, randomblob(32)) ON CONFLICT (name) DO NOTHING"
SIGNING = "SELECT value FROM secrets WHERE name = ?"
END_SESSION = """INSERT INTO ended_sessions (digest, until_s) VALUES (?, ?)
    ON CONFLICT (digest) DO UPDATE SET until_s = max(until_s, excluded.until_s)"""
FORGET_SESSIONS = "DELETE FROM ended_sessions WHERE until_s < ?"
ENDED_SESSIONS = "SELECT digest FROM ended_sessions WHERE digest IN (SELECT value FROM json_each(?))"


def get_or_create_secret(connection: sqlite3.Connection, name: str) -> bytes:
    """Return a secret, and store it if there is none of this name."""
    connection.execute(ADD_SIGNING, (name,))
    return bytes(connection.execute(SIGNING, (name,)).fetchone()[0])


def end_session(connection: sqlite3.Connection, digest: str, *, until_s: float, now_s: float) -> None:
    """Store that a session has ended, and delete the rows of sessions whose time is over."""
    connection.execute(FORGET_SESSIONS, (now_s,))
    connection.execute(END_SESSION, (digest, until_s))


def find_ended_sessions(connection: sqlite3.Connection, *, digests: Collection[str]) -> Collection[str]:
    return {digest for (digest,) in connection.execute(ENDED_SESSIONS, (json.dumps(list(digests)),))}


def put_prompt(connection: sqlite3.Connection, facts: Row) -> Row:
    """Store a prompt and return its row as it is then. `facts` are its id, tenant, text and time."""
    (row,) = connection.execute(PUT_PROMPT, facts).fetchall()
    connection.execute(NEXT_GENERATION)
    return tuple(row)


def delete_prompt(connection: sqlite3.Connection, prompt_id: str, *, tenant: str) -> bool:
    """Delete a prompt. Return whether there was one."""
    return _execute_counted(connection, DELETE_PROMPT, (tenant, prompt_id))


def put_service(connection: sqlite3.Connection, row: Row, *, expected: int) -> bool:
    """Store a service with the version of its row. Return False if it is not of version `expected` any more."""
    if expected == 0:
        return _execute_counted(connection, ADD_SERVICE, row)
    return _execute_counted(connection, CHANGE_SERVICE, (*row, expected))


def delete_service(connection: sqlite3.Connection, name: str) -> bool:
    """Delete a service. Return whether there was one."""
    return _execute_counted(connection, DELETE_SERVICE, (name,))


def put_definitions(connection: sqlite3.Connection, definitions: Iterable[Row]) -> None:
    """Store definitions by their hashes, and delete the oldest ones. No process must notice it: generation stays."""
    connection.executemany(PUT_DEFINITION, definitions)
    connection.execute(FORGET_DEFINITIONS, (DEFINITIONS_KEPT,))


def report_services(connection: sqlite3.Connection, worker: str, rows: Iterable[Row]) -> None:
    """Replace the reports of a worker. They are not changes that a process must notice, so the generation stays."""
    connection.execute(FORGET_TOLD, (worker,))
    connection.executemany(TELL, rows)


def _execute_counted(connection: sqlite3.Connection, statement: str, values: Row) -> bool:
    changed = connection.execute(statement, values).rowcount > 0
    if changed:
        connection.execute(NEXT_GENERATION)
    return changed
