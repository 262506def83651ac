"""A screen: finds and replaces parts of a text as it streams, and holds back only what may still become one.

The result does not depend on how the text was cut into pieces.

Theory of operation. Text is folded character by character, so that a piece folds by itself. Rules read the folded text;
`_starts` leads back to the text as it came. A rule reports where the text is settled: every match that begins before
that place is there as a whole, with the character behind it, and no further text changes it. The screen takes matches
that begin before the place where all rules are settled, always the one that begins first, and sends what lies before
them and around them. The rest waits. So at most `width` characters of a rule are held back, in folded text.

A few characters that were sent already stay in front of the rest: a rule looks one back.

A long text goes through in pieces, and others on the event loop go on between them (`screen_text`).
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Final, Protocol, TypeAlias

from gateway.aio.cooperative import Work
from gateway.text.confusables import convert_to_latin

Span: TypeAlias = tuple[int, int]
#: Returns the first match in a text that begins at an offset or behind it.
Finder: TypeAlias = Callable[[int], Span | None]

#: So many characters go through a screen at a time: a quarter of a millisecond of work, two at worst.
PIECE_CHARS: Final = 2048
#: Others than ASCII are up to eight in folded text, and each is looked up.
_WIDE_CHARS: Final = 1024
#: A piece that takes longer, in seconds of CPU, is followed by one of half its length, down to so many characters.
_LONG_S: Final = 0.004
_FEWEST_CHARS: Final = 512
_LONGEST_FOLDED: Final = 8
#: Characters in front of the rest that were sent.
_CONTEXT: Final = 8
_MARKS: Final = frozenset(("Mn", "Me", "Cf"))
#: Letters and symbols that show nothing: Hangul fillers, a Braille cell without dots.
_BLANK: Final = frozenset("\u115f\u1160\u2800")
_MINUS: Final = "\u2212"
#: Characters that a table remembers: the characters of any one language, and not all that untrusted text can contain.
_KEPT_LETTERS: Final = 30_000


class ScreenRule(Protocol):
    """Something to look for in folded text. Rules that come first go first where two matches begin together."""

    @property
    def name(self) -> str: ...

    def build_finder(self, text: str, starts: Sequence[int]) -> Finder:
        """Return the finder of matches in this text. `starts` has the place of each character before it was folded."""
        ...

    def count_stable_chars(self, text: str) -> int:
        """Return the offset before which further text changes no match."""
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """The rule of a regular expression that matches at most `width` characters and looks at one behind them."""

    name: str
    regex: re.Pattern[str]
    width: int

    def build_finder(self, text: str, starts: Sequence[int]) -> Finder:
        """Return the finder of this expression (`ScreenRule.build_finder`)."""
        del starts

        def find(at: int) -> Span | None:
            found = self.regex.search(text, at)
            return None if found is None else found.span()

        return find

    def count_stable_chars(self, text: str) -> int:
        """Return the offset before which a match is whole (`Rule.settled`)."""
        return max(0, len(text) - self.width)


class Letters(dict[int, str]):
    """A table for `str.translate`: each character as readers take it, by its code.

    Full-width and other forms become the plain ones, digits of any script ASCII digits, and dashes `-`; marks and
    invisible characters disappear. A ligature of more than eight letters stays. `alike`: letters that look like Latin
    ones become these, case does not count, and white space is one blank.
    """

    def __init__(self, *, alike: bool) -> None:
        super().__init__()
        self._alike = alike

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKD", chr(code))
        if len(plain) > _LONGEST_FOLDED:
            plain = chr(code)
        text = "".join(map(_normalize_character, plain))
        if self._alike:
            text = "".join(" " if c.isspace() else c for c in convert_to_latin(convert_to_latin(text).casefold()))
        if len(self) < _KEPT_LETTERS:
            self[code] = text
        return text


def _normalize_character(char: str) -> str:
    kind = unicodedata.category(char)
    if kind in _MARKS or char in _BLANK:
        return ""
    return "-" if kind == "Pd" or char == _MINUS else str(unicodedata.decimal(char, char))


PLAIN: Final = Letters(alike=False)
ALIKE: Final = Letters(alike=True)


class Screen:
    """One text under way. `act` gets the name of a rule and the text that it matched, and returns the replacement.

    If `act` returns None, the text ends before the match: `ended` is the name of the rule, and nothing follows.
    """

    def __init__(
        self, rules: Sequence[ScreenRule], act: Callable[[str, str], str | None], letters: Mapping[int, str] = PLAIN
    ) -> None:
        self.ended: str | None = None
        self._rules = rules
        self._settles = {rule.count_stable_chars for rule in rules}
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
        return self._take_text(min((settled(self._folded) for settled in self._settles), default=len(self._folded)))

    def finish(self) -> str:
        """Return the rest."""
        return "" if self.ended is not None else self._take_text(len(self._folded))

    def screen_whole(self, text: str) -> str:
        """Return what is sent of a short text that comes as a whole: as `feed` and `finish` do, in one go."""
        if text:
            self._add(text)
        return self.finish()

    def _add(self, text: str) -> None:
        begin = len(self._text)
        self._text += text
        before = self._folded[-1:]
        if text.isascii():
            plain = text if self._letters is PLAIN else text.translate(self._letters)
            if self._letters is not ALIKE or "  " not in before + plain:
                self._folded += plain
                self._starts += range(begin, begin + len(text))
                return
        pieces = []
        for place, char in enumerate(text, start=begin):
            folded = self._letters[ord(char)]
            if folded == before == " " and self._letters is ALIKE:
                continue
            if folded:
                pieces.append(folded)
                before = folded
                self._starts += [place] * len(folded)
        self._folded += "".join(pieces)

    def _take_text(self, until: int) -> str:
        """Return the text before the folded offset `until`, and all of the matches that begin before it."""
        folded, done, sent, at = self._folded, self._sent, [], 0
        finders = [(rule.name, rule.build_finder(folded, self._starts)) for rule in self._rules]
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
            begin, close = self._find_place(start), self._find_place(end)
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
        rest = self._find_place(done)
        sent.append(self._text[at:rest])
        self._drop_prefix(done, rest)
        return "".join(sent)

    def _find_place(self, offset: int) -> int:
        """Return where a folded character begins in the text; what is invisible before it belongs to the one before."""
        return self._starts[offset] if offset < len(self._starts) else len(self._text)

    def _drop_prefix(self, done: int, rest: int) -> None:
        keep = max(0, done - _CONTEXT)
        self._text, self._folded, self._sent = self._text[rest:], self._folded[keep:], done - keep
        self._starts = [max(0, place - rest) for place in self._starts[keep:]]


class TextFilter(Protocol):
    """The filter of one text under way, such as a screen. Once it has `ended` nothing may follow."""

    @property
    def ended(self) -> str | None: ...

    def feed(self, text: str) -> str:
        """Add a piece, and return what may be sent now."""
        ...

    def finish(self) -> str:
        """Return the rest."""
        ...


def feed_in_pieces(one: TextFilter, text: str) -> Work[str]:
    """Return what a filter sends of a text, which goes through in pieces. They become shorter if they take long."""
    told, at, most = [], 0, PIECE_CHARS
    while at < len(text) and one.ended is None:
        piece = text[at : at + most]
        if not piece.isascii():
            piece = piece[:_WIDE_CHARS]
        began_s = thread_time()
        told.append(one.feed(piece))
        if thread_time() - began_s > _LONG_S:
            most = max(most // 2, _FEWEST_CHARS)
        at += len(piece)
        yield
    return "".join(told)


def screen_text(
    text: str, rules: Sequence[ScreenRule], act: Callable[[str, str], str | None], letters: Mapping[int, str] = PLAIN
) -> Work[tuple[str, str | None]]:
    """Return a whole text through a screen, and the rule that ended it or None."""
    screen = Screen(rules, act, letters)
    if len(text) <= PIECE_CHARS:
        yield
        return screen.screen_whole(text), screen.ended
    told = yield from feed_in_pieces(screen, text)
    return told + screen.finish(), screen.ended
