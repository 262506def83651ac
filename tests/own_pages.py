"""The routes of our own pages of a gateway in this process."""

from collections.abc import Sequence

from gateway.api.ops_pages import Route
from gateway.testing.local_gateway import LocalGateway


async def own_pages(made: LocalGateway) -> Sequence[Route]:
    """Return the routes of the start, and those that are made for their first request."""
    entry = made.gateway._built.pages
    later = (await entry.list_other_routes()).routes()
    return [
        *entry.list_start_routes(),
        *((one.method, one.resource.canonical, one.handler) for one in later if one.resource),
    ]
