"""The responses and conversations of the SQLite store: the methods of `ResponseStore`, on the threads of the store."""

from collections.abc import Sequence
from functools import partial

from gateway.plugin import StoredConversation, StoredResponse

from . import response_statements as sql
from .connection_thread import SqliteWork
from .response_statements import CONVERSATIONS, RESPONSES
from .transactions import Lasts


class SqliteResponses(SqliteWork):
    """The part of a store for responses, the logs of their answers, and conversations."""

    async def put_response(
        self,
        response: StoredResponse,
        *,
        adds: Sequence[tuple[str, bytes]] = (),
        takes_key_of: str | None = None,
        now_s: float = 0.0,
    ) -> bool:
        put = partial(sql.put_response, response=response, adds=adds, takes_key_of=takes_key_of, now_s=now_s)
        return await self._write(put)

    async def get_response(self, response_id: str, *, tenant: str) -> StoredResponse | None:
        return await self._fetch_first(RESPONSES, sql.RESPONSE, (tenant, response_id))

    async def find_response_with_key(self, idempotency_key: str, *, tenant: str, caller: str) -> StoredResponse | None:
        return await self._fetch_first(RESPONSES, sql.RESPONSE_WITH_KEY, (tenant, caller, idempotency_key))

    async def list_response_chain(self, response_id: str, *, tenant: str, limit: int) -> Sequence[StoredResponse]:
        found: list[StoredResponse] = []
        further: str | None = response_id
        while further is not None and len(found) < limit:
            step = min(sql.STEP, limit - len(found))
            read = await self._read(partial(sql.list_response_chain, response_id=further, tenant=tenant, limit=step))
            found += read
            further = read[-1].previous_id if len(read) == step else None
        found.reverse()
        return found

    async def find_newest_open_response(self, run_id: str, *, tenant: str) -> StoredResponse | None:
        return await self._fetch_first(RESPONSES, sql.OPEN_RESPONSE_OF, (tenant, run_id))

    async def delete_response(self, response_id: str, *, tenant: str) -> bool:
        return await self._delete(sql.DELETE_RESPONSE, tenant=tenant, row_id=response_id)

    async def append_answer(
        self, response_id: str, *, tenant: str, fence: int, start: int, chunks: Sequence[bytes]
    ) -> None:
        append = partial(sql.append_answer, response_id=response_id, tenant=tenant, fence=fence)
        await self._write(partial(append, start=start, chunks=chunks))

    async def list_answer_chunks(self, response_id: str, *, tenant: str, start: int, limit: int) -> Sequence[bytes]:
        which = (tenant, response_id, start, limit)
        return await self._read(lambda c: [chunk for (chunk,) in c.execute(sql.CHUNKS, which)])

    async def put_conversation(self, conversation: StoredConversation, *, now_s: float) -> None:
        row = (*CONVERSATIONS.values(conversation), now_s)
        await self._write(lambda c: c.execute(sql.PUT_CONVERSATION, row).rowcount)

    async def get_conversation(self, conversation_id: str, *, tenant: str) -> StoredConversation | None:
        return await self._fetch_first(CONVERSATIONS, sql.CONVERSATION, (tenant, conversation_id))

    async def delete_conversation(self, conversation_id: str, *, tenant: str) -> bool:
        return await self._delete(sql.DELETE_CONVERSATION, tenant=tenant, row_id=conversation_id)

    async def add_items(
        self, conversation_id: str, items: Sequence[tuple[str, bytes]], *, tenant: str, now_s: float
    ) -> bool:
        add = partial(sql.add_items, conversation_id=conversation_id, items=items, tenant=tenant, now_s=now_s)
        return await self._write(add)

    async def list_items(
        self, conversation_id: str, *, tenant: str, after: str | None, limit: int, newest_first: bool
    ) -> Sequence[bytes]:
        read = partial(sql.list_items, conversation_id=conversation_id, tenant=tenant, after=after)
        return await self._read(partial(read, limit=limit, newest_first=newest_first))

    async def list_all_items(self, conversation_id: str, *, tenant: str) -> Sequence[bytes]:
        found: list[bytes] = []
        behind: int | None = sql.FIRST
        while behind is not None:
            step = partial(sql.step_of_items, conversation_id=conversation_id, tenant=tenant, behind=behind)
            items, behind = await self._read(step)
            found += items
        return found

    async def get_item(self, conversation_id: str, item_id: str, *, tenant: str) -> bytes | None:
        which = (tenant, conversation_id, item_id)
        return await self._read(lambda c: next((item for _, item in c.execute(sql.ITEM, which)), None))

    async def delete_item(self, conversation_id: str, item_id: str, *, tenant: str, now_s: float) -> bool:
        delete = partial(sql.delete_item, conversation_id=conversation_id, item_id=item_id, tenant=tenant, now_s=now_s)
        return await self._write(delete, lasts=Lasts.FOR_SURE)

    async def _delete(self, statements: tuple[str, str, str], *, tenant: str, row_id: str) -> bool:
        step = partial(sql.delete_batch, statements=statements, tenant=tenant, row_id=row_id)
        while (was_there := await self._write(step, lasts=Lasts.FOR_SURE)) is None:
            pass
        return was_there
