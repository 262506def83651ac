"""The facts of a response whose request decides: its run goes on with the model and the fields that it began with.

Of this request, only its restrictions of the run count (`gateway.runs.run_restrictions`), so its response contains the
others as the run has them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.message_identity import get_content_text
from gateway.dialects.responses.fields import PASSED
from gateway.dialects.responses.response_metadata import ResponseFacts

#: Fields for the model that keep their names in chat completions.
_SAME: Final = ("model", "parallel_tool_calls", *PASSED)
#: All fields of a response that describe the request to its model.
_OF_MODEL: Final = (*_SAME, "instructions", "max_output_tokens", "text", "reasoning")


def restore_begun_facts(
    facts: ResponseFacts, began: Json, *, narrowings: Sequence[Json] = (), own: Json | None = None
) -> ResponseFacts:
    """Return the facts of a request that decides, with the fields of its run.

    `began` is the stored request of the run, which may be of another API, or without most of its body once the run has
    ended. `narrowings` are the restrictions of the run, `own` the one of this request among them, if there is one.
    """
    client = began.get("client")
    limits = [limit for one in narrowings if (limit := one.get("max_tool_calls")) is not None]
    if client is not None and "request" in client:
        first = ResponseFacts.from_stored(client["request"])
        ours_from = facts.fields if own and {"only", "ask_first"} & own.keys() else first.fields
        choice, limits = first.fields.get("tool_choice"), [*limits, *_list_limit(first.fields.get("max_tool_calls"))]
        fields = {**_select_model_fields(first.fields), "tools": _restore_tools(first.fields, ours_from)}
        facts = replace(facts, client={**facts.client, **first.client})
    else:
        body: Json = began["body"]
        choice, limits = (
            _convert_tool_choice(body.get("tool_choice")),
            [*limits, *_list_limit(began.get("max_tool_calls"))],
        )
        fields = _rebuild_request_fields(body, facts.fields)
        if own is None:
            fields["tools"] = None  # the request's tools restrict nothing, and the run's are not known
    if any(one.get("no_tools") or one.get("no_functions") for one in narrowings) or began.get("no_tools"):
        choice = "none"
    fields |= {"tool_choice": choice, "max_tool_calls": min(limits, default=None)}
    return replace(facts, fields=_merge_fields(facts.fields, fields))


def _list_limit(limit: int | None) -> Sequence[int]:
    return () if limit is None else (limit,)


def _merge_fields(own: Mapping[str, object], fields: Mapping[str, object]) -> Json:
    """Return the fields of a request with the given fields for the model, without the ones that are None."""
    kept = {name: value for name, value in own.items() if name not in _OF_MODEL and name not in fields}
    return {**kept, **{name: value for name, value in fields.items() if value is not None}}


def _select_model_fields(fields: Json) -> Json:
    return {name: fields.get(name) for name in _OF_MODEL}


def _restore_tools(first: Json, narrowed: Json) -> list[Json]:
    """Return the tools of a run: the client's as it has them, ours as they are narrowed."""
    of_run = [tool for tool in first.get("tools") or () if tool.get("type") != "mcp"]
    ours = [tool for tool in narrowed.get("tools") or first.get("tools") or () if tool.get("type") == "mcp"]
    return [*of_run, *ours]


def _rebuild_request_fields(body: Json, own: Json) -> Json:
    """Return the fields that a chat completion request was made of."""
    systems = [get_content_text(one.get("content")) for one in body["messages"] if one.get("role") == "system"]
    instructions = own.get("instructions")
    is_read = isinstance(instructions, str) and any(instructions in text for text in systems)
    config = {"format": _convert_response_format(body.get("response_format")), "verbosity": body.get("verbosity")}
    reasoning = {**(own.get("reasoning") or {}), "effort": body.get("reasoning_effort")}
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    return {
        **{name: body.get(name) for name in _SAME},
        "instructions": instructions if is_read else None,
        "max_output_tokens": limit,
        "text": {name: value for name, value in config.items() if value is not None} or None,
        "reasoning": reasoning if any(reasoning.values()) else None,
    }


def _convert_tool_choice(wanted: str | Json | None) -> str | Json | None:
    """Return a `tool_choice` of chat completions as a response has it."""
    if wanted is None or isinstance(wanted, str):
        return wanted
    return {"type": "function", **wanted["function"]} if "function" in wanted else None


def _convert_response_format(wanted: Json | None) -> Json | None:
    if wanted is None or "json_schema" not in wanted:
        return wanted
    return {"type": "json_schema", **wanted["json_schema"]}
