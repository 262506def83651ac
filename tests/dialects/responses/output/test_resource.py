"""The Response object: the request with OpenAI's defaults, tokens, errors."""

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.output.resource import Resource, build_error, build_usage
from gateway.dialects.responses.response_metadata import ResponseFacts
from tests.dialects.responses.schema import check_response
from tests.dialects.responses.scripts import EVERYTHING


def resource(*left_out: str, **fields: object) -> Resource:
    facts = ResponseFacts(fields={"model": "m", **fields}, left_out=left_out)
    return Resource(facts, response_id="resp_1", created_s=7.9, background=False)


def test_response_object_has_openais_defaults_for_unset_fields() -> None:
    """With OpenAI's defaults for those that the request leaves out."""
    response = resource().build_view()
    check_response(response)
    assert response == {
        "id": "resp_1",
        "object": "response",
        "created_at": 7,
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        "metadata": {},
        "previous_response_id": None,
        "instructions": None,
        "tool_choice": "auto",
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "temperature": 1.0,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "store": True,
        "safety_identifier": None,
        "prompt_cache_key": None,
        "user": None,
        "model": "m",
        "conversation": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "text": {"format": {"type": "text"}},
        "tools": [],
        "background": False,
    }


def test_null_request_fields_take_their_defaults() -> None:
    """Clients send it for what nobody set."""
    assert resource(**dict.fromkeys(EVERYTHING.keys() - {"model"})).build_view() == resource().build_view()


def test_a_response_repeats_its_request() -> None:
    """What it says about the answer; not what it wants to see of it."""
    response = resource(**EVERYTHING, conversation="conv_1").build_view()
    same = EVERYTHING.keys() - {"tools", "text", "include"}
    assert {name: response[name] for name in same} == {name: EVERYTHING[name] for name in same}
    assert response["conversation"] == {"id": "conv_1"}
    assert resource(conversation={"id": "conv_1"}).build_view()["conversation"] == {"id": "conv_1"}
    assert "include" not in response and "stream" not in response


def test_tools_have_all_fields_of_their_kind() -> None:
    """Clients send less than they read."""
    function = {"type": "function", "name": "f"}
    mcp = {"type": "mcp", "server_label": "notes"}
    assert resource(tools=[function, mcp]).build_view()["tools"] == [
        {**function, "description": None, "parameters": None, "strict": None},
        mcp,
    ]


def test_credentials_are_not_repeated() -> None:
    """A response is stored, and seen by more people than its request."""
    mcp = {"type": "mcp", "server_label": "notes", "authorization": "secret", "headers": {"a": "secret"}}
    assert b"secret" not in resource(tools=[mcp]).dump()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ({}, {"format": {"type": "text"}}),
        ({"verbosity": "low"}, {"verbosity": "low", "format": {"type": "text"}}),
        ({"verbosity": None, "format": None}, {"format": {"type": "text"}}),
        ({"format": {"type": "json_object"}}, {"format": {"type": "json_object"}}),
        (
            {"format": {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": None}},
            {"format": {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": False, "description": None}},
        ),
    ],
)
def test_response_text_format_is_always_complete(text: Json, shown: Json) -> None:
    """Whole in any case."""
    assert resource(text=text).build_view()["text"] == shown


@pytest.mark.parametrize(("asked", "shown"), [(None, "default"), ("auto", "default"), ("flex", "flex")])
def test_response_service_tier_is_never_auto(asked: str | None, shown: str) -> None:
    """`auto` is none: it leaves the choice to the server."""
    assert resource(service_tier=asked).build_view()["service_tier"] == shown


def test_response_dump_equals_its_view() -> None:
    """Also once more after a change; the parts that stay are written once."""
    one = resource("web_search", tools=[{"type": "function", "name": "f"}], metadata={"a": "b"})
    assert orjson.loads(one.dump()) == one.build_view()
    one.status, one.usage, one.incomplete = "incomplete", build_usage(None), "content_filter"
    one.output.append({"id": "msg_1"})
    assert orjson.loads(one.dump()) == one.build_view()
    assert [*orjson.loads(one.dump())][:4] == ["id", "object", "created_at", "status"]


@pytest.mark.parametrize(
    ("told", "read", "written", "total"),
    [
        (None, 0, 0, 0),
        ({}, 0, 0, 0),
        ({"prompt_tokens": 3, "completion_tokens": 4}, 3, 4, 7),
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9}, 3, 4, 9),
        ({"prompt_tokens": "3", "completion_tokens": True, "prompt_tokens_details": [1]}, 0, 0, 0),
    ],
)
def test_usage_converts_to_input_and_output_tokens(told: Json | None, read: int, written: int, total: int) -> None:
    """Whatever a model server says of them."""
    usage = build_usage(told)
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (read, written, total)
    assert usage["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


def test_error_changed_by_effects_keeps_its_code() -> None:
    """A run with effects is not tried again, so its status is another one."""
    error = GatewayError("upstream_limited", "Too many.").mark_after_effects()
    assert build_error(error, "m") == {
        "code": "rate_limit_exceeded",
        "message": "m",
        "type": "upstream_limited",
        "param": None,
    }
