"""The body of a request to Responses."""

import pytest

from gateway.contracts.quirks import QUIRKS_OF_API
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.quirks import Quirks
from gateway.model.apis.responses.request import build_responses_body, list_lost_fields, wants_reasoning
from gateway.model.apis.responses.thoughts import ENCRYPTED, build_entry
from gateway.upstream.endpoint import ModelAccess

ACCESS = ModelAccess(api="responses")
USER: Json = {"role": "user", "content": "Hi"}
LEAST: Json = {
    "model": "m",
    "input": [{"type": "message", "role": "user", "content": "Hi"}],
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
}
SCHEMA: Json = {"name": "n", "schema": {"type": "object"}, "strict": True}


def build(*, quirks: Quirks = frozenset(), access: ModelAccess = ACCESS, **fields: object) -> Json:
    return build_responses_body({"model": "m", "messages": [USER], **fields}, quirks, access)


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, {}),
        ({"store": True, "stream": False, "n": 1, "stream_options": {}, "temperature": None}, {}),
        ({"max_tokens": 5}, {"max_output_tokens": 16}),
        ({"max_tokens": 5, "max_completion_tokens": 50}, {"max_output_tokens": 50}),
        ({"temperature": 2, "top_p": 1, "user": "u", "metadata": {"a": "b"}}, None),
        ({"prompt_cache_key": "k", "service_tier": "flex", "safety_identifier": "s"}, None),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, {"reasoning": {"effort": "high", "summary": "auto"}}),
        ({"reasoning": {"enabled": False}}, {"reasoning": {"effort": "none"}}),
        ({"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}),
        (
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}, "verbosity": "low"},
            {"text": {"format": {"type": "json_schema", **SCHEMA}, "verbosity": "low"}},
        ),
        (
            {"reasoning_effort": "low", "responses_api": {"reasoning": {"summary": "auto"}, "truncation": "auto"}},
            {"reasoning": {"effort": "low", "summary": "auto"}, "truncation": "auto"},
        ),
        ({"responses_api": {"store": True, "input": "x"}}, {}),
        ({"messages_api": {"output_config": {"effort": "max"}}}, {"reasoning": {"effort": "xhigh"}}),
        (
            {"messages_api": {"thinking": {"type": "enabled", "budget_tokens": 4096}}},
            {"reasoning": {"effort": "medium"}},
        ),
        ({"messages_api": {"thinking": {"type": "adaptive"}}}, {}),
        ({"seed": 7, "stop": "x", "logit_bias": {}}, {}),
    ],
)
def test_fields_have_the_names_of_the_api(fields: Json, sent: Json | None) -> None:
    assert build(**fields) == LEAST | (fields if sent is None else sent)


def test_instructions_and_tools_stand_beside_the_input() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    sent = build(messages=[{"role": "system", "content": "Be brief."}, USER], tools=[tool])
    assert sent["instructions"] == "Be brief." and sent["input"] == LEAST["input"]
    assert [one["name"] for one in sent["tools"]] == ["look"]


def test_summary_of_the_configuration_stands_where_the_client_wants_none() -> None:
    access = ModelAccess(api="responses", reasoning_summary="auto")
    assert build(access=access)["reasoning"] == {"summary": "auto"}
    own: Json = {"reasoning": {"summary": "detailed"}}
    assert build(access=access, responses_api=own)["reasoning"] == {"summary": "detailed"}


def test_quirks_take_out_what_a_model_refuses() -> None:
    details = [build_entry(ENCRYPTED, {"data": "eA=="}, index=0, answer_id="a", place=(0, 0))]
    answer: Json = {"role": "assistant", "content": "Yes", "reasoning_details": details}
    tool: Json = {"type": "function", "function": {"name": "look"}}
    fields: Json = {"messages": [USER, answer, USER], "tools": [tool], "parallel_tool_calls": True}
    fields |= {"temperature": 1, "top_p": 1, "reasoning_effort": "low"}
    whole = build(**fields)
    assert [item["type"] for item in whole["input"]] == ["message", "reasoning", "message", "message"]
    left = build(quirks=QUIRKS_OF_API["responses"], **fields)
    assert whole.keys() - left.keys() == {"temperature", "top_p", "reasoning", "include", "parallel_tool_calls"}
    assert [item["type"] for item in left["input"]] == ["message"] * 3
    assert "include" in build(quirks=frozenset(("no_reasoning_effort",)), **fields)


def test_what_is_lost_is_listed() -> None:
    body: Json = {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "input_audio"}]}],
        "stop": "x",
        "seed": None,
        "tools": [{"type": "custom"}],
        "responses_api": {"truncation": "auto", "odd": 1},
        "messages_api": {"thinking": {}, "top_k": 5},
    }
    lost = ["stop", "responses_api.odd", "messages_api.top_k", "tools of the type custom"]
    assert list_lost_fields(body) == [*lost, "parts of the type input_audio"]


def test_request_that_states_how_the_model_reasons_is_recognised() -> None:
    for fields in ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}):
        assert wants_reasoning(fields)
    assert wants_reasoning({"responses_api": {"reasoning": {"summary": "auto"}}})
    assert not wants_reasoning({"responses_api": {"truncation": "auto"}, "messages_api": {"top_k": 5}})
