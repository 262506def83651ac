"""The choice of tools for a prompt of limited size: ranked by the user's question, shortened first, left out last.

Rule 1: the chosen tools stand in the order in which they were offered. A prompt then changes little between requests.
Rule 2: nothing is left out before all descriptions are short.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .tool_prompt import ToolFacts, count_utf8_bytes, group_by_category, write_category_tags, write_tool_element

#: Characters of a question that are looked at.
QUESTION_CHARS = 20_000
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Scripts without spaces between words: Han, kana, hangul.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
# From so many tools on, a word that more than half of them have is ignored.
_TELLING = 4


@dataclass(frozen=True, slots=True)
class ToolText:
    """One tool, ready for a prompt: its element whole and short, and the words by which it is found."""

    name: str
    category: str
    priority: int
    words: frozenset[str]
    whole: str
    short: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The text of the tools that fit, and the names of tools that were shortened or left out."""

    text: str
    shortened: tuple[str, ...]
    omitted: tuple[str, ...]


def extract_words(text: str) -> frozenset[str]:
    """Return the words by which texts are compared, without case and plural.

    Unspaced scripts give pairs of characters.
    """
    plain = unicodedata.normalize("NFKC", _HUMP.sub(" ", text[:QUESTION_CHARS])).casefold()
    found: set[str] = set()
    for run in _UNSPACED.findall(plain):
        found.update(run[i : i + 2] for i in range(max(1, len(run) - 1)))
    for word in _WORD.findall(_UNSPACED.sub(" ", plain)):
        found.add(word[:-1] if len(word) > 3 and word.endswith("s") else word)
    return frozenset(found)


def write_tool_texts(tools: Sequence[ToolFacts]) -> tuple[ToolText, ...]:
    """Return both forms of each tool."""
    words = [
        extract_words(" ".join((tool.name, tool.description, tool.category, *_list_parameters(tool)))) for tool in tools
    ]
    counted = Counter(word for found in words for word in found)
    common = {word for word, count in counted.items() if len(tools) >= _TELLING and count > len(tools) / 2}
    return tuple(
        ToolText(
            name=tool.name,
            category=tool.category,
            priority=tool.priority,
            words=found - common,
            whole=write_tool_element(tool),
            short=write_tool_element(tool, short=True),
        )
        for tool, found in zip(tools, words, strict=True)
    )


def write_whole_text(tools: Sequence[ToolText]) -> str:
    """Return the text of all tools, nothing shortened."""
    return group_by_category([(tool.category, tool.whole) for tool in tools])


def select(tools: Sequence[ToolText], *, question: str, room_bytes: int) -> Selection:
    """Choose the tools that fit into `room_bytes`. The rank is by priority, then by words shared with `question`.

    Equal tools rank as offered.
    """
    wanted = extract_words(question)
    ranked = sorted(range(len(tools)), key=lambda i: (-tools[i].priority, -len(wanted & tools[i].words), i))
    sizes = [count_utf8_bytes(tool.whole) + 1 for tool in tools]
    members = Counter(tool.category for tool in tools)
    wrappers = {
        category: sum(count_utf8_bytes(tag) + 1 for tag in write_category_tags(category)) for category in members
    }
    total = sum(sizes) + sum(wrappers.values())
    short: set[int] = set()
    for i in reversed(ranked):
        if total <= room_bytes:
            break
        saved = sizes[i] - count_utf8_bytes(tools[i].short) - 1
        if saved > 0:
            short.add(i)
            sizes[i] -= saved
            total -= saved
    omitted: set[int] = set()
    for i in reversed(ranked):
        if total <= room_bytes:
            break
        omitted.add(i)
        category = tools[i].category
        members[category] -= 1
        total -= sizes[i] + (0 if members[category] else wrappers[category])
    kept = [i for i in range(len(tools)) if i not in omitted]
    return Selection(
        text=group_by_category([(tools[i].category, tools[i].short if i in short else tools[i].whole) for i in kept]),
        shortened=tuple(tools[i].name for i in kept if i in short),
        omitted=tuple(tools[i].name for i in sorted(omitted)),
    )


def _list_parameters(tool: ToolFacts) -> list[str]:
    properties = tool.parameters.get("properties")
    return [name for name in properties if isinstance(name, str)] if isinstance(properties, dict) else []
