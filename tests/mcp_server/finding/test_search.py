"""The tools that a query finds."""

import pytest

from gateway.aio.cooperative import run_at_once
from gateway.mcp_server.finding.search import FOUND_BYTES, QUERY_CHARS, QUERY_WORDS, parse_wanted_call, search_tools
from gateway.mcp_server.finding.word_index import index_words
from gateway.mcp_server.listing import ToolOffer

MODERN = "2026-07-28"


def offer(name: str, description: str) -> ToolOffer:
    definition = {"description": description, "inputSchema": {"type": "object"}}
    return ToolOffer(f"s.{name}", f"s__{name}", name, "s", {"2025-11-25": definition, MODERN: definition})


OFFERS = [offer("read_mail", "Reads a letter."), offer("send", "Sends mail to people."), offer("noop", "Nothing.")]
INDEX = run_at_once(index_words(OFFERS))


def names(query: str, **more: object) -> list[str]:
    tools = search_tools(OFFERS, INDEX, {"query": query, **more}, version=MODERN, plain=False)["tools"]
    return [tool["name"] for tool in tools]


def test_name_matches_rank_above_description_matches() -> None:
    """Beginnings of words count; what has none of the words is not found."""
    assert names("mail") == ["s__read_mail", "s__send"] and names("peop") == ["s__send"] and names("tax") == []
    assert names("") == ["s__read_mail", "s__send", "s__noop"]
    assert search_tools(OFFERS, INDEX, {"query": "", "limit": 1}, version=MODERN, plain=True)["more"] == 2


def test_search_reads_only_the_beginning_of_a_long_query() -> None:
    """In words and in characters; the answer notes it."""
    some = " ".join(f"w{number}" for number in range(QUERY_WORDS - 1))
    for query, expected, is_whole in (
        (f"{some} mail", ["s__read_mail", "s__send"], True),
        (f"{some} more mail", [], False),
        ("x" * QUERY_CHARS + " mail", [], False),
        ("mail " * 100_000, ["s__read_mail", "s__send"], False),
    ):
        answer = search_tools(OFFERS, INDEX, {"query": query}, version=MODERN, plain=False)
        assert [tool["name"] for tool in answer["tools"]] == expected
        assert ("note" not in answer) is is_whole


def test_search_returns_only_tools_the_request_may_use() -> None:
    """The index has the words of all tools, also of those that this request may not use."""
    many = [offer(f"tool{number}", f"Does {number}.") for number in range(500)]
    query = {"query": " ".join(f"tool{number}" for number in range(480, 480 + QUERY_WORDS))}
    tools = search_tools(many[:490], run_at_once(index_words(many)), query, version=MODERN, plain=False)["tools"]
    assert [tool["name"] for tool in tools] == [f"s__tool{number}" for number in range(480, 490)]


def test_search_response_is_bounded_in_bytes() -> None:
    """What has no room is counted; one tool always has."""
    many = [offer(f"tool{number}", "x" * (FOUND_BYTES // 3)) for number in range(10)]
    answer = search_tools(
        many, run_at_once(index_words(many)), {"query": "tool", "limit": 9}, version=MODERN, plain=False
    )
    assert (len(answer["tools"]), answer["more"]) == (2, 8)
    many = [offer(f"tool{number}", "x" * FOUND_BYTES) for number in range(2)]
    answer = search_tools(many, run_at_once(index_words(many)), {"query": "tool"}, version=MODERN, plain=False)
    assert (len(answer["tools"]), answer["more"]) == (1, 1)


@pytest.mark.parametrize("arguments", [{}, {"query": 1}, {"query": "", "limit": 0}, {"query": "", "limit": True}])
def test_invalid_search_arguments_are_refused(arguments: dict[str, object]) -> None:
    """With what is expected."""
    with pytest.raises(ValueError, match="query must be a text"):
        search_tools(OFFERS, INDEX, arguments, version=MODERN, plain=False)


def test_wanted_call_returns_name_and_optional_arguments() -> None:
    """Arguments may be left out."""
    assert parse_wanted_call({"name": "a"}) == ("a", {}) and parse_wanted_call({"name": "a", "arguments": {"b": 1}})[
        1
    ] == {"b": 1}
    with pytest.raises(ValueError, match="name must be a text"):
        parse_wanted_call({"arguments": {}})
