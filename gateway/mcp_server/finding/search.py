"""The two tools that stand for a long list: one finds tools by words, one calls a tool that was found."""

from collections.abc import Sequence
from typing import Any, Final

from gateway.contracts.storage.store import Json
from gateway.mcp.server_text import count_sent_bytes
from gateway.mcp_server.finding.word_index import WordIndex, select_wanted_words
from gateway.mcp_server.listing import ToolOffer
from gateway.mcp_server.quotas.message_reader import SHORT

FIND, CALL = "find_tools", "call_tool"
FOUND: Final = 10
_FOUND_MOST: Final = 50
#: Of the definitions in one answer: they are JSON within JSON, where it is larger.
FOUND_BYTES: Final = 256 << 10
#: What is read of a query: characters, and different words of them.
QUERY_CHARS, QUERY_WORDS = 1000, 20

DEFINITIONS: Final[Sequence[Json]] = (
    {
        "name": FIND,
        "title": "Find tools",
        "description": "Finds tools by words of their names and descriptions. Call what it finds with call_tool.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": f"What the tool is to do, in a few words (at most {QUERY_WORDS}); empty: all tools.",
                },
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


def search_tools(offers: Sequence[ToolOffer], index: WordIndex, arguments: Json, *, version: str, plain: bool) -> Json:
    """Return the tools that fit a query best, with their definitions. `index` has these tools, and others.

    Of a long query, only the beginning counts, which the answer notes. Raises ValueError for other arguments.
    """
    query, limit = arguments.get("query"), arguments.get("limit", FOUND)
    if not isinstance(query, str) or type(limit) is not int or not 1 <= limit <= _FOUND_MOST:
        raise ValueError(f"query must be a text, and limit a number from 1 to {_FOUND_MOST}")
    words = select_wanted_words(query[:QUERY_CHARS])
    usable = {offer.inside for offer in offers}
    fitting = [one for one in index.find_offers(words[:QUERY_WORDS]) if one.inside in usable] if words else offers
    tools: list[Json] = []
    room_bytes = FOUND_BYTES
    for offer in fitting[:limit]:
        shown = offer.get_definition(version=version, plain=plain)
        tool = {key: shown[key] for key in ("name", "description", "inputSchema")}
        room_bytes -= count_sent_bytes(tool)
        if tools and room_bytes < 0:
            break
        tools.append(tool)
    answer: Json = {"tools": tools, "more": len(fitting) - len(tools)}
    if len(query) > QUERY_CHARS or len(words) > QUERY_WORDS:
        answer["note"] = (
            f"Only the first {QUERY_WORDS} words within the first {QUERY_CHARS} characters of the query count."
        )
    return answer


def parse_wanted_call(arguments: Json) -> tuple[str, Any]:
    """Return name and arguments of the tool to call. Raises ValueError."""
    name, inner = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(inner, dict):
        raise ValueError("name must be a text, and arguments an object")
    if len(name) > SHORT:
        raise ValueError(f"name is longer than {SHORT} characters")
    return name, inner
