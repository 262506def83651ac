"""GET /openapi.json: the description of the gateway's own API, the same for all clients."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from gateway.api.openapi.document import describe_api
from gateway.api.ops_pages import Route, build_readable_routes

DESCRIPTION = "/openapi.json"


def list_description_routes() -> Sequence[Route]:
    return build_readable_routes(DESCRIPTION, _send_description)


async def _send_description(_request: web.Request) -> web.Response:
    content = await asyncio.to_thread(describe_api)  # the first time takes a tenth of a second
    return web.Response(body=content, headers={"Content-Type": "application/json", "Cache-Control": "no-cache"})
