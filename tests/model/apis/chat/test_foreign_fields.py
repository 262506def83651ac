"""Requests of clients that speak Messages, in the fields of chats alone."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.chat.foreign_fields import drop_foreign_fields

MARK = {"type": "ephemeral"}


def test_request_of_a_chat_client_is_not_looked_at() -> None:
    body: Json = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "cache_control": MARK}]}]}
    assert drop_foreign_fields(body) is body


def test_marks_titles_and_errors_of_results_are_left_out() -> None:
    file = {"type": "file", "file": {"file_data": "data:,x"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    body: Json = {
        "model": "m",
        "messages_api": {},
        "cache_control": MARK,
        "tools": [{"type": "function", "function": {"name": "f"}, "cache_control": MARK, "defer_loading": True}],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": MARK}]},
            {"role": "user", "content": [{**file, "title": "t", "context": "c", "citations": {"enabled": True}}]},
            {"role": "assistant", "content": None, "tool_calls": []},
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": [{"type": "text", "text": "No."}, image],
                "is_error": True,
            },
            {"role": "tool", "tool_call_id": "b", "content": "Yes.", "cache_control": MARK},
            {"role": "user", "content": "Go on."},
        ],
    }
    before = repr(body)
    assert drop_foreign_fields(body) == {
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": [file]},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "tool", "tool_call_id": "a", "content": "Error: No."},
            {"role": "tool", "tool_call_id": "b", "content": "Yes."},
            {"role": "user", "content": [image]},
            {"role": "user", "content": "Go on."},
        ],
    }
    assert repr(body) == before


@pytest.mark.parametrize(
    ("own", "equal"),
    [
        ({"output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9000}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}},
                }
            },
        ),
        ({"thinking": None, "output_config": 7}, {}),
        ("no object", {}),
    ],
)
def test_fields_with_an_equal_are_translated(own: object, equal: Json) -> None:
    assert drop_foreign_fields({"messages_api": own, "messages": None}) == {**equal, "messages": None}


def test_field_of_the_chat_form_comes_before_its_equal() -> None:
    body: Json = {"messages_api": {"output_config": {"effort": "max"}}, "reasoning_effort": "low"}
    assert drop_foreign_fields(body) == {"reasoning_effort": "low"}
