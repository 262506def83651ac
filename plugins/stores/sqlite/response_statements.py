"""Responses and conversations in the SQLite store: statements and transactions on a connection.

1. Rows that belong to a response or a conversation name it by its number. They are deleted before it, in the same
   transaction as the last of them: a number that is given again never leads to rows of another tenant.
2. Work that grows with the length of a chain, of a log or of a conversation is done in steps. Each step is a separate
   transaction, and others read and write in between.
"""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from gateway.plugin import ConflictError, KeyTakenError, StoredConversation, StoredResponse

from .rows import Rows

Row: TypeAlias = Sequence[Any]

RESPONSES, CONVERSATIONS = Rows(StoredResponse), Rows(StoredConversation)
#: Rows that one transaction deletes, and responses or items that one reads.
STEP: Final = 200
#: Before the first number, and behind the last one.
FIRST, LAST = -1, (1 << 63) - 1

#: Whether something may follow the state of a response, in the words of the partial index, which fits no other words.
OPEN = "(state = 'queued' OR state = 'in_progress')"
#: What replaces that of an open response. SQLite writes the indexes of all columns that are set.
_CHANGED = ("state", "run_id", "previous_id", "conversation", "background", "request", "input", "output", "decides")
PUT_RESPONSE = f"""INSERT INTO responses ({", ".join(RESPONSES.names)})
    VALUES ({", ".join("?" * len(RESPONSES.names))}) ON CONFLICT (tenant, id) DO UPDATE
    SET {", ".join(f"{column} = excluded.{column}" for column in _CHANGED)} WHERE {OPEN}"""
_RESPONSES = f"SELECT {', '.join(RESPONSES.names)} FROM responses WHERE tenant = ?"
RESPONSE = f"{_RESPONSES} AND id = ?"
RESPONSE_WITH_KEY = f"{_RESPONSES} AND caller = ? AND idempotency_key = ?"
OPEN_RESPONSE_OF = f"{_RESPONSES} AND run_id = ? AND {OPEN} ORDER BY created_s DESC, number DESC LIMIT 1"

FREE_KEY = """UPDATE responses SET idempotency_key = NULL
    WHERE tenant = ? AND caller = ? AND idempotency_key = ? AND id = ?"""
#: Whether the key of a new response is another one's.
KEY_TAKEN = """SELECT 1 FROM responses WHERE tenant = ?1 AND caller = ?2 AND idempotency_key = ?3
    AND NOT EXISTS (SELECT 1 FROM responses WHERE tenant = ?1 AND id = ?4)"""

LOG = """SELECT responses.number, coalesce((SELECT max(number) + 1 FROM answer_chunks
        WHERE response = responses.number), 0)
    FROM responses JOIN runs ON runs.tenant = responses.tenant AND runs.id = run_id
    WHERE responses.tenant = ? AND responses.id = ? AND fence = ?"""
ADD_CHUNK = "INSERT INTO answer_chunks (response, number, chunk) VALUES (?, ?, ?)"
CHUNKS = """SELECT chunk FROM answer_chunks WHERE response = (SELECT number FROM responses WHERE tenant = ? AND id = ?)
    AND number >= ? ORDER BY number LIMIT ?"""

PUT_CONVERSATION = f"""INSERT INTO conversations ({", ".join(CONVERSATIONS.names)}, updated_s) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, id) DO UPDATE SET metadata = excluded.metadata, updated_s = excluded.updated_s"""
CONVERSATION = f"SELECT {', '.join(CONVERSATIONS.names)} FROM conversations WHERE tenant = ? AND id = ?"
TOUCH = "UPDATE conversations SET updated_s = ? WHERE tenant = ? AND id = ? RETURNING number"

ADD_ITEM = """INSERT INTO conversation_items (conversation, number, id, item) VALUES (?1,
    coalesce((SELECT max(number) + 1 FROM conversation_items WHERE conversation = ?1), 0), ?2, ?3)
    ON CONFLICT (conversation, id) DO NOTHING"""
