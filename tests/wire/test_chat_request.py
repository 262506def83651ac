"""What a request says of tools and formats is read in one way, however odd it is."""

import pytest

from gateway.wire.chat_request import client_tools, wants_text


def test_the_tools_of_a_client_are_known_by_name() -> None:
    """And what is none is passed over."""
    tools = [{"function": {"name": "a"}}, {"function": {"name": 3}}, {"function": None}, {}, "x", {"function": {}}]
    assert client_tools({"tools": tools}) == {"a"}
    assert client_tools({}) == client_tools({"tools": None}) == client_tools({"tools": {"name": "a"}}) == frozenset()


@pytest.mark.parametrize(
    ("wanted", "text"),
    [(None, True), ({"type": "text"}, True), ({"type": "json_object"}, False), ({}, False), ("text", False)],
)
def test_only_text_is_text(wanted: object, *, text: bool) -> None:
    """Nothing said is text, too."""
    assert wants_text({"response_format": wanted}) is text
    assert wants_text({})
