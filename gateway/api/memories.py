"""The pages of memories: a key that may chat lists and deletes the memories of its tenant's end users."""

from collections.abc import Mapping
from typing import Literal

from aiohttp import web
from msgspec import field

from gateway.api.decisions import convert_store_errors
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import Authorise, parse_limit, parse_query, parse_query_number
from gateway.api.views import build_json_answer, build_page_answer
from gateway.context.context_headers import parse_context_headers
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Memory, Store, get_memory_owner
from gateway.contracts.views import UnixTime, View, fill_view
from gateway.lanes.aiohttp_adapter import get_head

MEMORIES = "/context/memories"
_SCOPES = ("context", "admin")


class MemoryView(View, frozen=True, kw_only=True):
    """A remembered sentence of an end user, or of a key. With a conversation it applies there only."""

    id: str
    object: Literal["memory"] = "memory"
    user: str | None
    key: str | None
    conversation: str | None
    text: str
    created_s: UnixTime = field(name="created_at")


class MemoriesDeletedView(View, frozen=True, kw_only=True):
    """The number of deleted memories."""

    object: Literal["memories.deleted"] = "memories.deleted"
    deleted: int


class MemoryPages:
    """The pages of one worker."""

    def __init__(self, *, store: Store, authorise: Authorise) -> None:
        self._store = store
        self._authorise = authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [
            *build_readable_routes(MEMORIES, self._list),
            ("DELETE", MEMORIES, self._delete_all),
            ("DELETE", MEMORIES + "/{id}", self._delete),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, *_SCOPES)
        query = parse_query(request, "user", "key", "after", "limit")
        owner = self._find_owner(request, query, caller) or get_memory_owner(user=None, key=caller.name)
        before = parse_query_number(query, "after", default=0) or None
        page = await self._store.list_memories(
            tenant=caller.tenant, owner=owner, before=before, limit=parse_limit(query)
        )
        following = None if page.next is None else str(page.next)
        return build_page_answer([*map(_build_view, page.memories)], following=following)

    async def _delete_all(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, *_SCOPES)
        owner = self._find_owner(request, parse_query(request, "user", "key"), caller)
        if owner is None:
            text = "Say whose memories are to go: '?user=ID' for an end user's, '?key=NAME' for those kept for a key."
            raise GatewayError("missing_field", text, param="user")
        with convert_store_errors("that memories are gone"):
            gone = await self._store.forget_all(tenant=caller.tenant, owner=owner, conversation=None, elsewhere=True)
        return build_json_answer(MemoriesDeletedView(deleted=gone))

    async def _delete(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, *_SCOPES)
        parse_query(request)
        with convert_store_errors("that a memory is gone"):
            gone = await self._store.forget([request.match_info["id"]], tenant=caller.tenant, owner=None)
        if not gone:
            text = "The gateway has no memory with this id: GET /context/memories?user=ID lists those of an end user."
            raise GatewayError("memory_not_found", text)
        return web.Response(status=204)

    def _find_owner(self, request: web.Request, query: Mapping[str, str], caller: Caller) -> str | None:
        """Return the owner of the memories, or None if the request names none. Raises GatewayError."""
        user, key = query.get("user") or parse_context_headers(get_head(request)).get("user"), query.get("key")
        if key is None:
            return None if user is None else get_memory_owner(user=user, key=caller.name)
        if user is not None:
            raise GatewayError(
                "invalid_field", "A memory belongs to a user or to a key: send 'user' or 'key', not both.", param="key"
            )
        if key != caller.name:
            self._authorise(request, "admin")
        return get_memory_owner(user=None, key=key)


def _build_view(memory: Memory) -> MemoryView:
    kind, _, name = memory.owner.partition(":")
    return fill_view(MemoryView, memory, user=name if kind == "user" else None, key=name if kind == "key" else None)
