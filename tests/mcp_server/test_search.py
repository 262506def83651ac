"""The tools that a query finds."""

import pytest

from gateway.mcp_server.listing import Offer
from gateway.mcp_server.search import found, wanted_call

MODERN = "2026-07-28"


def offer(name: str, description: str) -> Offer:
    definition = {"description": description, "inputSchema": {"type": "object"}}
    return Offer(f"s.{name}", f"s__{name}", name, "s", {"2025-11-25": definition, MODERN: definition})


OFFERS = [offer("read_mail", "Reads a letter."), offer("send", "Sends mail to people."), offer("noop", "Nothing.")]


def names(query: str, **more: object) -> list[str]:
    tools = found(OFFERS, {"query": query, **more}, version=MODERN, plain=False)["tools"]
    return [tool["name"] for tool in tools]


def test_a_word_in_a_name_counts_for_more_than_one_in_a_description() -> None:
    """Beginnings of words count; what has none of the words is not found."""
    assert names("mail") == ["s__read_mail", "s__send"] and names("peop") == ["s__send"] and names("tax") == []
    assert names("") == ["s__read_mail", "s__send", "s__noop"]
    assert found(OFFERS, {"query": "", "limit": 1}, version=MODERN, plain=True)["more"] == 2


@pytest.mark.parametrize("arguments", [{}, {"query": 1}, {"query": "", "limit": 0}, {"query": "", "limit": True}])
def test_other_arguments_are_refused(arguments: dict[str, object]) -> None:
    """With what is expected."""
    with pytest.raises(ValueError, match="query must be a text"):
        found(OFFERS, arguments, version=MODERN, plain=False)


def test_the_call_of_a_found_tool() -> None:
    """Arguments may be left out."""
    assert wanted_call({"name": "a"}) == ("a", {}) and wanted_call({"name": "a", "arguments": {"b": 1}})[1] == {"b": 1}
    with pytest.raises(ValueError, match="name must be a text"):
        wanted_call({"arguments": {}})
