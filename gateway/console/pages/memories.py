"""The pages of memories of an end user or of a key, with the deletion of one or of all."""

from collections.abc import Mapping

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.request import Page, Visit, see_other
from gateway.contracts.storage.store import Json

SCOPES = ("context", "admin")
MEMORIES = ("context", "memories")


class Memories:
    """The pages of memories."""

    def list_pages(self) -> tuple[Page, ...]:
        return (
            Page("GET", "/memories", self._list, SCOPES),
            Page("GET", "/memories/delete", self._confirm_deletion, SCOPES),
            Page("POST", "/memories/delete", self._delete_all, SCOPES),
            Page("POST", "/memories/{id}/delete", self._delete, SCOPES),
        )

    async def _list(self, visit: Visit) -> web.Response:
        owner, status, problem = parse_owner(visit.query), 200, None
        listed: Json = {"data": (), "next": None}
        try:
            listed = await visit.api.get(*MEMORIES, **owner, after=visit.query.get("after"))
        except ApiError as error:
            status, problem = error.status, error.message
        return await visit.render_page(
            "memories.html",
            title="Memories",
            status=status,
            owner=owner,
            named=_resolve_owner(visit, owner),
            memories=listed["data"],
            following=listed["next"],
            problem=problem,
        )

    async def _confirm_deletion(self, visit: Visit) -> web.Response:
        """Ask whether all memories of the owner are to go: a separate page, which needs no script."""
        owner = parse_owner(visit.query)
        listed = await visit.api.get(*MEMORIES, **owner, limit=1)
        return await visit.render_page(
            "memories_delete.html",
            title="Delete all memories",
            named=_resolve_owner(visit, owner),
            has_some=bool(listed["data"]),
        )

    async def _delete_all(self, visit: Visit) -> web.Response:
        owner = parse_owner(visit.form)
        await visit.api.delete(*MEMORIES, **owner)
        return see_other("memories", **owner, done="deleted")

    async def _delete(self, visit: Visit) -> web.Response:
        await visit.api.delete(*MEMORIES, visit.match["id"])
        return see_other("memories", **parse_owner(visit.form), done="deleted")


def parse_owner(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return the owner that a query or a form names, as the API takes it; {}: the reader's own key."""
    return {name: text for name in ("user", "key") if (text := fields.get(name, "").strip())}


def _resolve_owner(visit: Visit, owner: Mapping[str, str]) -> Mapping[str, str]:
    """Return the owner by name; {}: the requests without a key, whose memories the API deletes one by one only."""
    return owner or ({"key": visit.caller.name} if visit.caller.name else {})
