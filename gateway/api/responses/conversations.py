"""The pages of conversations: what responses with `conversation` go on from, and add to."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import orjson
from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.json_body import check_values, read_content
from gateway.api.ops_pages import Route
from gateway.api.request import Authorise, build_stale_cursor_error, parse_query, parse_query_choice
from gateway.api.responses.compaction_seal import SealFactory
from gateway.api.responses.context_limits import ContextLimits
from gateway.api.responses.conversation_items_create import check_added, depends_on_earlier
from gateway.api.responses.creating import build_missing_conversation_error
from gateway.api.responses.lists import answer_items, query_of_items, read_items_limit
from gateway.api.responses.response_store import KeptResponses
from gateway.api.views import build_json_answer
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.responses import StoredConversation
from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import LIST, OBJECT, check_object_fields, refuse
from gateway.dialects.json_object import parse_json_object
from gateway.dialects.registry import build_paths
from gateway.dialects.responses.fields import check_metadata
from gateway.dialects.responses.ids import list_request_ids
from gateway.dialects.responses.items import build_input_items, check_item
from gateway.runs.taint_marks import Taints

CONVERSATIONS: Final = "conversations"
_SCOPE: Final = "context"
#: Limits of one request; items as in OpenAI's API.
BODY_LIMIT_BYTES, VALUES_LIMIT, ITEMS_MOST = 10 << 20, 100_000, 20
REFERENCE: Final = "item_reference"
_FIELDS: Final = {"items": LIST, "metadata": OBJECT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPages:
    """The pages of conversations. `limits` returns the limits of a request, in bytes and in values."""

    kept: KeptResponses
    sealing: SealFactory
    authorise: Authorise
    limits: Callable[[], tuple[int, int]]

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        routes: list[Route] = []
        for path in build_paths(CONVERSATIONS):
            one, items, item = path + "/{id}", path + "/{id}/items", path + "/{id}/items/{item}"
            routes += [
                ("POST", path, self._create),
                ("POST", f"{path}/", self._create),
                ("GET", one, self._serve_get),
                ("POST", one, self._update),
                ("DELETE", one, self._delete),
                ("GET", items, self._serve_items),
                ("POST", items, self._add),
                ("GET", item, self._serve_item),
                ("DELETE", item, self._delete_item),
            ]
        return routes

    async def _create(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, _SCOPE)
        wanted = await self._read_request(request, caller, "items", "metadata")
        now_s = self.kept.clock.time()
        conversation = StoredConversation(
            id="conv_" + secrets.token_hex(24),
            tenant=caller.tenant,
            created_s=now_s,
            metadata=orjson.dumps(wanted.metadata or {}),
        )
        await self.kept.store.put_conversation(conversation, now_s=now_s)
        await self._serve_put(conversation, wanted.items)
        return build_json_answer(_build_view(conversation))

    async def _serve_get(self, request: web.Request) -> web.Response:
        conversation = await self._get_conversation(request)
        parse_query(request)
        return build_json_answer(_build_view(conversation))

    async def _update(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, _SCOPE)
        conversation = await self._get_conversation(request)
        wanted = await self._read_request(request, caller, "metadata")
        if wanted.metadata is None:
            raise GatewayError("missing_field", "Send 'metadata', an object of texts.", param="metadata")
        changed = replace(conversation, metadata=orjson.dumps(wanted.metadata))
        await self.kept.store.put_conversation(changed, now_s=self.kept.clock.time())
        return build_json_answer(_build_view(changed))

    async def _delete(self, request: web.Request) -> web.Response:
        conversation = await self._get_conversation(request)
        parse_query(request)
        await self.kept.store.delete_conversation(conversation.id, tenant=conversation.tenant)
        return build_json_answer({"id": conversation.id, "object": "conversation.deleted", "deleted": True})

    async def _serve_items(self, request: web.Request) -> web.Response:
        conversation = await self._get_conversation(request)
        query = query_of_items(request, "after", "limit", "order")
        limit, after = read_items_limit(query), query.get("after")
        found = await self.kept.store.list_items(
            conversation.id,
            tenant=conversation.tenant,
            after=after,
            limit=limit + 1,
            newest_first=parse_query_choice(query, "order", ("asc", "desc")) != "asc",
        )
        if not found and after is not None and await self._serve_conversation(conversation, after) is None:
            raise build_stale_cursor_error("after")
        return answer_items([orjson.loads(item) for item in found[:limit]], has_more=len(found) > limit)

    async def _add(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, _SCOPE)
        conversation = await self._get_conversation(request)
        wanted = await self._read_request(request, caller, "items", conversation=conversation)
        if not wanted.items:
            raise GatewayError("missing_field", f"Send 'items': 1 to {ITEMS_MOST} of them.", param="items")
        query_of_items(request)
        await self._serve_put(conversation, wanted.items)
        return answer_items(wanted.items, has_more=False)

    async def _serve_item(self, request: web.Request) -> web.Response:
        conversation = await self._get_conversation(request)
        query_of_items(request)
        item = await self._serve_conversation(conversation, request.match_info["item"])
        if item is None:
            raise _build_missing_item_error()
        return build_json_answer(orjson.loads(item))

    async def _delete_item(self, request: web.Request) -> web.Response:
        conversation = await self._get_conversation(request)
        parse_query(request)
        item_id, tenant, now_s = request.match_info["item"], conversation.tenant, self.kept.clock.time()
        if not await self.kept.store.delete_item(conversation.id, item_id, tenant=tenant, now_s=now_s):
            raise _build_missing_item_error()
        return build_json_answer(_build_view(conversation))

    async def _read_request(
        self, request: web.Request, caller: Caller, *known: str, conversation: StoredConversation | None = None
    ) -> "_ConversationBody":
        """Return the body of a request, checked, with the items that it refers to: they go behind a conversation.

        Raises GatewayError, StoreError.
        """
        content = await read_content(request, caller, limit_bytes=BODY_LIMIT_BYTES, limit_name="this page takes")
        await check_values(content, limit=VALUES_LIMIT)
        wanted = await run_aside(partial(_parse_body, content or b"{}", known), content=content)
        references = [(f"items[{i}]", one["id"]) for i, one in enumerate(wanted.items) if one["type"] == REFERENCE]
        limit_bytes, limit_values = self.limits()
        bounds = ContextLimits(
            own=wanted.items,
            own_bytes=len(content),
            references=references,
            limit_bytes=limit_bytes,
            limit_values=limit_values,
        )
        found = await self.kept.resolve_references(references, tenant=caller.tenant)
        await run_aside(partial(bounds.refer, found), content=content)
        items = [found[one["id"]] if one["type"] == REFERENCE else one for one in wanted.items]
        earlier: Sequence[bytes] = ()
        if conversation is not None and any(map(depends_on_earlier, items)):
            earlier = await self.kept.store.list_all_items(conversation.id, tenant=caller.tenant)
            bounds.expect(sum(map(len, earlier)), param="conversation")
        seal = await self.sealing.get_seal(caller.tenant)
        check = partial(check_added, items, earlier, unseal=seal.unseal_summary)
        await run_aside(check, content=content, more_bytes=bounds.size_bytes)
        return _ConversationBody(build_input_items(items, response_id="resp_" + secrets.token_hex(12)), wanted.metadata)

    async def _serve_put(self, conversation: StoredConversation, items: Sequence[Json]) -> None:
        if items:
            await self._mark(conversation, items)
            pairs = [(item["id"], orjson.dumps(item)) for item in items]
            store, now_s = self.kept.store, self.kept.clock.time()
            if not await store.add_items(conversation.id, pairs, tenant=conversation.tenant, now_s=now_s):
                raise build_missing_conversation_error()

    async def _mark(self, conversation: StoredConversation, items: Sequence[Json]) -> None:
        """Mark a conversation that may get untrusted text: the origin of a call is only its client's claim."""
        taints, tenant = Taints(self.kept.store, self.kept.clock), conversation.tenant
        called = any(item["type"] == "mcp_call" for item in items)
        if called or await taints.is_any_marked(list_request_ids(items), tenant=tenant):
            await taints.mark(conversation.id, tenant=tenant)

    async def _serve_conversation(self, conversation: StoredConversation, item_id: str) -> bytes | None:
        return await self.kept.store.get_item(conversation.id, item_id, tenant=conversation.tenant)

    async def _get_conversation(self, request: web.Request) -> StoredConversation:
        caller = self.authorise(request, _SCOPE)
        found = await self.kept.store.get_conversation(request.match_info["id"], tenant=caller.tenant)
        if found is None:
            raise build_missing_conversation_error()
        return found


@dataclass(frozen=True, slots=True)
class _ConversationBody:
    """The body of a request, checked."""

    items: Sequence[Json]
    metadata: Json | None


def _parse_body(content: bytes, known: Sequence[str]) -> _ConversationBody:
    """Parse the body of a request. Raises GatewayError."""
    body = parse_json_object(content)
    check_object_fields("", body, {name: _FIELDS[name] for name in known}, closed=True)
    check_metadata(body.get("metadata") or {})
    items = body.get("items") or []
    if len(items) > ITEMS_MOST:
        refuse("items", f"a list of at most {ITEMS_MOST} items")
    return _ConversationBody([check_item(f"items[{i}]", item) for i, item in enumerate(items)], body.get("metadata"))


def _build_view(conversation: StoredConversation) -> Json:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_s),
        "metadata": orjson.loads(conversation.metadata),
    }


def _build_missing_item_error() -> GatewayError:
    return GatewayError("item_not_found", "There is no item with this id in the conversation.", param="item_id")
