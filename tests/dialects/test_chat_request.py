"""Tools and formats of a request have one reading, however odd they are."""

from typing import Any, Final

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.records import replace
from gateway.dialects.chat_request import (
    brings_tool_results,
    build_unforced_fields,
    forces_call,
    get_whole_text,
    knows_functions_only,
    lets_server_search,
    list_client_tools,
    may_call_tools,
    names_sources,
    wants_text,
)
from tests.exchanges import new_exchange


def test_the_tools_of_a_client_are_known_by_name() -> None:
    """And what is none is passed over."""
    tools = [{"function": {"name": "a"}}, {"function": {"name": 3}}, {"function": None}, {}, "x", {"function": {}}]
    assert list_client_tools({"tools": tools}) == {"a"}
    assert list_client_tools({"functions": [{"name": "b"}, {}, 3], "tools": tools}) == {"a", "b"}
    assert (
        list_client_tools({})
        == list_client_tools({"tools": None})
        == list_client_tools({"tools": {"name": "a"}})
        == frozenset()
    )


@pytest.mark.parametrize(
    ("wanted", "text"),
    [(None, True), ({"type": "text"}, True), ({"type": "json_object"}, False), ({}, False), ("text", False)],
)
def test_only_text_formats_are_recognized_as_text(wanted: object, *, text: bool) -> None:
    """Nothing said is text, too."""
    assert wants_text({"response_format": wanted}) is text
    assert wants_text({})


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, False),
        ({"only_tools": ("now",)}, True),
        ({"shows_calls": True}, True),
        ({"shows_calls": True, "no_tools": True}, False),
    ],
)
def test_formatted_answer_allows_tools_only_if_the_request_names_them(fields: dict[str, Any], *, may: bool) -> None:
    """Any tool of the gateway may be called before an answer in text."""
    caller = Caller(name="a", tenant="a", scopes=frozenset())
    asked = new_exchange(
        id="run_1", body={"response_format": {"type": "json_object"}}, caller=caller, chain="", **fields
    )
    assert may_call_tools(asked) is may
    assert may_call_tools(replace(asked, body={})) is not asked.steering.no_tools


TEXT = {"type": "text", "text": "Hi"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi", "Hi"),
        ([TEXT], "Hi"),
        ([TEXT, {"type": "text", "text": "you"}], "Hi\nyou"),
        ([TEXT, {"type": "image_url", "image_url": {"url": "x"}}], ""),
        ([TEXT, {"text": "without a type"}], ""),
        ([TEXT, "bare"], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_whole_text_requires_a_text_only_message(content: object, text: str) -> None:
    """A picture beside the text, and the text is not all that its user said."""
    assert get_whole_text({"messages": [{"role": "user", "content": content}]}) == text


@pytest.mark.parametrize(
    "messages",
    [None, [], ["Hi"], [{"role": "tool", "content": "Hi"}], [{"role": "user", "content": "Hi"}, {"role": "assistant"}]],
)
def test_whole_text_requires_a_final_user_message(messages: object) -> None:
    """What a tool or the model said is nobody's word."""
    assert get_whole_text({"messages": messages}) == ""


def test_client_with_functions_and_no_tools_is_recognized() -> None:
    """It brought functions, and no tools."""
    function = {"name": "a"}
    assert knows_functions_only({"functions": [function]})
    assert not knows_functions_only({"functions": [function], "tools": [{"type": "function", "function": function}]})
    others: list[dict[str, object]] = [{}, {"functions": []}, {"functions": "a"}, {"tools": []}]
    assert not any(map(knows_functions_only, others))


PROVIDER_TOOL: Final = {"type": "reasoning.provider_tool", "block": {"type": "web_search_tool_result"}}


@pytest.mark.parametrize(
    ("message", "brings"),
    [
        ({"role": "tool", "content": "x"}, True),
        ({"role": "function", "content": "x"}, True),
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, True),
        ({"role": "assistant", "function_call": {}}, False),
        ({"role": "assistant", "function_call": {"name": "x"}}, True),
        ({"role": "assistant", "content": [{"type": "text", "text": "call_0a1b2c3d4e5f6a7b8c9d0e1f"}]}, True),
        ({"role": "user", "content": "call_0a1b2c3d4e5f6a7b8c9d0e1f"}, False),
        ({"role": "user", "content": [{"type": "function_call_output", "output": "x"}]}, True),
        ({"role": "user", "content": [{"type": "image_url"}, "x", {"type": 5}]}, False),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}, False),
        ({"role": "assistant", "content": 5}, False),
        ({"role": "assistant", "reasoning_details": [PROVIDER_TOOL]}, True),
        ({"role": "assistant", "reasoning_details": [{"type": "reasoning.text"}, 5]}, False),
    ],
)
def test_client_tool_results_are_recognized(message: dict[str, object], *, brings: bool) -> None:
    """And calls, whose results may stand anywhere; what a model's server found by itself, too."""
    assert brings_tool_results([{"role": "user", "content": "Hi"}, message]) is brings


@pytest.mark.parametrize(
    ("body", "searches"),
    [
        ({"model": "m", "tools": [{"type": "function"}, {"type": "custom"}], "functions": [{"name": "a"}]}, False),
        ({"model": "m:free", "web_search_options": None, "plugins": [], "enable_search": False}, False),
        ({"model": None, "tools": None}, False),
        ({"web_search_options": {}}, True),
        ({"tools": [{"type": "function"}, {"type": "web_search"}]}, True),
        ({"tools": [{"google_search": {}}]}, True),
        ({"model": "a/m:online"}, True),
    ],
)
def test_server_search_is_detected_in_request_options(body: dict[str, object], *, searches: bool) -> None:
    """Options that are empty ask for a search, too; what is off does not."""
    assert lets_server_search(body) is searches


@pytest.mark.parametrize(
    ("chunk", "named"),
    [
        ({"choices": [{"delta": {"content": "x", "annotations": []}}], "citations": None}, False),
        ({"choices": [{"delta": None}, 3], "usage": {}}, False),
        ({"choices": None, "citations": ["https://a.example"]}, True),
        ({"choices": [{"delta": {"annotations": [{"type": "url_citation"}]}}]}, True),
    ],
)
def test_cited_sources_are_detected_in_a_chunk(chunk: dict[str, object], *, named: bool) -> None:
    """In the answer as a whole, or beside its text."""
    assert names_sources(chunk) is named


ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}
FREE = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}


@pytest.mark.parametrize(
    ("choice", "then"),
    [
        (None, None),
        ("auto", None),
        ("none", None),
        ({"type": "auto"}, None),
        ({"type": "none"}, None),
        (FREE, None),
        ("required", "auto"),
        ("any", "auto"),
        ({"type": "any"}, "auto"),
        ({"type": "function", "function": {"name": "a"}}, "auto"),
        ({"function": {"name": "a"}}, "auto"),
        (ALLOWED, FREE),
    ],
)
def test_forced_tool_choice_is_detected_and_relaxed(choice: object, then: object) -> None:
    """As some write it, with an object: that forces only the first answer, or none."""
    body = {"tool_choice": choice}
    assert forces_call(body) is (then is not None)
    assert build_unforced_fields(body) == ({} if then is None else {"tool_choice": then})
