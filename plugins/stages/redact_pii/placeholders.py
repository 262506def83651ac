"""The placeholders of one request: the same data has the same one, such as `[EMAIL_1]`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.aio.cooperative import Work
from gateway.plugin.stream_redactor import Pattern

_PLACEHOLDER: Final = re.compile(r"\[[A-Z][A-Z0-9_]{0,39}_[0-9]{1,6}\]")
#: No placeholder is longer.
_WIDTH: Final = 50
_PIECE_CHARS: Final = 16_384


class Placeholders:
    """The data of one request and their placeholders. `taken` are texts of the client's that look like one."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = frozenset(taken)
        self._by_data: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}
        self.data: dict[str, str] = {}

    def assign_placeholder(self, rule: str, data: str) -> str:
        """Return the placeholder of a piece of data."""
        known = self._by_data.get((rule, data))
        while known is None:
            number = self._numbers[rule] = self._numbers.get(rule, 0) + 1
            name = f"[{rule.upper()}_{number}]"
            if name not in self._taken:
                known = self._by_data[rule, data] = name
                self.data[name] = data
        return known


def find_placeholders(text: str) -> Work[set[str]]:
    """Return the parts of a text that look like placeholders."""
    found: set[str] = set()
    for begin in range(0, len(text), _PIECE_CHARS):
        found.update(_PLACEHOLDER.findall(text, begin, begin + _PIECE_CHARS + _WIDTH))
        yield
    return found


@dataclass(frozen=True, slots=True)
class PlaceholderRule(Pattern):
    """The rule that finds placeholders in an answer (`gateway.plugin.stream_redactor.Rule`)."""

    name: str = "placeholder"
    regex: re.Pattern[str] = _PLACEHOLDER
    width: int = _WIDTH

    def count_stable_chars(self, text: str) -> int:
        """Return where the last bracket that is open stands, else the end."""
        begin = max(0, len(text) - self.width)
        opened = text.rfind("[", begin)
        return len(text) if opened < 0 or "]" in text[opened:] else opened
