"""The two tools that stand for a long list: one finds tools by words, one calls a tool that was found."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from gateway.contracts.store import Json
from gateway.mcp.words import sent_bytes
from gateway.mcp_server.bounds.messages import SHORT
from gateway.mcp_server.listing import Offer

FIND, CALL = "find_tools", "call_tool"
FOUND: Final = 10
_FOUND_MOST: Final = 50
#: Of the definitions in one answer: they are JSON within JSON, where it is larger.
FOUND_BYTES: Final = 256 << 10
#: What is read of a query: characters, and different words of them.
QUERY_CHARS, QUERY_WORDS = 1000, 20
_WORD: Final = re.compile(r"[^\W_]+")
#: The places of a word, as bits, and what a tool gains by them: one in its name counts for more.
_DESCRIBED, _NAMED = 1, 2
_GAINS: Final = (0, 1, 3, 4)

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
                    "description": f"A few words (at most {QUERY_WORDS}); empty: the first tools of all.",
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


class WordIndex:
    """The words of some tools, in order, and the tools that have each: in their names, and in their descriptions."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self.offers = offers
        places: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for offer in offers:
            definition = next(iter(offer.definitions.values()))
            for place, text in (
                (_NAMED, f"{offer.inside} {definition.get('title', '')}"),
                (_DESCRIBED, definition["description"]),
            ):
                for word in words_of(text):
                    places[word][offer.inside] += place
        self._words = sorted(places)
        self._places = places

    def fits(self, words: Sequence[str]) -> Counter[str]:
        """Return how well tools fit, by inside name: words that begin with one of these count as well."""
        fits: Counter[str] = Counter()
        for word in words:
            for name, places in self._beginning(word).items():
                fits[name] += _GAINS[places]
        return fits

    def _beginning(self, beginning: str) -> dict[str, int]:
        """Return the tools that have words with this beginning, and the places of these."""
        found: dict[str, int] = {}
        for at in range(bisect_left(self._words, beginning), len(self._words)):
            word = self._words[at]
            if not word.startswith(beginning):
                break
            for name, places in self._places[word].items():
                found[name] = found.get(name, 0) | places
        return found


def words_of(text: str) -> list[str]:
    """Return the different words of a text, in their order."""
    return list(dict.fromkeys(word.casefold() for word in _WORD.findall(text)))


def found(offers: Sequence[Offer], index: WordIndex, arguments: Json, *, version: str, plain: bool) -> Json:
    """Return those of some tools that fit a query best, with their definitions. `index` has these tools, and others.

    Of a long query, only the beginning counts, which the answer notes. Raises ValueError for other arguments.
    """
    query, limit = arguments.get("query"), arguments.get("limit", FOUND)
    if not isinstance(query, str) or type(limit) is not int or not 1 <= limit <= _FOUND_MOST:
        raise ValueError(f"query must be a text, and limit a number from 1 to {_FOUND_MOST}")
    words = words_of(query[:QUERY_CHARS])
    fits = index.fits(words[:QUERY_WORDS])
    fitting = sorted((offer for offer in offers if fits[offer.inside] or not words), key=lambda one: -fits[one.inside])
    tools: list[Json] = []
    room_bytes = FOUND_BYTES
    for offer in fitting[:limit]:
        shown = offer.shown(version=version, plain=plain)
        tool = {key: shown[key] for key in ("name", "description", "inputSchema")}
        room_bytes -= sent_bytes(tool)
        if tools and room_bytes < 0:
            break
        tools.append(tool)
    answer: Json = {"tools": tools, "more": len(fitting) - len(tools)}
    if len(query) > QUERY_CHARS or len(words) > QUERY_WORDS:
        answer["note"] = (
            f"Only the first {QUERY_WORDS} words within the first {QUERY_CHARS} characters of the query count."
        )
    return answer


def wanted_call(arguments: Json) -> tuple[str, Any]:
    """Return name and arguments of the tool to call. Raises ValueError."""
    name, inner = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(inner, dict):
        raise ValueError("name must be a text, and arguments an object")
    if len(name) > SHORT:
        raise ValueError(f"name is longer than {SHORT} characters")
    return name, inner
