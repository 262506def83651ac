"""Prompts and resources as a server writes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import validate_server_result

from gateway.aio.cooperative import run_at_once
from gateway.mcp.prompts_and_resources import (
    ENTRIES,
    LIST_BYTES,
    list_no_prompts,
    list_no_resources,
    list_no_templates,
    read_prompt_result,
    read_resource_result,
)
from gateway.mcp.server_text import count_sent_bytes

NAMES = ("name", "uri", "uriTemplate", "arguments", "icons", "title", "description", "mimeType", "size", "_meta", "src")
FIELDS = st.sampled_from(NAMES)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.sampled_from(["file:///a", "https://e/x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=6),
)


LIKELY = st.fixed_dictionaries(dict.fromkeys(NAMES[:5], JSON))


@given(JSON | st.lists(LIKELY))
def test_any_listed_entries_are_normalised_to_valid_protocol_lists(page: Any) -> None:
    """In both eras."""
    for method, key, entries in (
        ("prompts/list", "prompts", list_no_prompts()),
        ("resources/list", "resources", list_no_resources()),
        ("resources/templates/list", "resourceTemplates", list_no_templates()),
    ):
        entries.add(page)
        listed = {key: list(entries.found.values()), "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        for version in ("2025-11-25", "2026-07-28"):
            validate_server_result(method, version, listed)


def test_prompt_and_resource_lists_are_bounded() -> None:
    """In entries and in bytes; names that come again do not count."""
    one = {"name": "a", "description": "x" * 1500}
    found = list_no_prompts()
    found.add([one] * 5000)
    assert (len(found.found), found.left_out) == (1, 4999)
    found = list_no_prompts()
    found.add([{**one, "name": f"a{i}"} for i in range(ENTRIES)])
    assert count_sent_bytes(list(found.found.values())) <= LIST_BYTES + len(found.found) + 2 and found.left_out > 0
    found = list_no_prompts()
    found.add([{"name": f"a{i}"} for i in range(5000)])
    assert (len(found.found), found.left_out, found.is_full) == (ENTRIES, 4000, True)


def test_invalid_prompt_and_resource_identifiers_are_left_out() -> None:
    """An entry with another name is left out; what is only shown is made visible."""
    found = list_no_prompts()
    found.add(
        [{"name": "a\nb"}, {"name": "ok", "title": "T\nheld because: x", "arguments": [{"name": "who", "required": 1}]}]
    )
    assert list(found.found.values()) == [
        {"name": "ok", "title": "T held because: x", "arguments": [{"name": "who", "required": False}]}
    ]
    found = list_no_resources()
    found.add([{"uri": "javascript:x", "name": "a"}, {"uri": "file:///a", "name": "a\nb", "size": -1}])
    assert list(found.found.values()) == [{"uri": "file:///a", "name": "a b"}]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({}, "it has no messages"),
        (
            {"messages": [{"role": "system", "content": {"type": "text", "text": "x"}}]},
            "not of the user or the assistant",
        ),
        ({"messages": [{}] * 5000}, "5,000 messages"),
        ({"messages": [{"role": "user", "content": {"type": "text", "text": "x" * (1 << 20)}}]}, "more than 1,000,000"),
    ],
)
def test_invalid_prompt_is_refused_with_the_reason(result: dict[str, Any], reason: str) -> None:
    """The reason is named."""
    with pytest.raises(ValueError, match=reason):
        run_at_once(read_prompt_result(result))


def test_prompts_and_resources_are_rebuilt_from_valid_parts() -> None:
    """Blocks that are none are noted; a resource is refused as a whole."""
    block = {"type": "image", "data": "<x>", "mimeType": "image/png"}
    result = {"messages": [{"role": "user", "content": block}], "_meta": {"twolane/run": "x"}}
    (message,) = run_at_once(read_prompt_result(result))["messages"]
    assert message["content"]["type"] == "text" and "not base64" in message["content"]["text"]
    read = {"contents": [{"uri": "file:///a", "text": "a\u202eb", "x": 1}], "ttlMs": "x"}
    assert run_at_once(read_resource_result(read)) == {"contents": [{"uri": "file:///a", "text": "ab"}]}
    for contents in (
        None,
        [5],
        [{"uri": "file:///a"}],
        [{"uri": "x", "text": "a"}],
        [{"uri": "file:///a", "blob": "!"}],
    ):
        with pytest.raises(ValueError, match="it"):
            run_at_once(read_resource_result({"contents": contents}))
