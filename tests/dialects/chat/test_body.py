"""The checks of a chat completion request."""

import json

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.chat.body import ROLES, read_chat_request
from tests.context.contexts import BODY

HI = {"role": "user", "content": "Hi"}


def refusal(content: bytes, *, needs_model: bool = True) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        read_chat_request(content, needs_model=needs_model)
    assert caught.value.facts.status == 400 and len(caught.value.message) < 300
    return caught.value


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"messages": [{}], "x": NaN}',
        b'{"messages": [{"content": "\xff"}]}',
        b'{"messages": [{"content": "\\ud800"}]}',
        b'{"messages": [{}], "x": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"messages": [{}], "x": ' + b"[" * 100_000,
    ],
)
def test_non_object_body_is_refused_as_invalid_json(content: bytes) -> None:
    """Hostile bodies are no more than that."""
    error = refusal(content)
    assert (error.code, error.param) == ("invalid_json", None)


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"messages": None}, "missing_field", "messages"),
        ({"model": None}, "missing_field", "model"),
        ({"model": ""}, "missing_field", "model"),
        ({"messages": []}, "invalid_field", "messages"),
        ({"messages": "Hi"}, "invalid_field", "messages"),
        ({"messages": HI}, "invalid_field", "messages"),
        ({"messages": [HI, "Hi"]}, "invalid_field", "messages[1]"),
        ({"messages": [{"content": "Hi"}]}, "missing_field", "messages[0].role"),
        ({"messages": [{"role": None}]}, "missing_field", "messages[0].role"),
        ({"messages": [HI, HI, {"role": "robot"}]}, "invalid_field", "messages[2].role"),
        ({"messages": [{"role": "User"}]}, "invalid_field", "messages[0].role"),
        ({"messages": [{"role": 5}]}, "invalid_field", "messages[0].role"),
        ({"messages": [{"role": ["user"]}]}, "invalid_field", "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "invalid_field", "messages[0].content"),
        ({"messages": [{"role": "user", "content": {"text": "Hi"}}]}, "invalid_field", "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["a", {"text": "b"}]}]}, "invalid_field", "messages[0].content[1]"),
        ({"messages": [{"role": "user", "content": [7]}]}, "invalid_field", "messages[0].content[0]"),
        ({"messages": [{**HI, "name": 5}]}, "invalid_field", "messages[0].name"),
        ({"messages": [{**HI, "tool_call_id": {}}]}, "invalid_field", "messages[0].tool_call_id"),
        ({"messages": [{**HI, "tool_calls": {}}]}, "invalid_field", "messages[0].tool_calls"),
        ({"messages": [{**HI, "tool_calls": ["x"]}]}, "invalid_field", "messages[0].tool_calls[0]"),
        (
            {"messages": [{**HI, "tool_calls": [{"function": "f"}]}]},
            "invalid_field",
            "messages[0].tool_calls[0].function",
        ),
        ({"model": 7}, "invalid_field", "model"),
        ({"stream": "yes"}, "invalid_field", "stream"),
        ({"stream": 1}, "invalid_field", "stream"),
        ({"stream_options": True}, "invalid_field", "stream_options"),
        ({"stream_options": {"include_usage": "no"}}, "invalid_field", "stream_options.include_usage"),
        ({"tools": 5}, "invalid_field", "tools"),
        ({"tools": [{}, "t"]}, "invalid_field", "tools[1]"),
        ({"functions": [None]}, "invalid_field", "functions[0]"),
        ({"response_format": "json"}, "invalid_field", "response_format"),
        ({"logprobs": 5}, "invalid_field", "logprobs"),
        ({"user": 5}, "invalid_field", "user"),
        ({"n": "1"}, "invalid_field", "n"),
        ({"n": True}, "invalid_field", "n"),
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"n": 0}, "unsupported_parameter", "n"),
        ({"logprobs": True}, "unsupported_parameter", "logprobs"),
    ],
)
def test_invalid_field_refusal_names_the_field(changes: Json, code: str, param: str) -> None:
    """It is named, as the API's own servers do."""
    error = refusal(json.dumps({**BODY, **changes}).encode())
    assert (error.code, error.param) == (code, param)
    assert f"'{param}'" in error.message


@pytest.mark.parametrize("name", ["messages", "model"])
def test_missing_field_is_refused(name: str) -> None:
    """Null is no other case."""
    body = {key: value for key, value in BODY.items() if key != name}
    error = refusal(json.dumps(body).encode())
    assert (error.code, error.param) == ("missing_field", name)


def test_refusal_message_does_not_repeat_field_values() -> None:
    """It may be anything, a credential too."""
    for changes in ({"stream": "cAnArY"}, {"messages": [{"role": "cAnArY"}]}, {"model": ["cAnArY"]}):
        assert "cAnArY" not in refusal(json.dumps({**BODY, **changes}).encode()).message


def test_configured_model_makes_the_model_field_optional() -> None:
    """Then a request may leave it out."""
    content = json.dumps({"messages": [HI]}).encode()
    assert read_chat_request(content, needs_model=False) == {"messages": [HI]}


def test_unknown_chat_fields_are_forwarded_unchanged() -> None:
    """Unknown fields, odd values of what the gateway does not read: they go on as they are."""
    odd: Json = {"n": 1, "logprobs": False, "tools": [], "x": {"y": [None, 1.5, "é"]}, "temperature": "hot"}
    nulls = dict.fromkeys(("stream", "tools", "functions", "n", "logprobs", "user", "stream_options"))
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": 5}, "b"]
    history: list[Json] = [
        *({"role": role, "content": "x"} for role in ROLES),
        {"role": "user"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}], "refusal": 5},
        {"role": "assistant", "content": None, "tool_calls": None, "audio": {"id": "a"}},
    ]
    for body in (BODY, {**BODY, **odd}, {**BODY, **nulls}, {**BODY, "messages": history, "stream": True}):
        assert read_chat_request(json.dumps(body).encode(), needs_model=True) == body
