"""The pages of conversations: what responses with `conversation` go on from, and add to."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson
from aiohttp import web

from gateway.api.content import content_of
from gateway.api.request import Authorise, limit_of, query_of, word_of
from gateway.api.responses.creating import no_conversation
from gateway.api.site import Route
from gateway.api.views import json_answer
from gateway.contracts.caller import Caller
from gateway.contracts.plugin import Clock
from gateway.contracts.responses import StoredConversation
from gateway.contracts.store import Json, Store
from gateway.dialects.endpoints import paths_of
from gateway.dialects.json_object import json_object
from gateway.dialects.responses.fields import check_metadata
from gateway.dialects.responses.items import item_at, listed
from gateway.errors import GatewayError

CONVERSATIONS: Final = "conversations"
_SCOPE: Final = "context"
#: A body with items, and items of one request, as in OpenAI's API.
BODY_LIMIT_BYTES, ITEMS_MOST = 10 << 20, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPages:
    """The pages of conversations."""

    store: Store
    clock: Clock
    authorise: Authorise

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        routes: list[Route] = []
        for path in paths_of(CONVERSATIONS):
            one, items, item = path + "/{id}", path + "/{id}/items", path + "/{id}/items/{item}"
            routes += [
                ("POST", path, self._create),
                ("GET", one, self._get),
                ("POST", one, self._update),
                ("DELETE", one, self._delete),
                ("GET", items, self._items),
                ("POST", items, self._add),
                ("GET", item, self._item),
                ("DELETE", item, self._delete_item),
            ]
        return routes

    async def _create(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, _SCOPE)
        wanted = await self._wanted(request, caller, "items", "metadata")
        now_s = self.clock.time()
        conversation = StoredConversation(
            id="conv_" + secrets.token_hex(24),
            tenant=caller.tenant,
            created_s=now_s,
            metadata=orjson.dumps(wanted.metadata or {}),
        )
        await self.store.put_conversation(conversation, now_s=now_s)
        await self._put(conversation, wanted.items)
        return json_answer(_view(conversation))

    async def _get(self, request: web.Request) -> web.Response:
        return json_answer(_view(await self._found(request)))

    async def _update(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, _SCOPE)
        conversation = await self._found(request)
        wanted = await self._wanted(request, caller, "metadata")
        if wanted.metadata is None:
            raise GatewayError("missing_field", "Send 'metadata', an object of texts.", param="metadata")
        changed = replace(conversation, metadata=orjson.dumps(wanted.metadata))
        await self.store.put_conversation(changed, now_s=self.clock.time())
        return json_answer(_view(changed))

    async def _delete(self, request: web.Request) -> web.Response:
        conversation = await self._found(request)
        await self.store.delete_conversation(conversation.id, tenant=conversation.tenant)
        return json_answer({"id": conversation.id, "object": "conversation.deleted", "deleted": True})

    async def _items(self, request: web.Request) -> web.Response:
        conversation = await self._found(request)
        query = query_of(request, "after", "limit", "order", "include", "include[]")
        limit = min(limit_of(query, default=20), 100)
        found = await self.store.items(
            conversation.id,
            tenant=conversation.tenant,
            after=query.get("after"),
            limit=limit + 1,
            newest_first=word_of(query, "order", ("asc", "desc")) != "asc",
        )
        return _items_answer([orjson.loads(item) for item in found[:limit]], has_more=len(found) > limit)

    async def _add(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, _SCOPE)
        conversation = await self._found(request)
        wanted = await self._wanted(request, caller, "items")
        if not wanted.items:
            raise GatewayError("missing_field", f"Send 'items': 1 to {ITEMS_MOST} of them.", param="items")
        await self._put(conversation, wanted.items)
        return _items_answer(wanted.items, has_more=False)

    async def _item(self, request: web.Request) -> web.Response:
        conversation = await self._found(request)
        item = await self.store.item(conversation.id, request.match_info["item"], tenant=conversation.tenant)
        if item is None:
            raise _no_item()
        return json_answer(orjson.loads(item))

    async def _delete_item(self, request: web.Request) -> web.Response:
        conversation = await self._found(request)
        item_id, tenant = request.match_info["item"], conversation.tenant
        if not await self.store.delete_item(conversation.id, item_id, tenant=tenant, now_s=self.clock.time()):
            raise _no_item()
        return json_answer(_view(conversation))

    async def _wanted(self, request: web.Request, caller: Caller, *known: str) -> "_Wanted":
        content = await content_of(request, caller, limit_bytes=BODY_LIMIT_BYTES, limit_name="this page takes")
        return await asyncio.to_thread(_wanted, content or b"{}", known)

    async def _put(self, conversation: StoredConversation, items: Sequence[Json]) -> None:
        if items:
            pairs = [(item["id"], orjson.dumps(item)) for item in items]
            now_s = self.clock.time()
            if not await self.store.add_items(conversation.id, pairs, tenant=conversation.tenant, now_s=now_s):
                raise no_conversation()

    async def _found(self, request: web.Request) -> StoredConversation:
        caller = self.authorise(request, _SCOPE)
        found = await self.store.conversation(request.match_info["id"], tenant=caller.tenant)
        if found is None:
            raise no_conversation()
        return found


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The body of a request, checked. Items have ids."""

    items: Sequence[Json]
    metadata: Json | None


def _wanted(content: bytes, known: Sequence[str]) -> _Wanted:
    """Return what a body asks for. Raises GatewayError."""
    body = json_object(content)
    for name in body:
        if name not in known:
            raise GatewayError("unknown_parameter", f"Unknown parameter: '{name[:100]}'.", param=name[:100])
    check_metadata(body.get("metadata") or {})
    items = body.get("items") or []
    if not isinstance(items, list) or len(items) > ITEMS_MOST:
        raise GatewayError("invalid_field", f"'items' must be a list of at most {ITEMS_MOST} items.", param="items")
    checked = [item_at(f"items[{i}]", item) for i, item in enumerate(items)]
    return _Wanted(listed(checked, response_id="resp_" + secrets.token_hex(12)), body.get("metadata"))


def _items_answer(items: Sequence[Json], *, has_more: bool) -> web.Response:
    return json_answer(
        {
            "object": "list",
            "data": items,
            "first_id": items[0]["id"] if items else None,
            "last_id": items[-1]["id"] if items else None,
            "has_more": has_more,
        }
    )


def _view(conversation: StoredConversation) -> Json:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_s),
        "metadata": orjson.loads(conversation.metadata),
    }


def _no_item() -> GatewayError:
    return GatewayError("item_not_found", "There is no item with this id in the conversation.", param="item_id")
