"""The fields of a request besides messages and tools."""

import pytest

from gateway.contracts.storage.store import Json

from .requests import parse, refusal_of


def test_fields_with_an_equal_are_renamed() -> None:
    """All others go on as they came, for a model that speaks Messages."""
    own = {
        "thinking": {"type": "adaptive"},
        "top_k": 5,
        "container": "c",
        "context_management": {"edits": []},
        "service_tier": "standard_only",
        "output_config": {"effort": "high"},
    }
    body = parse(temperature=0.5, top_p=0.9, stop_sequences=["END"], metadata={"user_id": "anna"}, **own).body
    assert body.pop("messages") == [{"role": "user", "content": "Hi"}]
    assert body == {
        "model": "m",
        "max_tokens": 10,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "user": "anna",
        "messages_api": {**own, "metadata": {"user_id": "anna"}},
    }


def test_plain_request_is_marked_as_one_of_messages() -> None:
    """So that a chat model gets chat's fields alone."""
    assert parse().body == {
        "model": "m",
        "max_tokens": 10,
        "messages_api": {},
        "messages": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_format_is_one_of_chat_completions(name: str) -> None:
    """By either name, and it does not go on twice."""
    schema = {"type": "object"}
    wanted: Json = {"type": "json_schema", "schema": schema}
    body = parse(**{name: wanted if name == "output_format" else {"format": wanted, "effort": "low"}}).body
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert body["messages_api"] == ({} if name == "output_format" else {"output_config": {"effort": "low"}})


@pytest.mark.parametrize(
    ("fields", "code", "place"),
    [
        ({"foo": 1}, "unknown_parameter", "foo"),
        ({"stop": ["x"]}, "unknown_parameter", "stop"),
        ({"thread": {}}, "unsupported_parameter", "thread"),
        ({"max_tokens": None}, "missing_field", "max_tokens"),
        ({"max_tokens": "9"}, "invalid_field", "max_tokens"),
        ({"max_tokens": True}, "invalid_field", "max_tokens"),
        ({"temperature": 2}, "invalid_field", "temperature"),
        ({"top_k": -1}, "invalid_field", "top_k"),
        ({"system": 5}, "invalid_field", "system"),
        ({"stream": "yes"}, "invalid_field", "stream"),
        ({"stop_sequences": "END"}, "invalid_field", "stop_sequences"),
        ({"metadata": {"user_id": 5}}, "invalid_field", "metadata.user_id"),
        ({"metadata": {"other": "x"}}, "unknown_parameter", "metadata.other"),
        ({"service_tier": "priority"}, "invalid_field", "service_tier"),
        ({"output_config": {"format": {"type": "text"}}}, "invalid_field", "output_config.format.type"),
        ({"output_config": {"format": 5}}, "invalid_field", "output_config.format"),
        ({"output_format": {"type": "json_schema"}}, "missing_field", "output_format.schema"),
        ({"model": None}, "missing_field", "model"),
        ({"model": 5}, "invalid_field", "model"),
    ],
)
def test_wrong_field_is_named(fields: Json, code: str, place: str) -> None:
    """Never with its value."""
    assert refusal_of(**fields) == (code, place)


@pytest.mark.parametrize("messages", [[], None, "x" * 0, {}, 5])
def test_request_needs_messages(messages: object) -> None:
    """A list of at least one that says something."""
    assert refusal_of(messages if messages != "" else [{"role": "user", "content": ""}])[1] == "messages"
