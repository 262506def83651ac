"""Lists of items: pages by the query, in the form that SDKs read."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from gateway.api.responses.lists import query_of_items, read_items_limit, select_page
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.fields import INCLUDABLE

ITEMS: list[Json] = [{"id": f"msg_{number}"} for number in range(250)]


def request(query: str) -> web.Request:
    return make_mocked_request("GET", f"/x{query}")


def page(query: str, items: list[Json] | None = None) -> Json:
    answer = select_page(ITEMS if items is None else items, query_of_items(request(query), "after", "limit"))
    assert isinstance(answer.body, bytes)
    found: Json = json.loads(answer.body)
    return found


def refused(query: str) -> tuple[str, str | None]:
    with pytest.raises(GatewayError) as caught:
        page(query)
    return caught.value.code, caught.value.param


def test_item_page_reports_first_last_and_has_more() -> None:
    """And whether more follows."""
    first = page("?limit=2")
    assert first == {"object": "list", "data": ITEMS[:2], "first_id": "msg_0", "last_id": "msg_1", "has_more": True}
    last = page("?after=msg_247&limit=5")
    assert (last["data"], last["has_more"]) == (ITEMS[248:], False)
    assert page("?after=msg_249") == page("", []) | {"data": []} == page("", [])


def test_item_page_limit_defaults_to_20_and_caps_at_100() -> None:
    """20 unless the query says otherwise, and 100 at most."""
    assert [len(page(query)["data"]) for query in ("", "?limit=1", "?limit=100", "?limit=200")] == [20, 1, 100, 100]
    assert read_items_limit({}) == 20


def test_item_pages_cover_the_list_in_order() -> None:
    """Each item once, in order."""
    found, after = [], ""
    while True:
        read = page(f"?limit=7{after}")
        found += read["data"]
        if not read["has_more"]:
            break
        after = f"&after={read['last_id']}"
    assert found == ITEMS


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?limit=0", ("invalid_field", "limit")),
        ("?limit=201", ("invalid_field", "limit")),
        ("?limit=5&limit=6", ("invalid_field", "limit")),
        ("?after=nope", ("invalid_field", "after")),
        ("?nope=1", ("unknown_field", "nope")),
        ("?include=nope", ("invalid_field", "include")),
        ("?include[]=", ("invalid_field", "include[]")),
    ],
)
def test_invalid_list_query_is_refused_with_its_name(query: str, expected: tuple[str, str]) -> None:
    """With the name of what is wrong."""
    assert refused(query) == expected


@pytest.mark.parametrize("name", ["include", "include[]", "include%5B%5D"])
def test_include_query_values_are_accepted_without_effect(name: str) -> None:
    """Each of OpenAI's names, as often as it comes."""
    query = "&".join(f"{name}={value}" for value in INCLUDABLE)
    assert query_of_items(request(f"?{query}&limit=5"), "limit") == {"limit": "5"}
