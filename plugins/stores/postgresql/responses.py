"""Responses, the logs of their answers, and conversations in the PostgreSQL store (`sql/responses.sql`).

Work that grows with the length of a log or of a conversation is done in steps. Each step is a separate transaction.
"""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

from collections.abc import Sequence
from typing import Final

from gateway.plugin import StoredConversation, StoredResponse

from .base import PostgresqlBase
from .rows import PostgresqlRows, to_arrays

RESPONSES, CONVERSATIONS = PostgresqlRows(StoredResponse), PostgresqlRows(StoredConversation)
#: Rows that one transaction deletes, and items that one reads.
STEP: Final = 500
#: Before the first number.
_FIRST: Final = -1

_RESPONSES: Final = f"SELECT {RESPONSES.list_columns()} FROM twolane.responses WHERE tenant = $1"
_RESPONSE: Final = f"{_RESPONSES} AND id = $2"
_WITH_KEY: Final = f"""{_RESPONSES} AND caller = $2 AND idempotency_key IS NOT NULL
    AND twolane.digest(idempotency_key) = twolane.digest($3)"""
_OPEN_OF: Final = f"""{_RESPONSES} AND run_id = $2 AND (state = 'queued' OR state = 'in_progress')
    ORDER BY created_s DESC, number DESC LIMIT 1"""
_CHAIN: Final = f"""WITH RECURSIVE chain (depth, number, previous_id) AS (
        SELECT 1, number, previous_id FROM twolane.responses WHERE tenant = $1 AND id = $2
        UNION ALL SELECT depth + 1, before.number, before.previous_id FROM chain
            JOIN twolane.responses AS before ON before.tenant = $1 AND before.id = chain.previous_id
            WHERE depth < $3)
    SELECT {RESPONSES.list_columns("response")}
    FROM chain JOIN twolane.responses AS response ON response.number = chain.number ORDER BY depth DESC"""
_CHUNKS: Final = """SELECT chunk FROM twolane.answer_chunks WHERE response =
    (SELECT number FROM twolane.responses WHERE tenant = $1 AND id = $2) AND number >= $3 ORDER BY number LIMIT $4"""
_CONVERSATION: Final = "SELECT id, tenant, created_s, metadata FROM twolane.conversations WHERE tenant = $1 AND id = $2"
_ITEMS: Final = """conversation_items AS item
    WHERE conversation = (SELECT number FROM twolane.conversations WHERE tenant = $1 AND id = $2)"""
_ITEM: Final = f"SELECT item FROM twolane.{_ITEMS} AND id = $3"
_STEP_OF_ITEMS: Final = f"SELECT number, item FROM twolane.{_ITEMS} AND number > $3 ORDER BY number LIMIT $4"
#: `after` that is not there is behind all items.
_PAGE: Final = f"""SELECT item FROM twolane.{_ITEMS} AND ($3::text IS NULL OR number {{than}} (
        SELECT number FROM twolane.conversation_items AS after
        WHERE after.conversation = item.conversation AND after.id = $3)) ORDER BY number {{order}} LIMIT $4"""
_OLDEST: Final = _PAGE.format(than=">", order="")
_NEWEST: Final = _PAGE.format(than="<", order="DESC")


class PostgresqlResponses(PostgresqlBase):
    """The part of a store for responses, the logs of their answers, and conversations."""

    async def put_response(
        self,
        response: StoredResponse,
        *,
        adds: Sequence[tuple[str, bytes]] = (),
        takes_key_of: str | None = None,
        now_s: float = 0.0,
    ) -> bool:
        facts = (*RESPONSES.values(response), *to_arrays(adds, 2), response.decides.split(), takes_key_of, now_s)
        return bool(await self._call_value("put_response", *facts))

    async def get_response(self, response_id: str, *, tenant: str) -> StoredResponse | None:
        return await self._fetch_first(RESPONSES, _RESPONSE, tenant, response_id)

    async def find_response_with_key(self, idempotency_key: str, *, tenant: str, caller: str) -> StoredResponse | None:
        return await self._fetch_first(RESPONSES, _WITH_KEY, tenant, caller, idempotency_key)

    async def list_response_chain(self, response_id: str, *, tenant: str, limit: int) -> Sequence[StoredResponse]:
        return await self._fetch_all(RESPONSES, _CHAIN, tenant, response_id, limit)

    async def find_newest_open_response(self, run_id: str, *, tenant: str) -> StoredResponse | None:
        return await self._fetch_first(RESPONSES, _OPEN_OF, tenant, run_id)

    async def delete_response(self, response_id: str, *, tenant: str) -> bool:
        return await self._delete("delete_response", tenant, response_id)

    async def append_answer(
        self, response_id: str, *, tenant: str, fence: int, start: int, chunks: Sequence[bytes]
    ) -> None:
        await self._call("append_answer", tenant, response_id, fence, start, list(chunks))

    async def list_answer_chunks(self, response_id: str, *, tenant: str, start: int, limit: int) -> Sequence[bytes]:
        return [chunk for (chunk,) in await self._read(_CHUNKS, tenant, response_id, start, limit)]

    async def put_conversation(self, conversation: StoredConversation, *, now_s: float) -> None:
        await self._call("put_conversation", *CONVERSATIONS.values(conversation), now_s)

    async def get_conversation(self, conversation_id: str, *, tenant: str) -> StoredConversation | None:
        return await self._fetch_first(CONVERSATIONS, _CONVERSATION, tenant, conversation_id)

    async def delete_conversation(self, conversation_id: str, *, tenant: str) -> bool:
        return await self._delete("delete_conversation", tenant, conversation_id)

    async def add_items(
        self, conversation_id: str, items: Sequence[tuple[str, bytes]], *, tenant: str, now_s: float
    ) -> bool:
        facts = (tenant, conversation_id, *to_arrays(items, 2), now_s)
        return bool(await self._call_value("add_items", *facts))

    async def list_items(
        self, conversation_id: str, *, tenant: str, after: str | None, limit: int, newest_first: bool
    ) -> Sequence[bytes]:
        statement = _NEWEST if newest_first else _OLDEST
        return [item for (item,) in await self._read(statement, tenant, conversation_id, after, limit)]

    async def list_all_items(self, conversation_id: str, *, tenant: str) -> Sequence[bytes]:
        found: list[bytes] = []
        behind = _FIRST
        while True:
            rows = await self._read(_STEP_OF_ITEMS, tenant, conversation_id, behind, STEP)
            found += (item for _, item in rows)
            if len(rows) < STEP:
                return found
            behind = rows[-1][0]

    async def get_item(self, conversation_id: str, item_id: str, *, tenant: str) -> bytes | None:
        rows = await self._read(_ITEM, tenant, conversation_id, item_id)
        return rows[0][0] if rows else None

    async def delete_item(self, conversation_id: str, item_id: str, *, tenant: str, now_s: float) -> bool:
        return bool(await self._call_value("delete_item", tenant, conversation_id, item_id, now_s))

    async def _delete(self, function: str, tenant: str, row_id: str) -> bool:
        while (was_there := await self._call_value(function, tenant, row_id, STEP)) is None:
            pass
        return bool(was_there)