ADD_DECISION = "INSERT OR IGNORE INTO conversation_decisions (conversation, approval_id) VALUES (?, ?)"
_OF_CONVERSATION = "conversation = (SELECT number FROM conversations WHERE tenant = ? AND id = ?)"
ITEM = f"SELECT number, item FROM conversation_items WHERE {_OF_CONVERSATION} AND id = ?"
OLDEST_ITEMS = f"""SELECT number, item FROM conversation_items WHERE {_OF_CONVERSATION} AND number > ?
    ORDER BY number LIMIT ?"""
NEWEST_ITEMS = f"""SELECT number, item FROM conversation_items WHERE {_OF_CONVERSATION} AND number < ?
    ORDER BY number DESC LIMIT ?"""
DELETE_ITEM = f"DELETE FROM conversation_items WHERE {_OF_CONVERSATION} AND id = ?"


def _build_deletion(table: str, parts: str, owner: str) -> tuple[str, str, str]:
    """Return the statements that find the number of a row, delete some of the rows that belong to it, and delete it."""
    return (
        f"SELECT number FROM {table} WHERE tenant = ? AND id = ?",
        f"""DELETE FROM {parts} WHERE {owner} = ?1 AND number IN
            (SELECT number FROM {parts} WHERE {owner} = ?1 ORDER BY number LIMIT ?2)""",
        f"DELETE FROM {table} WHERE number = ?",
    )


DELETE_RESPONSE = _build_deletion("responses", "answer_chunks", "response")
DELETE_CONVERSATION = _build_deletion("conversations", "conversation_items", "conversation")

#: By table: the numbers of old rows, the deletion of some of the rows that belong to them, and of some of them.
OLD_RESPONSES = """SELECT number FROM (SELECT number, created_s FROM responses ORDER BY number LIMIT ?2)
    WHERE created_s < ?1"""
OLD_CONVERSATIONS = "SELECT number FROM conversations WHERE updated_s < ? ORDER BY updated_s, number LIMIT ?"
PRUNE = tuple(
    (
        old,
        f"""DELETE FROM {parts} WHERE ({owner}, number) IN (SELECT {owner}, number FROM {parts}
            WHERE {owner} IN (SELECT value FROM json_each(?)) LIMIT ?)""",
        f"DELETE FROM {table} WHERE number IN (SELECT value FROM json_each(?) LIMIT ?)",
    )
    for old, table, parts, owner in (
        (OLD_RESPONSES, "responses", "answer_chunks", "response"),
        (OLD_CONVERSATIONS, "conversations", "conversation_items", "conversation"),
    )
)


def put_response(
    connection: sqlite3.Connection,
    response: StoredResponse,
    *,
    adds: Sequence[tuple[str, bytes]],
    takes_key_of: str | None,
    now_s: float,
) -> bool:
    """Insert or replace a response, and with it the items that it adds to its conversation. Return whether it is."""
    if response.idempotency_key is not None:
        _check_key(connection, response, takes_key_of=takes_key_of)
    written = connection.execute(PUT_RESPONSE, RESPONSES.values(response)).rowcount > 0
    if written and adds and response.conversation is not None:
        conversation, tenant, decides = response.conversation, response.tenant, response.decides.split()
        add_items(connection, conversation, items=adds, decides=decides, tenant=tenant, now_s=now_s)
    return written


def _check_key(connection: sqlite3.Connection, response: StoredResponse, *, takes_key_of: str | None) -> None:
    """Check that a new response may have its Idempotency-Key. Raises KeyTakenError."""
    key = (response.tenant, response.caller, response.idempotency_key)
    connection.execute(FREE_KEY, (*key, takes_key_of))
    if connection.execute(KEY_TAKEN, (*key, response.id)).fetchone():
        raise KeyTakenError(f"another response has the Idempotency-Key of the response {response.id!r}")


