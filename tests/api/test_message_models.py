"""Lists of models in Anthropic's form."""

import orjson
import pytest

from gateway.api.message_models import build_model, build_model_page
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json

LISTED = orjson.dumps({"data": [{"id": name, "created": 0} for name in "abcde"] + [{"id": 5}, 5]})


def page(**query: str) -> Json:
    found: Json = orjson.loads(build_model_page(LISTED, query))
    return {**found, "data": "".join(model["id"] for model in found["data"])}


@pytest.mark.parametrize(
    ("query", "names", "has_more"),
    [
        ({}, "abcde", False),
        ({"limit": "2"}, "ab", True),
        ({"limit": "2", "after_id": "b"}, "cd", True),
        ({"limit": "2", "after_id": "c"}, "de", False),
        ({"limit": "2", "before_id": "d"}, "bc", True),
        ({"before_id": "c"}, "ab", False),
        ({"after_id": "e"}, "", False),
    ],
)
def test_pages_go_on_behind_and_in_front_of_a_model(query: dict[str, str], names: str, *, has_more: bool) -> None:
    """With the ids by which the next one is requested."""
    first, last = (names[0], names[-1]) if names else (None, None)
    assert page(**query) == {"data": names, "has_more": has_more, "first_id": first, "last_id": last}


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "x"}, {"limit": "1001"}, {"after_id": "z"}, {"limit": "²"}]
)
def test_wrong_page_is_refused(query: dict[str, str]) -> None:
    """With the name of the parameter."""
    with pytest.raises(GatewayError) as caught:
        page(**query)
    assert (caught.value.code, [caught.value.param]) == ("invalid_field", [*query])


def test_model_in_the_form_already_stays_as_it_is() -> None:
    """An upstream may speak Messages itself."""
    own = {"type": "model", "id": "a", "display_name": "A"}
    assert orjson.loads(build_model(orjson.dumps({"data": [own]}), "a")) == own


@pytest.mark.parametrize("content", [b"", b"[]", b'{"data":5}'])
def test_list_of_another_form_is_an_error_of_the_upstream(content: bytes) -> None:
    """The client did nothing wrong, so it gets no invalid_request_error."""
    with pytest.raises(GatewayError) as caught:
        build_model_page(content, {})
    assert caught.value.code == "upstream_error"
