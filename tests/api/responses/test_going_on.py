"""The facts of a response whose request decides, as they are of its run."""

from typing import Any

import pytest

from gateway.api.responses.going_on import as_begun
from gateway.contracts.store import Json
from gateway.dialects.responses.facts import ResponseFacts
from gateway.dialects.responses.fields import for_models

FUNCTION: Json = {"type": "function", "name": "theirs", "parameters": {}}
OURS: Json = {"type": "mcp", "server_label": "gateway"}
OWN: Json = {"model": "other", "temperature": 1.5, "instructions": "New", "metadata": {"n": "1"}}
SHAPE: Json = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


def begun(fields: Json) -> Json:
    return {"body": {"messages": []}, "client": {"request": ResponseFacts(fields=fields).stored}}


def fields_of(own: Json, began: Json) -> Json:
    return as_begun(ResponseFacts(fields=own), began).fields


def test_the_fields_of_the_run_take_the_place_of_the_requests_own() -> None:
    """Also where the run has none; what is no field for the model stays."""
    assert fields_of(OWN, begun({"model": "m", "top_p": 0.5})) == {
        "model": "m",
        "top_p": 0.5,
        "tools": [],
        "metadata": {"n": "1"},
    }


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({}, {"tools": [FUNCTION, OURS], "max_tool_calls": 3}),
        ({"tools": [{**OURS, "allowed_tools": ["a"]}]}, {"tools": [FUNCTION, {**OURS, "allowed_tools": ["a"]}]}),
        ({"tool_choice": "none", "max_tool_calls": 2}, {"tool_choice": "none", "max_tool_calls": 2}),
        ({"tool_choice": "required", "max_tool_calls": 9}, {"tool_choice": "auto", "max_tool_calls": 3}),
    ],
)
def test_fields_of_tools_are_as_narrowed(own: Json, found: Json) -> None:
    """The client's functions are the run's."""
    told = fields_of(own, begun({"tools": [FUNCTION, OURS], "tool_choice": "auto", "max_tool_calls": 3}))
    assert {name: told[name] for name in found} == found


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m"},
        {"model": "m", "temperature": 0.5, "max_output_tokens": 9, "service_tier": "flex", "user": "ann"},
        {"model": "m", "text": {"format": SHAPE, "verbosity": "low"}, "reasoning": {"effort": "low"}},
        {"model": "m", "text": {"format": {"type": "json_object"}}},
    ],
)
def test_a_run_without_a_stored_response_has_its_fields_in_its_body(fields: Json) -> None:
    """As another API, or a response that is not stored, began it."""
    began: dict[str, Any] = {"body": {**for_models(fields), "messages": [{"role": "system", "content": "Old"}]}}
    assert fields_of(OWN, began) == {**fields, "metadata": {"n": "1"}}
    assert fields_of({**fields, "instructions": "Old"}, began) == {**fields, "instructions": "Old"}


def test_nothing_is_known_of_a_run_that_has_ended_without_its_body() -> None:
    """Its response has the fields of the request."""
    assert fields_of(OWN, {"body": {"messages": []}}) == OWN
