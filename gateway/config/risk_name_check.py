"""The check of names under `risk.rules` and `risk.assessors`: a name that no tool has would protect nothing."""

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final, Literal

from gateway.config.messages import suggest_nearest
from gateway.config.problems import quote_word
from gateway.plugins import list_built_in_plugins

BUILT_IN: Final = frozenset(list_built_in_plugins("tools"))
_READ_RESULT: Final = "read_result"
_MOST_NAMES_SHOWN: Final = 12
#: Rules may be globs; assessors are found by the whole name.
_GLOB: Final = frozenset("*?[")


def describe_missing_tool(section: Literal["rules", "assessors"], name: str, tools: Collection[str] = ()) -> str | None:
    """Return the problem with a name. None: a tool has it, or may have it one day.

    `tools` are the plugins' tools. Tools of services (`service.tool`) come and go, and a rule may be there first.
    """
    known = {*BUILT_IN, *tools}
    if name in known or name == _READ_RESULT or "." in name or (section == "rules" and _GLOB & set(name)):
        return None
    if _GLOB & set(name):
        return f"{quote_word(name)} is no name of a tool: an assessor judges one tool, by its whole name"
    names = sorted(known)
    listed = ", ".join(names[:_MOST_NAMES_SHOWN]) + (", ..." if len(names) > _MOST_NAMES_SHOWN else "")
    return f"there is no tool {quote_word(name)}{suggest_nearest(name, names) or f'; there are: {listed}'}"


def describe_idle_rule(name: str, tools: Collection[str], services: Collection[str]) -> str | None:
    """Return a warning about a glob that fits no tool today. None: one fits, or one of a service may.

    `tools` are the enabled tools, `services` the names of configured MCP servers.
    """
    if not _GLOB & set(name) or any(fnmatchcase(tool, name) for tool in {*BUILT_IN, *tools, _READ_RESULT}):
        return None
    literal = name[: min(name.index(mark) for mark in _GLOB & set(name))]
    if any(f"{service}.".startswith(literal) or literal.startswith(f"{service}.") for service in services):
        return None
    return (
        f"no tool has a name like {quote_word(name)}: this rule holds for none now; "
        "tools of MCP servers are SERVER.TOOL"
    )
