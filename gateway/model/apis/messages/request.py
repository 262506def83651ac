"""The body of a request to Messages, made of that of a chat completion.

What has an equal is translated, what is the API's own passes (`messages_api`), and what it does not know is left out:
`list_lost_fields` names it. No form of a request is an error here: the upstream judges it.
"""

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.merged_messages import SYSTEM_ROLES
from gateway.model.apis.messages.cache_marks import set_marks
from gateway.model.apis.messages.conversation import build_conversation
from gateway.model.apis.messages.parts import list_lost_parts
from gateway.model.apis.messages.thinking import build_thinking
from gateway.model.apis.messages.tools import build_tools, list_lost_tools
from gateway.upstream.endpoint import ModelAccess

#: The fields of the API's own that pass as they came. Others could replace what the gateway has checked, or let the
#: provider run tools that it does not see.
OWN_FIELDS: Final = frozenset(
    (
        *("cache_control", "container", "context_management", "diagnostics", "inference_geo", "metadata"),
        *("output_config", "service_tier", "speed", "thinking", "top_k", "user_profile_id"),
    )
)
#: Fields of a chat completion that are translated here or in the parts of this package, or mean nothing to a model.
_TRANSLATED: Final = frozenset(
    (
        *("messages", "model", "messages_api", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens"),
        *("tools", "functions", "tool_choice", "function_call", "parallel_tool_calls", "stop", "temperature", "top_p"),
        *("top_k", "user", "safety_identifier", "service_tier", "reasoning_effort", "reasoning", "thinking", "store"),
        *("response_format", "cache_control"),
    )
)
_SAMPLING: Final = frozenset(("temperature", "top_p", "top_k"))
_TIERS: Final[Mapping[object, str]] = MappingProxyType({"auto": "auto", "default": "standard_only"})
_USER_ID: Final = re.compile(r"[^@\s]{1,256}")


def build_messages_body(body: Json, access: ModelAccess, *, system_turns: bool = True) -> Json:
    """Return the body of a request. `system_turns`: the model takes instructions in the middle of a chat."""
    given = body.get("messages_api")
    own = {name: value for name, value in given.items() if name in OWN_FIELDS} if isinstance(given, dict) else {}
    system, turns = build_conversation(body.get("messages") or (), system_turns=system_turns)
    limit = _get_limit(body)
    built: Json = {"model": body.get("model"), "max_tokens": limit or access.max_tokens, "messages": turns}
    if system:
        built["system"] = system
    built |= build_tools(body)
    built["stream"] = True
    _add_settings(built, body)
    for name in ("thinking", "top_k", "cache_control"):
        if body.get(name) is not None:  # as routers of models take them in chats
            built[name] = body[name]
    built |= {name: value for name, value in own.items() if name != "output_config"}
    if config := {**_build_output_config(body), **_get_object(own.get("output_config"))}:
        built["output_config"] = config
    build_thinking(built, body, access, is_limited=limit is not None)
    set_marks(built, caches=access.prompt_caching)
    return built


def drop_sampling(body: Json) -> Json:
    """Return a chat request without the fields that choose among words; itself if it has none."""
    own = body.get("messages_api")
    if isinstance(own, dict) and not _SAMPLING.isdisjoint(own):
        body = {**body, "messages_api": {name: value for name, value in own.items() if name not in _SAMPLING}}
    if _SAMPLING.isdisjoint(body):
        return body
    return {name: value for name, value in body.items() if name not in _SAMPLING}


def has_later_instructions(body: Json) -> bool:
    """Return whether a system message stands behind a message of another role."""
    are_system = [message.get("role") in SYSTEM_ROLES for message in body.get("messages") or ()]
    return False in are_system and any(are_system[are_system.index(False) :])


def list_lost_fields(body: Json) -> list[str]:
    """Return the fields of a request that the model does not get, and what else of it is lost."""
    lost = [name for name, value in body.items() if name not in _TRANSLATED and value is not None]
    given = body.get("messages_api")
    lost += [f"messages_api.{name}" for name in given if name not in OWN_FIELDS] if isinstance(given, dict) else []
    wanted = _get_object(body.get("response_format")).get("type")
    lost += ["response_format"] if wanted not in (None, "text", "json_schema") else []
    lost += [f"tools of the type {kind}" for kind in dict.fromkeys(list_lost_tools(body))]
    parts = dict.fromkeys(kind for one in body.get("messages") or () for kind in list_lost_parts(one.get("content")))
    return [*lost, *(f"parts of the type {kind}" for kind in parts)]


def _add_settings(built: Json, body: Json) -> None:
    """Add the settings that both APIs have."""
    if isinstance(stop := body.get("stop"), str | list):
        texts = [text for text in ([stop] if isinstance(stop, str) else stop) if isinstance(text, str) and text.strip()]
        if texts:
            built["stop_sequences"] = texts
    temperature, top_p = body.get("temperature"), body.get("top_p")
    if isinstance(temperature, int | float):
        built["temperature"] = min(temperature, 1)  # chats go up to 2
    elif isinstance(top_p, int | float):  # newer models refuse both
        built["top_p"] = top_p
    user = body.get("user") or body.get("safety_identifier")
    if isinstance(user, str) and user:
        # An address of a person is refused, as is a long name.
        built["metadata"] = {
            "user_id": user if _USER_ID.fullmatch(user) else hashlib.sha256(user.encode(errors="replace")).hexdigest()
        }
    if isinstance(tier := body.get("service_tier"), str) and tier in _TIERS:
        built["service_tier"] = _TIERS[tier]


def _build_output_config(body: Json) -> Json:
    """Return the format of the answer, if the request has a schema for it."""
    wanted = _get_object(body.get("response_format"))
    schema = _get_object(wanted.get("json_schema")).get("schema")
    if wanted.get("type") != "json_schema" or not isinstance(schema, dict):
        return {}
    return {"format": {"type": "json_schema", "schema": schema}}


def _get_limit(body: Json) -> int | None:
    """Return the limit of the answer in tokens; None: the client sets none."""
    for name in ("max_completion_tokens", "max_tokens"):
        if type(limit := body.get(name)) is int:
            return limit
    return None


def _get_object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
