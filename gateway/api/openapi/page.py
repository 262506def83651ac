"""GET /openapi.json: the description of the gateway's own API, the same for all clients."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from gateway.api.openapi.document import description
from gateway.api.ops_pages import Route, readable

DESCRIPTION = "/openapi.json"


def description_routes() -> Sequence[Route]:
    return readable(DESCRIPTION, _describe)


async def _describe(_request: web.Request) -> web.Response:
    content = await asyncio.to_thread(description)  # the first time takes a tenth of a second
    return web.Response(body=content, headers={"Content-Type": "application/json", "Cache-Control": "no-cache"})