def list_response_chain(
    connection: sqlite3.Connection, response_id: str | None, *, tenant: str, limit: int
) -> list[StoredResponse]:
    """Return a response before the ones that it continues, newest first, up to `limit` of them."""
    found: list[StoredResponse] = []
    while response_id is not None and len(found) < limit:
        row = connection.execute(RESPONSE, (tenant, response_id)).fetchone()
        if row is None:
            break
        found.append(RESPONSES.read_fact(row))
        response_id = found[-1].previous_id
    return found


def append_answer(
    connection: sqlite3.Connection, response_id: str, *, tenant: str, fence: int, start: int, chunks: Sequence[bytes]
) -> None:
    found = connection.execute(LOG, (tenant, response_id, fence)).fetchone()
    if found is None:
        raise ConflictError(f"the response {response_id!r} has no run, or its fence is not {fence}")
    response, there = found
    if there != start:
        raise ConflictError(f"the log of the response {response_id!r} has {there} chunks, and not {start}")
    connection.executemany(ADD_CHUNK, [(response, number, chunk) for number, chunk in enumerate(chunks, start)])


def delete_batch(
    connection: sqlite3.Connection, statements: tuple[str, str, str], *, tenant: str, row_id: str
) -> bool | None:
    """Delete one batch of the child rows of a row, and the row itself after the last batch.

    Return whether the row existed, or None while more batches remain.
    """
    find, delete_parts, delete_row = statements
    found = connection.execute(find, (tenant, row_id)).fetchone()
    if found is None:
        return False
    if connection.execute(delete_parts, (*found, STEP)).rowcount == STEP:
        return None
    connection.execute(delete_row, found)
    return True


def add_items(
    connection: sqlite3.Connection,
    conversation_id: str,
    *,
    items: Sequence[tuple[str, bytes]],
    decides: Sequence[str] = (),
    tenant: str,
    now_s: float,
) -> bool:
    """Add items, unless they are the answer to these decisions and the conversation has one to each of them."""
    found = connection.execute(TOUCH, (now_s, tenant, conversation_id)).fetchall()
    for (conversation,) in found:
        made = [(conversation, approval_id) for approval_id in decides]
        if not made or connection.executemany(ADD_DECISION, made).rowcount:
            connection.executemany(ADD_ITEM, [(conversation, *item) for item in items])
    return bool(found)


def list_items(
    connection: sqlite3.Connection,
    conversation_id: str,
    *,
    tenant: str,
    after: str | None,
    limit: int,
    newest_first: bool,
) -> list[bytes]:
    statement, behind = (NEWEST_ITEMS, LAST) if newest_first else (OLDEST_ITEMS, FIRST)
    if after is not None:
        found = connection.execute(ITEM, (tenant, conversation_id, after)).fetchone()
        if found is None:
            return []
        behind = found[0]
    return [item for _, item in connection.execute(statement, (tenant, conversation_id, behind, limit))]


def step_of_items(
    connection: sqlite3.Connection, conversation_id: str, *, tenant: str, behind: int
) -> tuple[list[bytes], int | None]:
    """Return a step of the items behind a number, and the number behind which further ones may be."""
    rows = connection.execute(OLDEST_ITEMS, (tenant, conversation_id, behind, STEP)).fetchall()
    return [item for _, item in rows], rows[-1][0] if len(rows) == STEP else None


def delete_item(
    connection: sqlite3.Connection, conversation_id: str, *, item_id: str, tenant: str, now_s: float
) -> bool:
    if not connection.execute(DELETE_ITEM, (tenant, conversation_id, item_id)).rowcount:
        return False
    connection.execute(TOUCH, (now_s, tenant, conversation_id)).fetchall()
    return True


def prune_responses(connection: sqlite3.Connection, *, before_s: float, limit: int) -> int:
    """Delete old responses and conversations, up to `limit` rows. Return how many rows are gone."""
    left = limit
    for find, delete_parts, delete_rows in PRUNE:
        old = json.dumps([number for (number,) in connection.execute(find, (before_s, left))])
        for statement in (delete_parts, delete_rows):
            left -= connection.execute(statement, (old, left)).rowcount
    return limit - left
