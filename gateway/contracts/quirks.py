"""The quirks of models by their names: what a server refuses of a request, or wants changed in it."""

from typing import Final, Literal, TypeAlias, get_args

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
    "no_reasoning",
    "thought_signatures",
    "short_call_ids",
    "tools_for_calls",
    "no_named_tool_choice",
    "no_parallel_tool_calls",
    "no_strict_tools",
    "plain_tool_names",
]
QUIRKS: Final[tuple[QuirkName, ...]] = get_args(QuirkName)
