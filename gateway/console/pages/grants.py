"""The page of lasting decisions: calls that need no new approval, and conversations in which every call needs one."""

import asyncio
from typing import Final

from aiohttp import web

from gateway.console.request import VIEWING, Page, Visit, see_other
from gateway.contracts.storage.store import Json

SHOWN: Final = 50
#: The lists of the page, by the word in its address (`?list=grants`).
LISTS: Final = ("grants", "asks")


class RememberedPage:
    """The page of lasting decisions."""

    def list_pages(self) -> tuple[Page, ...]:
        deciding = ("approve",)
        return (
            Page("GET", "/remembered", self._show_lists, VIEWING),
            Page("POST", "/remembered/grants/{id}", self._revoke_grant, deciding),
            Page("POST", "/remembered/asks/{id}", self._revoke_ask, deciding),
        )

    async def _show_lists(self, visit: Visit) -> web.Response:
        """Show the beginning of both lists, or a later page of one."""
        only = visit.query.get("list")
        names = (only,) if only in LISTS else LISTS
        after = visit.query.get("after") if only in LISTS else None
        found = await asyncio.gather(*(_get_entries(visit, name, after) for name in names))
        return await visit.render_page(
            "remembered.html", title="Remembered", lists=dict(zip(names, found, strict=True))
        )

    async def _revoke_grant(self, visit: Visit) -> web.Response:
        await visit.api.delete("context", "grants", visit.match["id"])
        return see_other("remembered", done="revoked")

    async def _revoke_ask(self, visit: Visit) -> web.Response:
        await visit.api.delete("context", "asks", visit.match["id"])
        return see_other("remembered", done="unasked")


async def _get_entries(visit: Visit, name: str, after: str | None) -> Json:
    return await visit.api.get("context", name, after=after, limit=SHOWN)
