"""The routes of the page of usage."""

from own_pages import own_pages

from gateway.features.usage.pages import USAGE
from gateway.testing.local_gateway import LocalGateway


async def test_worker_serves_the_page_by_get_and_head() -> None:
    async with LocalGateway({"upstreams": [], "store": "sqlite:///:memory:"}) as made:
        found = [method for method, path, _ in await own_pages(made) if path == USAGE]
    assert sorted(found) == ["GET", "HEAD"]
