"""The two tools that stand for a long list: one finds tools by words, one calls a tool that was found."""

import re
from collections.abc import Sequence
from typing import Any, Final

from gateway.contracts.store import Json
from gateway.mcp_server.listing import Offer

FIND, CALL = "find_tools", "call_tool"
FOUND: Final = 10
_FOUND_MOST: Final = 50
_WORD: Final = re.compile(r"[^\W_]+")
#: A word in a tool's name counts for more than one in its description.
_IN_NAME: Final = 3

DEFINITIONS: Final[Sequence[Json]] = (
    {
        "name": FIND,
        "title": "Find tools",
        "description": "Finds tools by words of their names and descriptions. Call what it finds with call_tool.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "A few words; empty: the first tools of all."},
                "limit": {"type": "integer", "minimum": 1, "maximum": _FOUND_MOST, "description": "How many at most."},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": CALL,
        "title": "Call a tool",
        "description": "Calls a tool that find_tools has found.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Name of the tool, as find_tools returned it."},
                "arguments": {"type": "object", "description": "Arguments that fit the tool's inputSchema."},
            },
            "required": ["name"],
        },
    },
)


def found(offers: Sequence[Offer], arguments: Json, *, version: str, plain: bool) -> Json:
    """Return the tools that fit a query best, with their definitions. Raises ValueError for other arguments."""
    query, limit = arguments.get("query"), arguments.get("limit", FOUND)
    if not isinstance(query, str) or type(limit) is not int or not 1 <= limit <= _FOUND_MOST:
        raise ValueError(f"query must be a text, and limit a number from 1 to {_FOUND_MOST}")
    words = {word.casefold() for word in _WORD.findall(query)}
    ranked = sorted(
        ((-_fit(offer, words), place, offer) for place, offer in enumerate(offers)), key=lambda one: one[:2]
    )
    fitting = [offer for fit, _, offer in ranked if fit or not words]
    shown = [offer.shown(version=version, plain=plain) for offer in fitting[:limit]]
    kept = ("name", "description", "inputSchema")
    return {"tools": [{key: one[key] for key in kept} for one in shown], "more": max(len(fitting) - limit, 0)}


def wanted_call(arguments: Json) -> tuple[str, Any]:
    """Return name and arguments of the tool to call. Raises ValueError."""
    name, inner = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(inner, dict):
        raise ValueError("name must be a text, and arguments an object")
    return name, inner


def _fit(offer: Offer, words: set[str]) -> int:
    """Return how well a tool fits: words that begin with one of the query's count as well."""
    definition = next(iter(offer.definitions.values()))
    in_name = {word.casefold() for word in _WORD.findall(f"{offer.inside} {definition.get('title', '')}")}
    described = {word.casefold() for word in _WORD.findall(definition["description"])}
    return sum(_IN_NAME * _has(in_name, word) + _has(described, word) for word in words)


def _has(among: set[str], word: str) -> bool:
    return any(one.startswith(word) for one in among)
