"""The quirks of models by their names: what a server refuses of a request, or wants changed in it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from gateway.contracts.model_apis import ApiName

#: The names that `upstreams[].quirks` takes.
QuirkName: TypeAlias = Literal[
    "no_usage_in_stream",
    "no_stream",
    "max_completion_tokens",
    "max_tokens",
    "one_system_message",
    "no_system_role",
    "no_developer_role",
    "alternating_roles",
    "reasoning_back",
    "no_reasoning_effort",
    "no_reasoning",
    "thought_signatures",
    "short_call_ids",
    "tools_for_calls",
    "no_named_tool_choice",
    "no_parallel_tool_calls",
    "no_strict_tools",
    "plain_tool_names",
    "no_sampling",
    "other_thinking",
]
NO_SAMPLING: Final[QuirkName] = "no_sampling"
OTHER_THINKING: Final[QuirkName] = "other_thinking"
NO_SYSTEM_ROLE: Final[QuirkName] = "no_system_role"
QUIRKS: Final[tuple[QuirkName, ...]] = get_args(QuirkName)
#: The quirks that the models of an API can have.
QUIRKS_OF_API: Final[Mapping[ApiName, frozenset[QuirkName]]] = MappingProxyType(
    {
        "chat": frozenset(QUIRKS) - {NO_SAMPLING, OTHER_THINKING},
        "messages": frozenset((NO_SAMPLING, OTHER_THINKING, NO_SYSTEM_ROLE)),
        "responses": frozenset((NO_SAMPLING, "no_parallel_tool_calls", "no_reasoning", "no_reasoning_effort")),
    }
)
