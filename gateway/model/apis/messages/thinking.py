"""The effort of thoughts: that of chats in the words of Messages, and what does not go with thoughts.

Newer models decide by themselves how much they think (`adaptive`), and older ones get a number of tokens for it. What
they take cannot be found out from their names, so an operator says it (`upstreams[].messages.thinking`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.upstream.endpoint import ModelAccess

_EFFORTS: Final[Mapping[object, str]] = MappingProxyType(
    {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
)
_BUDGETS: Final[Mapping[object, int]] = MappingProxyType(
    {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 32_768}
)
#: The API takes no fewer tokens.
LEAST_TOKENS: Final = 1024
#: The API takes smaller ones without thoughts alone.
_LEAST_TOP_P: Final = 0.95


def build_thinking(built: Json, body: Json, access: ModelAccess, *, is_limited: bool) -> None:
    """Set in place how much the model thinks, and take out what the API refuses beside thoughts.

    `is_limited`: the client sets the limit of the answer, which thoughts are a part of.
    """
    if "thinking" not in built:
        _translate_effort(built, body, access, is_limited=is_limited)
    kind = _get_kind(built)
    if kind == "enabled" and (_is_forced(built) or _lacks_thoughts(built["messages"])):
        del built["thinking"]
        kind = None
    if kind in ("enabled", "adaptive"):
        built.pop("temperature", None)
        built.pop("top_k", None)
        if built.get("top_p", 1) < _LEAST_TOP_P:
            del built["top_p"]


def wants_effort(body: Json) -> bool:
    """Return whether the effort of a request decides how much its model thinks."""
    own = body.get("messages_api")
    has_own = body.get("thinking") is not None or (isinstance(own, dict) and own.get("thinking") is not None)
    return not has_own and (body.get("reasoning_effort") or body.get("reasoning")) is not None


def _translate_effort(built: Json, body: Json, access: ModelAccess, *, is_limited: bool) -> None:
    """Set thinking by `reasoning_effort`, or by OpenRouter's `reasoning`."""
    reasoning = body.get("reasoning")
    reasoning = reasoning if isinstance(reasoning, dict) else {}
    effort = body.get("reasoning_effort") or reasoning.get("effort")
    budget = reasoning.get("max_tokens")
    if effort == "none" or reasoning.get("enabled") is False:
        built["thinking"] = {"type": "disabled"}
        return
    if effort not in _EFFORTS and reasoning.get("enabled") is True:
        effort = "medium"
    if access.thinking == "budget" or type(budget) is int:
        tokens = budget if type(budget) is int else _BUDGETS.get(effort)
        if tokens is not None:
            _set_budget(built, max(tokens, LEAST_TOKENS), is_limited=is_limited)
    elif effort in _EFFORTS and not _is_forced(built):
        # Newer models do not show their thoughts unless a request says so.
        built["thinking"] = {"type": "adaptive", "display": "omitted" if reasoning.get("exclude") else "summarized"}
        built["output_config"] = {"effort": _EFFORTS[effort], **built.get("output_config", {})}


def _set_budget(built: Json, tokens: int, *, is_limited: bool) -> None:
    """Set the tokens for thoughts: below the client's limit, else beside the limit of the upstream."""
    if not is_limited:
        built["max_tokens"] += tokens
    tokens = min(tokens, built["max_tokens"] - 1)
    if tokens >= LEAST_TOKENS:
        built["thinking"] = {"type": "enabled", "budget_tokens": tokens}


def _get_kind(built: Json) -> object:
    thinking = built.get("thinking")
    return thinking.get("type") if isinstance(thinking, dict) else None


def _is_forced(built: Json) -> bool:
    """Return whether the model has to call a tool: the API takes that without thoughts alone."""
    choice = built.get("tool_choice")
    return isinstance(choice, dict) and choice.get("type") in ("any", "tool")


def _lacks_thoughts(turns: list[Json]) -> bool:
    """Return whether the answer under way has calls without a thought in front, such as those of another model."""
    asked = len(turns) - (2 if turns[-1]["role"] == "system" else 1)
    if asked < 1 or turns[asked]["content"][0]["type"] != "tool_result":
        return False
    first = turns[asked - 1]["content"][0]
    return first["type"] not in ("thinking", "redacted_thinking")
