"""The table of operations: every page of the gateway, and every error code."""

from own_pages import own_pages

from gateway.api.openapi.document import group_error_codes
from gateway.api.openapi.operations import COMMON, OF_KEYS, OF_NONE, OPERATIONS
from gateway.api.openapi.responses import shorten_path
from gateway.api.ops_pages import OPEN
from gateway.contracts.errors import CODES
from gateway.testing.local_gateway import LocalGateway


async def routes() -> set[tuple[str, str]]:
    """Those of a gateway, without those that a server adds by itself."""
    async with LocalGateway({"upstreams": [], "store": "sqlite:///:memory:"}) as made:
        further = await own_pages(made)
    own = {(method, path) for path in OPEN for method in ("GET", "HEAD")}
    return {(method, path) for method, path, _ in further} | own


async def test_openapi_operations_match_the_pages() -> None:
    """By method and path; `head` says where HEAD is answered.

    Pages that answer alike are described once, without a slash at the end.
    """
    described = {(one.method, one.path) for one in OPERATIONS} | {("HEAD", one.path) for one in OPERATIONS if one.head}
    there = await routes()
    alike = {one if one in described else (one[0], shorten_path(one[1].removesuffix("/"))) for one in there}
    assert described == alike
    assert len(described) == len(OPERATIONS) + sum(one.head for one in OPERATIONS)


def test_every_error_code_belongs_to_an_operation() -> None:
    """Each that the gateway answers, with its status; those of requests that pass through besides."""
    used = {code for one in OPERATIONS for codes in group_error_codes(one).values() for code in codes}
    assert used | set(OF_NONE) == set(CODES)
    assert not used & set(OF_NONE) - {"unknown_route"}
    assert {*COMMON, *OF_KEYS} <= used
    for one in OPERATIONS:
        for status, codes in group_error_codes(one).items():
            assert {CODES[code].status for code in codes} == {status}
