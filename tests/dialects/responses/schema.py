"""Responses and their events, checked against the Open Responses schemas and, where it is installed, openai-python.

The schemas know no items of MCP servers and no custom tools, so these are left out for them. And they describe the
schema of `text.format` as null, which no answer can have: the SDKs need the schema there.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson

from gateway.contracts.storage.store import Json

_SCHEMAS: Json = orjson.loads((Path(__file__).parents[2] / "data" / "openresponses" / "schemas.json").read_bytes())
#: The schema of each event, by its type.
_EVENTS = {
    schema["properties"]["type"]["enum"][0]: name
    for name, schema in _SCHEMAS["$defs"].items()
    if name.endswith("StreamingEvent")
}
_ITEMS = frozenset(("message", "function_call", "function_call_output", "reasoning", "compaction"))
_CHOICES = frozenset(("function", "allowed_tools"))
#: How events begin that only OpenAI has.
_OF_OPENAI = (
    "response.mcp_",
    "response.compaction.",
    "response.custom_tool_call_input.",
    "response.image_generation_call.",
)

if importlib.util.find_spec("openai"):
    from tests.dialects.responses.models import check_event as _check_model_of_event
    from tests.dialects.responses.models import check_response as _check_model_of_response
else:  # the environment of `make test` has no client libraries: tests/clients/test_response_models.py checks both

    def _check_model_of_event(event: Json) -> None:
        """Check nothing."""

    def _check_model_of_response(response: Json) -> None:
        """Check nothing."""


def check_response(response: Json) -> None:
    """Check a Response object."""
    _check("ResponseResource", _neutral(response))
    _check_model_of_response(response)


def check_event(event: Json) -> None:
    """Check an event."""
    kind = event["type"]
    if kind in _EVENTS:
        neutral = dict(event)
        if "response" in event:
            neutral["response"] = _neutral(event["response"])
        if "item" in event and event["item"]["type"] not in _ITEMS:
            neutral["item"] = None
        _check(_EVENTS[kind], neutral)
    else:
        assert kind.startswith(_OF_OPENAI), kind
    _check_model_of_event(event)


def check_frames(frames: bytes, *, first: int = 0) -> list[Json]:
    """Return the events of a whole stream, each checked, with numbers from `first` on."""
    assert frames.endswith(b"data: [DONE]\n\n") and frames.count(b"data: [DONE]\n\n") == 1
    events = events_of(frames)
    assert [event["sequence_number"] for event in events] == [*range(first, first + len(events))]
    for event in events:
        check_event(event)
    return events


def events_of(frames: bytes) -> list[Json]:
    """Return the events of frames; each names its type twice. Comments and the end are none."""
    events = []
    for block in frames.split(b"\n\n"):
        lines = block.split(b"\n")
        if lines[0].startswith(b"event: "):
            assert len(lines) == 2 and lines[1].startswith(b"data: "), block
            event = orjson.loads(lines[1].removeprefix(b"data: "))
            assert lines[0] == b"event: " + event["type"].encode()
            events.append(event)
        else:
            assert block in (b"", b"data: [DONE]", b": keep-alive"), block
    return events


def _neutral(response: Json) -> Json:
    """Return a response without what the schemas do not know."""
    neutral = dict(response)
    neutral["output"] = [item for item in response["output"] if item["type"] in _ITEMS]
    neutral["tools"] = [tool for tool in response["tools"] if tool["type"] == "function"]
    choice = response["tool_choice"]
    if isinstance(choice, dict) and choice["type"] not in _CHOICES:
        neutral["tool_choice"] = "auto"
    if response["text"]["format"]["type"] == "json_schema":
        assert response["text"]["format"]["schema"]
        neutral["text"] = {**response["text"], "format": {**response["text"]["format"], "schema": None}}
    return neutral


def _check(name: str, value: Any) -> None:
    faults = [f"{fault.message} at {fault.instance_path}" for fault in _validator(name).iter_errors(value)]
    assert faults == [], (name, faults, value)


@cache
def _validator(name: str) -> Any:
    return jsonschema_rs.Draft202012Validator({**_SCHEMAS, "$ref": f"#/$defs/{name}"})
