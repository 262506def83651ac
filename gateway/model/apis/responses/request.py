"""The body of a request to Responses, made of that of a chat completion.

What has an equal is translated, what is the API's own passes (`responses_api`), and what it does not know is left out:
`list_lost_fields` names it. Nothing is stored at the upstream, as the gateway keeps the conversation itself: so the
upstream sends its reasoning encrypted, and gets it back. No form of a request is an error here: the upstream judges it.
"""

from typing import Final

from gateway.contracts.quirks import NO_SAMPLING
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.quirks import Quirks
from gateway.model.apis.responses.conversation import build_conversation
from gateway.model.apis.responses.parts import list_lost_parts
from gateway.model.apis.responses.tools import build_tools, list_lost_tools
from gateway.upstream.endpoint import ModelAccess

#: The fields of the API's own that pass as they came. Others could replace what the gateway has checked, let the
#: provider run what it does not see, or keep at the provider what belongs to the gateway.
OWN_FIELDS: Final = frozenset(("reasoning", "truncation", "prompt_cache_retention", "prompt_cache_options"))
#: Fields that have the same name and meaning.
_SAME: Final = (
    *("temperature", "top_p", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("service_tier", "metadata"),
)
#: Fields of a chat completion that are translated here or in the parts of this package, or mean nothing to a model.
_TRANSLATED: Final = frozenset(
    (
        *("messages", "model", "responses_api", "messages_api", "stream", "stream_options", "n", "store"),
        *("max_tokens", "max_completion_tokens", "tools", "functions", "tool_choice", "function_call"),
        *("parallel_tool_calls", "reasoning_effort", "reasoning", "response_format", "verbosity", *_SAME),
    )
)
_SAMPLING: Final = ("temperature", "top_p")
#: The API takes no lower limit.
LEAST_TOKENS: Final = 16
#: From so many tokens for thoughts on, an effort is more than the one before it.
_MEDIUM_TOKENS: Final = 4096
_HIGH_TOKENS: Final = 16_384
_INCLUDED: Final = "reasoning.encrypted_content"


def build_responses_body(body: Json, quirks: Quirks, access: ModelAccess) -> Json:
    """Return the body of a streamed request, without what the model's quirks name."""
    instructions, items = build_conversation(body.get("messages") or ())
    if "no_reasoning" in quirks:
        items = [item for item in items if item["type"] != "reasoning"]
    built: Json = {"model": body.get("model"), "input": items, "store": False, "stream": True}
    if instructions:
        built["instructions"] = instructions
    if "no_reasoning" not in quirks:
        built["include"] = [_INCLUDED]
    built |= build_tools(body)
    built |= {name: body[name] for name in _SAME if body.get(name) is not None}
    if (limit := _get_limit(body)) is not None:
        built["max_output_tokens"] = max(limit, LEAST_TOKENS)
    built |= _get_own_fields(body)
    if reasoning := _build_reasoning(body, access):
        built["reasoning"] = reasoning
    if text := _build_text_config(body):
        built["text"] = text
    return _drop_refused(built, quirks)


def wants_reasoning(body: Json) -> bool:
    """Return whether a request states how the model reasons."""
    own = _get_object(body.get("responses_api"))
    return any((body.get("reasoning_effort"), body.get("reasoning"), own.get("reasoning"), _find_effort(body)))


def list_lost_fields(body: Json) -> list[str]:
    """Return the fields of a request that the model does not get, and what else of it is lost."""
    lost = [name for name, value in body.items() if name not in _TRANSLATED and value is not None]
    lost += [f"responses_api.{name}" for name in _get_object(body.get("responses_api")) if name not in OWN_FIELDS]
    lost += [f"messages_api.{name}" for name in _get_object(body.get("messages_api")) if name not in _OF_EFFORT]
    lost += [f"tools of the type {kind}" for kind in dict.fromkeys(list_lost_tools(body))]
    parts = dict.fromkeys(kind for one in body.get("messages") or () for kind in list_lost_parts(one.get("content")))
    return [*lost, *(f"parts of the type {kind}" for kind in parts)]


#: The fields of Messages that become the effort.
_OF_EFFORT: Final = frozenset(("thinking", "output_config"))


def _drop_refused(built: Json, quirks: Quirks) -> Json:
    """Return a body without the fields that the model's quirks name."""
    refused = [
        *(_SAMPLING if NO_SAMPLING in quirks else ()),
        *(("reasoning",) if not quirks.isdisjoint(("no_reasoning_effort", "no_reasoning")) else ()),
        *(("parallel_tool_calls",) if "no_parallel_tool_calls" in quirks else ()),
    ]
    return {name: value for name, value in built.items() if name not in refused} if refused else built


def _get_own_fields(body: Json) -> Json:
    own = _get_object(body.get("responses_api"))
    return {name: value for name, value in own.items() if name in OWN_FIELDS and name != "reasoning"}


def _build_reasoning(body: Json, access: ModelAccess) -> Json:
    """Return how the model reasons, and whether it shows that: of the client, else of the configuration."""
    asked = _get_object(body.get("reasoning"))  # as routers of models take it in chats
    effort = body.get("reasoning_effort") or asked.get("effort") or _find_effort(body)
    if asked.get("enabled") is False:
        effort = "none"
    own = _get_object(_get_object(body.get("responses_api")).get("reasoning"))
    wanted = {"effort": effort, "summary": asked.get("summary") or access.reasoning_summary, **own}
    return {name: value for name, value in wanted.items() if value is not None}


def _find_effort(body: Json) -> object:
    """Return the effort that a client of Messages wants; None: it wants none, or sends no such request."""
    own = _get_object(body.get("messages_api"))
    if (effort := _get_object(own.get("output_config")).get("effort")) is not None:
        return "xhigh" if effort == "max" else effort
    tokens = _get_object(own.get("thinking")).get("budget_tokens")
    if type(tokens) is not int:
        return None
    return "low" if tokens < _MEDIUM_TOKENS else "medium" if tokens < _HIGH_TOKENS else "high"


def _build_text_config(body: Json) -> Json:
    """Return the form of the answer."""
    wanted = _get_object(body.get("response_format"))
    config: Json = {}
    if isinstance(schema := wanted.get("json_schema"), dict):
        config["format"] = {"type": "json_schema", "name": "answer", **schema}
    elif isinstance(kind := wanted.get("type"), str):
        config["format"] = {"type": kind}
    if isinstance(verbosity := body.get("verbosity"), str):
        config["verbosity"] = verbosity
    return config


def _get_limit(body: Json) -> int | None:
    """Return the limit of the answer in tokens; None: the client sets none."""
    for name in ("max_completion_tokens", "max_tokens"):
        if type(limit := body.get(name)) is int:
            return limit
    return None


def _get_object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
