"""The facts of a response whose request decides, as they are of its run."""

from typing import Any

import pytest

from gateway.api.responses.approval_followup import as_begun
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.fields import for_models
from gateway.dialects.responses.response_metadata import ResponseFacts

FUNCTION: Json = {"type": "function", "name": "theirs", "parameters": {}}
OURS: Json = {"type": "mcp", "server_label": "gateway"}
OWN: Json = {"model": "other", "temperature": 1.5, "instructions": "New", "metadata": {"n": "1"}}
SHAPE: Json = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


def begun(fields: Json) -> Json:
    return {"body": {"messages": []}, "client": {"request": ResponseFacts(fields=fields).stored_json}}


def fields_of(own: Json, began: Json, *narrowings: Json, holds: bool = True) -> Json:
    """The fields of the response; `holds`: the request's own fields are the last narrowing, or narrow nothing."""
    narrowed: Json | None = ([{}, *narrowings])[-1] if holds else None
    return as_begun(ResponseFacts(fields=own), began, narrowings=narrowings, own=narrowed).fields


def test_the_fields_of_the_run_take_the_place_of_the_requests_own() -> None:
    """Also where the run has none; what is no field for the model stays."""
    assert fields_of(OWN, begun({"model": "m", "top_p": 0.5})) == {
        "model": "m",
        "top_p": 0.5,
        "tools": [],
        "metadata": {"n": "1"},
    }


NARROWER: Json = {**OURS, "allowed_tools": ["a"]}
NONE: Json = {"no_tools": True, "max_tool_calls": 2}


@pytest.mark.parametrize(
    ("own", "narrowings", "found"),
    [
        ({}, [], {"tools": [FUNCTION, OURS], "max_tool_calls": 3}),
        ({"tools": [NARROWER]}, [{"only": ["a"]}], {"tools": [FUNCTION, NARROWER]}),
        ({"tool_choice": "none", "max_tool_calls": 2}, [NONE], {"tool_choice": "none", "max_tool_calls": 2}),
        ({"tool_choice": "required", "max_tool_calls": 9}, [], {"tool_choice": "auto", "max_tool_calls": 3}),
        ({}, [NONE, {"max_tool_calls": 1}], {"tool_choice": "none", "max_tool_calls": 1}),
    ],
)
def test_fields_of_tools_are_as_narrowed(own: Json, narrowings: list[Json], found: Json) -> None:
    """The client's functions are the run's."""
    began = begun({"tools": [FUNCTION, OURS], "tool_choice": "auto", "max_tool_calls": 3})
    told = fields_of(own, began, *narrowings)
    assert {name: told[name] for name in found} == found


def test_fields_that_narrow_nothing_are_not_stated() -> None:
    """Somebody else has decided: the run goes on with what it has, as far as that is known."""
    own: Json = {**OWN, "tools": [NARROWER], "tool_choice": "none", "max_tool_calls": 1}
    began = {"tools": [FUNCTION, OURS], "tool_choice": "auto", "max_tool_calls": 3}
    told = fields_of(own, begun(began), {"max_tool_calls": 2}, holds=False)
    assert told == {**began, "max_tool_calls": 2, "metadata": {"n": "1"}}
    choice: Json = {"type": "function", "function": {"name": "theirs"}}
    chat: Json = {"max_tool_calls": 5, "body": {"model": "m", "tool_choice": choice, "messages": []}}
    assert fields_of(own, chat, holds=False) == {
        "model": "m",
        "tool_choice": {"type": "function", "name": "theirs"},
        "max_tool_calls": 5,
        "metadata": {"n": "1"},
    }


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
    """Nothing of the request's own takes that place."""
    assert fields_of(OWN, {"body": {"messages": []}}) == {"metadata": {"n": "1"}}
    assert fields_of(OWN, {"body": {"model": "m", "messages": []}}) == {"model": "m", "metadata": {"n": "1"}}
