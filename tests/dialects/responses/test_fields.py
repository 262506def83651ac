"""The fields of a request besides items and tools: what is refused, and what models get of them."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.responses.fields import INCLUDABLE

from .requests import asked, refusal, request

#: A value of a wrong type for each field of a request.
WRONG = {
    "model": 5,
    "input": 5,
    "instructions": 5,
    "previous_response_id": 5,
    "conversation": 5,
    "include": "reasoning.encrypted_content",
    "tools": {},
    "tool_choice": 5,
    "parallel_tool_calls": "yes",
    "max_tool_calls": "3",
    "max_output_tokens": 16.5,
    "temperature": "warm",
    "top_p": True,
    "presence_penalty": [],
    "frequency_penalty": {},
    "top_logprobs": "2",
    "text": "json",
    "reasoning": "high",
    "metadata": [],
    "stream": 1,
    "stream_options": [],
    "background": "true",
    "store": 0,
    "truncation": "some",
    "user": 7,
    "safety_identifier": 7,
    "prompt_cache_key": {},
    "service_tier": 1,
    "prompt": "pmpt_1",
    "moderation": "on",
    "context_management": {},
    "prompt_cache_retention": "1h",
    "prompt_cache_options": [],
    "background_options": 1,
    "image": [],
    "access_programs": "cyber",
    "client_metadata": [],
}


@pytest.mark.parametrize("field", WRONG)
def test_field_with_a_wrong_type_is_refused(field: str) -> None:
    error = refusal(**{field: WRONG[field]})
    assert (error.code, error.param) == ("invalid_field", field)


@pytest.mark.parametrize("field", sorted(WRONG.keys() - {"input", "model"}))
def test_null_field_counts_as_absent(field: str) -> None:
    assert asked(**{field: None}).body == asked().body


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"max_tool_calls": 0}, "invalid_field", "max_tool_calls"),
        ({"max_output_tokens": 0}, "invalid_field", "max_output_tokens"),
        ({"max_output_tokens": 10**30}, "invalid_field", "max_output_tokens"),
        ({"temperature": 2.5}, "invalid_field", "temperature"),
        ({"temperature": -(10**40)}, "invalid_field", "temperature"),
        ({"top_p": 1.1}, "invalid_field", "top_p"),
        ({"top_logprobs": 21}, "invalid_field", "top_logprobs"),
        ({"top_logprobs": 2}, "unsupported_parameter", "top_logprobs"),
        ({"include": [5]}, "invalid_field", "include"),
        ({"include": ["reasoning.encrypted_content", "weather"]}, "invalid_field", "include[1]"),
        ({"include": ["message.output_text.logprobs"]}, "unsupported_parameter", "include[0]"),
        ({"prompt": {"id": "pmpt_1"}}, "unsupported_parameter", "prompt"),
        ({"moderation": {"model": "m"}}, "unsupported_parameter", "moderation"),
        ({"context_management": [1]}, "invalid_field", "context_management[0]"),
        ({"context_management": [{}]}, "missing_field", "context_management[0].type"),
        ({"context_management": [{"type": "erase"}]}, "invalid_field", "context_management[0].type"),
        (
            {"context_management": [{"type": "compaction", "compact_threshold": 0}]},
            "invalid_field",
            "context_management[0].compact_threshold",
        ),
        (
            {"context_management": [{"type": "compaction", "x": 1}]},
            "unknown_parameter",
            "context_management[0].x",
        ),
        ({"prompt_cache_options": {"prewarm": True}}, "unsupported_parameter", "prompt_cache_options.prewarm"),
        ({"text": {"format": "json"}}, "invalid_field", "text.format"),
        ({"text": {"format": {}}}, "missing_field", "text.format.type"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_field", "text.format.type"),
        ({"text": {"format": {"type": ["text"]}}}, "invalid_field", "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "missing_field", "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "a b"}}}, "invalid_field", "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "missing_field", "text.format.schema"),
        ({"text": {"format": {"type": "text", "name": "a"}}}, "unknown_parameter", "text.format.name"),
        ({"text": {"verbosity": 5}}, "invalid_field", "text.verbosity"),
        ({"text": {"fromat": {}}}, "unknown_parameter", "text.fromat"),
        ({"reasoning": {"effort": 5}}, "invalid_field", "reasoning.effort"),
        ({"reasoning": {"type": "deep"}}, "unknown_parameter", "reasoning.type"),
        ({"stream_options": {"include_obfuscation": 1}}, "invalid_field", "stream_options.include_obfuscation"),
        ({"stream_options": {"include_usage": True}}, "unknown_parameter", "stream_options.include_usage"),
        ({"metadata": {"a": 5}}, "invalid_field", "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "invalid_field", "metadata.a"),
        ({"metadata": {"a" * 65: "x"}}, "invalid_field", "metadata"),
        ({"metadata": {"a" * 1_000_000: "x"}}, "invalid_field", "metadata"),
        ({"metadata": {str(i): "x" for i in range(17)}}, "invalid_field", "metadata"),
        ({"conversation": ""}, "invalid_field", "conversation"),
        ({"conversation": {}}, "missing_field", "conversation.id"),
        ({"conversation": {"id": 5}}, "invalid_field", "conversation.id"),
        ({"previous_response_id": ""}, "invalid_field", "previous_response_id"),
        ({"previous_response_id": "resp_1" * 200_000}, "invalid_field", "previous_response_id"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "invalid_field", "conversation"),
        ({"background": True, "store": False}, "invalid_field", "background"),
        ({"prompt_cache_key": "k" * 1_000_000}, "invalid_field", "prompt_cache_key"),
    ],
)
def test_invalid_field_values_are_refused(fields: dict[str, object], code: str, param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == (code, param)


def test_unknown_fields_are_refused_as_openai_does() -> None:
    error = refusal(foo=1)
    assert (error.code, error.param, error.message) == ("unknown_parameter", "foo", "Unknown parameter: 'foo'.")
    assert refusal(**{"f" * 1_000_000: 1}).param == "f" * 64
    assert refusal(**{"": 1}).param == ""


@pytest.mark.parametrize(
    ("field", "now"),
    [
        ("messages", "input"),
        ("max_tokens", "max_output_tokens"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("verbosity", "text.verbosity"),
        ("functions", "tools"),
        ("function_call", "tool_choice"),
    ],
)
def test_chat_completion_fields_are_refused_with_their_replacement(field: str, now: str) -> None:
    error = refusal(**{field: 1})
    assert (error.code, error.param) == ("unsupported_parameter", field) and f"'{now}'" in error.message


def test_body_contains_only_fields_that_the_client_sent() -> None:
    assert asked().body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def test_shared_fields_are_forwarded_to_the_model() -> None:
    same = {
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 1,
        "frequency_penalty": -1.5,
        "user": "ann",
        "safety_identifier": "hash",
        "prompt_cache_key": "key",
        "service_tier": "flex",
    }
    body = asked(
        **same, max_output_tokens=99, reasoning={"effort": "low", "summary": "auto"}, text={"verbosity": "high"}
    ).body
    renamed: Json = {"max_tokens": 99, "reasoning_effort": "low", "verbosity": "high"}
    renamed["responses_api"] = {"reasoning": {"summary": "auto"}}
    assert {name: value for name, value in body.items() if name not in ("model", "messages")} == same | renamed


def test_openai_only_fields_are_accepted_and_not_forwarded() -> None:
    """Codex sends `client_metadata`, and each SDK some of the others."""
    accepted = {
        "metadata": {"a": "b", "c": ""},
        "include": [name for name in INCLUDABLE if "logprobs" not in name],
        "top_logprobs": 0,
        "store": False,
        "stream_options": {"include_obfuscation": False},
        "background_options": {"completion_window": "2h"},
        "image": {"context_compression": "auto"},
        "access_programs": {"cyber": "standard"},
        "client_metadata": {"turn": "1"},
        "context_management": [],
        "max_tool_calls": 3,
    }
    assert asked(**accepted).body == asked().body
    assert request(**accepted).fields == {"model": "m", **accepted}


def test_what_chats_lack_is_kept_for_models_that_speak_responses() -> None:
    own = {
        "truncation": "auto",
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
        "reasoning": {"effort": None, "summary": "auto", "context": "all_turns"},
    }
    reasoning = {"summary": "auto", "context": "all_turns"}
    assert asked(**own).body["responses_api"] == {**own, "reasoning": reasoning}


def test_text_formats_convert_to_response_format() -> None:
    schema = {"type": "object", "properties": {}}
    shaped = {"type": "json_schema", "name": "n", "schema": schema, "strict": True, "description": None}
    assert asked(text={"format": shaped}).body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": schema, "strict": True},
    }
    assert asked(text={"format": {"type": "json_object"}}).body["response_format"] == {"type": "json_object"}
    assert "response_format" not in asked(text={"format": {"type": "text"}}).body


def test_max_tool_calls_and_background_become_wishes() -> None:
    wishes = asked(max_tool_calls=3, background=True).wishes
    assert (wishes.max_tool_calls, wishes.background) == (3, True)
    assert (asked().wishes.max_tool_calls, asked().wishes.background) == (None, False)
