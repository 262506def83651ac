"""The routes of the page of limits."""

from own_pages import own_pages

from gateway.features.limits.pages import LIMITS
from gateway.testing.local_gateway import LocalGateway


async def test_worker_serves_the_page_by_get_and_head() -> None:
    async with LocalGateway({"upstreams": [], "store": "sqlite:///:memory:"}) as made:
        found = [method for method, path, _ in await own_pages(made) if path == LIMITS]
    assert sorted(found) == ["GET", "HEAD"]
