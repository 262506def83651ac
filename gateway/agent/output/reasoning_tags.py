"""The tags between which a model thinks. Text between them is neither a call nor a part of the model's answer."""

import re
from collections.abc import Iterable
from typing import Final

NAMES = ("think", "thinking", "thought", "reason", "reasoning")
_ENDS = tuple(f"</{name}>" for name in NAMES)
BEGIN = re.compile(f"<(?:{'|'.join(NAMES)})>", re.ASCII | re.IGNORECASE)
END = re.compile("|".join(_ENDS), re.ASCII | re.IGNORECASE)


def build_end_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern that ends a thought that `<name>` began."""
    return re.compile(f"</{name}>", re.ASCII | re.IGNORECASE)


def get_partial_end_length(text: str) -> int:
    """Return how many last characters of `text` may begin a closing tag of reasoning."""
    lengths = range(min(len("</reasoning"), len(text)), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:].lower()) for tag in _ENDS)), 0)


_OTHERS = "seed:think|thoughts|scratchpad|reflection|antThinking|inner_monologue"
#: Marks of thought that some servers pass on as text: of Mistral, Kimi, Cohere, Seed, OpenThinker, and the channels of
#: gpt-oss; and tags that prompts give to a thought. There is a group where one begins.
_MARKS = re.compile(
    r"(\[THINK\])|\[/THINK\]|(\u25c1think\u25b7)|\u25c1/think\u25b7|(<\|START_THINKING\|>)|<\|END_THINKING\|>"
    r"|(<\|begin_of_thought\|>)|<\|end_of_thought\|>"
    r"|(<\|channel\|>analysis)|<\|channel\|>(?:final|commentary)|<\|end\|>"
    rf"|(<(?:{_OTHERS}|{'|'.join(NAMES)})>)|</(?:{_OTHERS}|{'|'.join(NAMES)})>",
    re.ASCII | re.IGNORECASE,
)
_LONGEST_MARK = 32
_CHANNEL: Final = "<|channel|>"


class OpenThought:
    """The state of a text: it may end within a thought that such a mark began.

    `n_swallowed` is how many thoughts have ended whose beginning is not in the text. The usual tags (`NAMES`) open none
    here: the scanner reads them, except in code. `n_stray` is how many of them close none that one of them opened.
    """

    def __init__(self) -> None:
        self._tail = ""
        self._is_open = False
        self._has_channels = False
        self._is_tagged = False
        self.n_swallowed = self.n_stray = 0

    def feed(self, pieces: Iterable[str]) -> bool:
        """Add pieces of text. Return whether a thought is open behind them."""
        data = self._tail + "".join(pieces)
        at = 0
        for mark in _MARKS.finditer(data):
            begins, at, name = mark.lastindex is not None, mark.end(), mark[0].lower()
            if name.strip("</>") in NAMES:
                self.n_stray += not begins and not self._is_tagged
                self._is_tagged = begins
                continue
            self.n_swallowed += self._ends_prompt_thought(name, begins=begins)
            self._has_channels = self._has_channels or name.startswith(_CHANNEL)
            self._is_open = begins
        self._tail = data[max(at, len(data) - _LONGEST_MARK) :]
        return self._is_open

    def _ends_prompt_thought(self, mark: str, *, begins: bool) -> bool:
        """Return whether a mark ends a thought that began in the prompt.

        The first channel that is named does, as what stands before it is in none. `<|end|>` also ends other texts.
        """
        if mark.startswith(_CHANNEL):
            return not self._has_channels and not self._is_open
        return not begins and not self._is_open and mark != "<|end|>"
