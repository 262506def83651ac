"""A screen: finds and replaces parts of a text as it streams, and holds back only what may still become one.

The result does not depend on how the text was cut into pieces.

Theory of operation. Text is folded character by character, so that a piece folds by itself. Rules read the folded
text; `_starts` leads back to the text as it came. A rule says where the text is settled: every match that begins before
that place is there as a whole, with the character behind it, and no further text changes it. The screen takes matches
that begin before the place where all rules are settled, always the one that begins first, and sends what lies before
them and around them. The rest waits. So at most `width` characters of a rule are held back, in folded text.

A few characters that were sent already stay in front of the rest: a rule looks one back.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from gateway.text.lookalikes import latin

Span: TypeAlias = tuple[int, int]
#: Returns the first match in a text that begins at an offset or behind it.
Finder: TypeAlias = Callable[[int], Span | None]

#: Characters in front of the rest that were sent.
_CONTEXT: Final = 8
_MARKS: Final = frozenset(("Mn", "Me", "Cf"))


class Rule(Protocol):
    """Something to look for in folded text. Rules that come first go first where two matches begin together."""

    @property
    def name(self) -> str: ...

    def finder(self, text: str) -> Finder:
        """Return the finder of matches in this text."""
        ...

    def settled(self, text: str) -> int:
        """Return the offset before which further text changes no match."""
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """The rule of a regular expression that matches at most `width` characters and looks at one behind them."""

    name: str
    regex: re.Pattern[str]
    width: int

    def finder(self, text: str) -> Finder:
        """Return the finder of this expression (`Rule.finder`)."""

        def find(at: int) -> Span | None:
            found = self.regex.search(text, at)
            return None if found is None else found.span()

        return find

    def settled(self, text: str) -> int:
        """Return the offset before which a match is whole (`Rule.settled`)."""
        return max(0, len(text) - self.width)


class Letters(dict[int, str]):
    """A table for `str.translate`: each character as readers take it, by its code.

    Full-width and other forms become the plain ones, digits of any script ASCII digits; marks and invisible
    characters disappear. `alike`: letters that look like Latin ones become these, case does not count, and white space
    is one blank.
    """

    def __init__(self, *, alike: bool) -> None:
        super().__init__()
        self._alike = alike

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKD", chr(code))
        kept = (c for c in plain if unicodedata.category(c) not in _MARKS)
        text = "".join(str(unicodedata.decimal(c, c)) for c in kept)
        if self._alike:
            text = "".join(" " if c.isspace() else c for c in latin(latin(text).casefold()))
        self[code] = text
        return text


PLAIN: Final = Letters(alike=False)
ALIKE: Final = Letters(alike=True)


class Screen:
    """One text under way. `act` gets the name of a rule and the text that it matched, and returns the replacement.

    If `act` returns None, the text ends before the match: `ended` is the name of the rule, and nothing follows.
    """

    def __init__(
        self, rules: Sequence[Rule], act: Callable[[str, str], str | None], letters: Mapping[int, str] = PLAIN
    ) -> None:
        self.ended: str | None = None
        self._rules = rules
        self._act = act
        self._letters = letters
        self._text = ""  # not sent yet
        self._folded = ""  # of it, with `_sent` characters of context in front
        self._starts: list[int] = []  # where each folded character begins in `_text`; of the context: 0
        self._sent = 0

    def feed(self, text: str) -> str:
        """Add a piece, and return what may be sent now."""
        if self.ended is not None or not text:
            return ""
        self._add(text)
        return self._take(min((rule.settled(self._folded) for rule in self._rules), default=len(self._folded)))

    def finish(self) -> str:
        """Return the rest."""
        return "" if self.ended is not None else self._take(len(self._folded))

    def _add(self, text: str) -> None:
        begin = len(self._text)
        self._text += text
        if text.isascii() and self._letters is PLAIN:
            self._folded += text
            self._starts += range(begin, begin + len(text))
            return
        pieces, before = [], self._folded[-1:]
        for place, char in enumerate(text, start=begin):
            folded = self._letters[ord(char)]
            if folded == before == " " and self._letters is ALIKE:
                continue
            if folded:
                pieces.append(folded)
                before = folded
                self._starts += [place] * len(folded)
        self._folded += "".join(pieces)

    def _take(self, until: int) -> str:
        """Return the text before the folded offset `until`, and all of the matches that begin before it."""
        folded, done, sent, at = self._folded, self._sent, [], 0
        finders = [(rule.name, rule.finder(folded)) for rule in self._rules]
        found = [find(done) for _, find in finders]
        while True:
            first = min(
                ((span, i) for i, span in enumerate(found) if span is not None and span[0] < until),
                key=lambda one: (one[0][0], one[1]),
                default=None,
            )
            if first is None:
                break
            (start, end), i = first
            name = finders[i][0]
            begin, close = self._place(start), self._place(end)
            told = self._act(name, self._text[begin:close])
            sent.append(self._text[at:begin])
            if told is None:
                self.ended, self._text, self._folded = name, "", ""
                return "".join(sent)
            sent.append(told)
            done, at = end, close
            found = [
                find(done) if span is not None and span[0] < done else span
                for (_, find), span in zip(finders, found, strict=True)
            ]
        done = max(done, until)
        rest = self._place(done)
        sent.append(self._text[at:rest])
        self._drop(done, rest)
        return "".join(sent)

    def _place(self, offset: int) -> int:
        """Return where a folded character begins in the text; what is invisible before it belongs to the one before."""
        return self._starts[offset] if offset < len(self._starts) else len(self._text)

    def _drop(self, done: int, rest: int) -> None:
        keep = max(0, done - _CONTEXT)
        self._text, self._folded, self._sent = self._text[rest:], self._folded[keep:], done - keep
        self._starts = [max(0, place - rest) for place in self._starts[keep:]]


def screened(
    text: str, rules: Sequence[Rule], act: Callable[[str, str], str | None], letters: Mapping[int, str] = PLAIN
) -> tuple[str, str | None]:
    """Return a whole text through a screen, and the rule that ended it or None."""
    screen = Screen(rules, act, letters)
    return screen.feed(text) + screen.finish(), screen.ended
