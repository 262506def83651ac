"""The facts of a response whose request decides: its run goes on with the model and the fields that it began with.

Of its own request, only what narrows the run counts (`gateway.runs.narrowing`), so its response contains the others as
the run has them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway.contracts.store import Json
from gateway.dialects.meaning import content_text
from gateway.dialects.responses.facts import ResponseFacts
from gateway.dialects.responses.fields import PASSED

#: Fields for the model that keep their names in chat completions.
_SAME: Final = ("model", "parallel_tool_calls", *PASSED)
#: All fields of a response that say how its model is asked.
_OF_MODEL: Final = (*_SAME, "instructions", "max_output_tokens", "text", "reasoning")


def as_begun(facts: ResponseFacts, began: Json) -> ResponseFacts:
    """Return the facts of a request that decides, with the fields of its run.

    `began` is the stored request of the run, which may be of another API, or without its body once the run has ended.
    """
    client = began.get("client")
    if client is not None and "request" in client:
        first = ResponseFacts.of_stored(client["request"])
        fields = {**_of_model(first.fields), **_of_tools(first.fields, facts.fields)}
        return replace(facts, fields=_with(facts.fields, fields), client={**facts.client, **first.client})
    body: Json = began["body"]
    return facts if "model" not in body else replace(facts, fields=_with(facts.fields, _of_body(body, facts.fields)))


def _with(own: Mapping[str, object], fields: Mapping[str, object]) -> Json:
    """Return the fields of a request, those for the model being these, which are None where there is none."""
    kept = {name: value for name, value in own.items() if name not in _OF_MODEL and name not in fields}
    return {**kept, **{name: value for name, value in fields.items() if value is not None}}


def _of_model(fields: Json) -> Json:
    return {name: fields.get(name) for name in _OF_MODEL}


def _of_tools(first: Json, own: Json) -> Json:
    """Return the fields of tools: the client's as the run has them, ours as they are narrowed."""
    of_run = [tool for tool in first.get("tools") or () if tool.get("type") != "mcp"]
    ours = [tool for tool in own.get("tools") or first.get("tools") or () if tool.get("type") == "mcp"]
    limits = [limit for fields in (first, own) if (limit := fields.get("max_tool_calls")) is not None]
    choice = "none" if own.get("tool_choice") == "none" else first.get("tool_choice")
    return {"tools": [*of_run, *ours], "tool_choice": choice, "max_tool_calls": min(limits, default=None)}


def _of_body(body: Json, own: Json) -> Json:
    """Return the fields that a chat completion request was made of."""
    systems = [content_text(one.get("content")) for one in body["messages"] if one.get("role") == "system"]
    instructions = own.get("instructions")
    is_read = isinstance(instructions, str) and any(instructions in text for text in systems)
    config = {"format": _format(body.get("response_format")), "verbosity": body.get("verbosity")}
    reasoning = {**(own.get("reasoning") or {}), "effort": body.get("reasoning_effort")}
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    return {
        **{name: body.get(name) for name in _SAME},
        "instructions": instructions if is_read else None,
        "max_output_tokens": limit,
        "text": {name: value for name, value in config.items() if value is not None} or None,
        "reasoning": reasoning if any(reasoning.values()) else None,
    }


def _format(wanted: Json | None) -> Json | None:
    if wanted is None or "json_schema" not in wanted:
        return wanted
    return {"type": "json_schema", **wanted["json_schema"]}
