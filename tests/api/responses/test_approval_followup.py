"""The facts of a response whose request decides, as they are of its run."""

from typing import Any

import pytest

from gateway.api.responses.approval_followup import restore_begun_facts
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.fields import convert_for_models
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
    return restore_begun_facts(ResponseFacts(fields=own), began, narrowings=narrowings, own=narrowed).fields


def test_run_fields_replace_fields_of_the_deciding_request() -> None:
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
def test_tool_fields_are_reported_as_narrowed(own: Json, narrowings: list[Json], found: Json) -> None:
    """The client's functions are the run's."""
    began = begun({"tools": [FUNCTION, OURS], "tool_choice": "auto", "max_tool_calls": 3})
    told = fields_of(own, began, *narrowings)
    assert {name: told[name] for name in found} == found


def test_ineffective_narrowing_fields_are_not_reported() -> None:
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
def test_run_without_stored_response_reports_fields_of_its_body(fields: Json) -> None:
    """As another API, or a response that is not stored, began it."""
    began: dict[str, Any] = {"body": {**convert_for_models(fields), "messages": [{"role": "system", "content": "Old"}]}}
    assert fields_of(OWN, began) == {**fields, "metadata": {"n": "1"}}
    assert fields_of({**fields, "instructions": "Old"}, began) == {**fields, "instructions": "Old"}


def test_unknown_run_fields_are_omitted() -> None:
    """Nothing of the request's own takes that place."""
    assert fields_of(OWN, {"body": {"messages": []}}) == {"metadata": {"n": "1"}}
    assert fields_of(OWN, {"body": {"model": "m", "messages": []}}) == {"model": "m", "metadata": {"n": "1"}}
