"""The operations of the Responses API: each described once, for four paths that answer alike."""

import pytest
from own_pages import own_pages

from gateway.api.openapi.operations import OPERATIONS
from gateway.api.openapi.responses import RESPONSE_OPERATIONS, TAG, shorten_path
from gateway.dialects.registry import COLLECTIONS, build_paths
from gateway.testing.local_gateway import LocalGateway


@pytest.mark.parametrize("name", COLLECTIONS)
@pytest.mark.parametrize("below", ["", "/{id}", "/{id}/items/{item}", "/compact"])
def test_equivalent_response_paths_are_described_once(name: str, below: str) -> None:
    """Beneath `/context/v1`."""
    found = {shorten_path(path + below) for path in build_paths(name)}
    assert found == {f"/context/v1/{name}{below}"}


@pytest.mark.parametrize("path", ["/context/runs", "/responsesx", "/v1/responsesx/{id}", "/v1/system-prompts", "/"])
def test_other_response_paths_keep_their_own_description(path: str) -> None:
    """Also those that only resemble a collection."""
    assert shorten_path(path) == path


async def test_four_response_base_paths_share_handlers() -> None:
    """Each page is there beneath all of them, by the same handler."""
    async with LocalGateway({"upstreams": []}) as made:
        pages = await own_pages(made)
    operations = {one.path for one in RESPONSE_OPERATIONS}
    routes = [route for route in pages if shorten_path(route[1]) in operations]
    by_prefix: list[set[tuple[str, str, str]]] = []
    for n in range(4):
        bases = {name: build_paths(name)[n] for name in COLLECTIONS}
        by_prefix.append(
            {
                (method, name + path.removeprefix(base), handler.__qualname__)  # type: ignore[attr-defined]
                for method, path, handler in routes
                for name, base in bases.items()
                if path == base or path.startswith(f"{base}/")
            }
        )
    assert by_prefix[0] == by_prefix[1] == by_prefix[2] == by_prefix[3]
    assert sum(map(len, by_prefix)) == len(routes)


def test_response_operations_share_tag_and_scope() -> None:
    """Of one tag, for keys with one scope."""
    assert {one.name for one in RESPONSE_OPERATIONS} == {one.name for one in OPERATIONS if one.tag == TAG}
    assert {one.scopes for one in RESPONSE_OPERATIONS} == {("context",)}
    assert all(one.path.startswith("/context/v1/") for one in RESPONSE_OPERATIONS)
