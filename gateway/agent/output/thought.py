"""The tags between which a model thinks. Text between them is no call and no part of the model's answer."""

import re
from collections.abc import Iterable

NAMES = ("think", "thinking", "thought", "reason", "reasoning")
_ENDS = tuple(f"</{name}>" for name in NAMES)
BEGIN = re.compile(f"<(?:{'|'.join(NAMES)})>", re.ASCII | re.IGNORECASE)
END = re.compile("|".join(_ENDS), re.ASCII | re.IGNORECASE)


def end_of(name: str) -> re.Pattern[str]:
    """Return the pattern that ends a thought that `<name>` began."""
    return re.compile(f"</{name}>", re.ASCII | re.IGNORECASE)


def beginning_of_end(text: str) -> int:
    """Return the length of the longest end of `text` that may begin the end of a thought."""
    lengths = range(min(len("</reasoning"), len(text)), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:].lower()) for tag in _ENDS)), 0)


_OTHERS = "seed:think|thoughts|scratchpad|reflection|antThinking|inner_monologue"
#: Marks of thought that some servers pass on as text: of Mistral, Kimi, Cohere, Seed, and the channels of gpt-oss; and
#: tags that prompts give to a thought. There is a group where one begins.
_MARKS = re.compile(
    r"(\[THINK\])|\[/THINK\]|(\u25c1think\u25b7)|\u25c1/think\u25b7|(<\|START_THINKING\|>)|<\|END_THINKING\|>"
    rf"|(<\|channel\|>analysis)|<\|channel\|>(?:final|commentary)|<\|end\|>|(<(?:{_OTHERS})>)|</(?:{_OTHERS})>",
    re.ASCII | re.IGNORECASE,
)
_LONGEST_MARK = 32


class OpenThought:
    """The state of a text: it may end within a thought that such a mark began."""

    def __init__(self) -> None:
        self._tail = ""
        self._is_open = False

    def feed(self, pieces: Iterable[str]) -> bool:
        """Add pieces of text. Return whether a thought is open behind them."""
        data = self._tail + "".join(pieces)
        for mark in _MARKS.finditer(data):
            self._is_open = mark.lastindex is not None
        self._tail = data[-_LONGEST_MARK:]
        return self._is_open
