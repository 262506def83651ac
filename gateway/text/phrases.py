"""The text of the last user message, folded for matching, and the phrases found in it: linear time, no I/O.

Positions in folded text map back to the text as it was written (`FoldedText.find_original_span`).
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import ahocorasick

#: A message is looked at this far: matching runs on the event loop, and a user's request stands in front.
TEXT_LIMIT = 20_000
#: Longer phrases are ignored: no name or keyword of a person is that long.
PHRASE_LIMIT = 256

#: Characters that fold one by one: ASCII, kana, Han, Hangul syllables, their punctuation and the full-width forms.
_PLAIN = (
    "\x00-\x7f\u2018-\u201d\u3000-\u3003\u3008-\u3011\u3041-\u3096\u30a1-\u30fa"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff5e"
)
#: A run of them, or up to 32 others with the character in front, which a combining mark may belong to. 32: sorting the
#: marks of one letter is quadratic in their number.
_RUN = re.compile(f"(?P<plain>[{_PLAIN}]+)(?![^{_PLAIN}])|[{_PLAIN}]?[^{_PLAIN}]{{1,32}}")
_NARROW = {0x3000: " "} | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_TYPED_APOSTROPHE = re.compile("(?<=[a-z])’(?=[a-z])")


@dataclass(slots=True)
class FoldedText:
    """Text under NFKC and casefold, without invisible characters; character i comes from `starts[i]:ends[i]`.

    It is not changed after it is made.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def find_original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the folded characters `start:end` (not empty) stand in the original."""
        return self.starts[start], self.ends[end - 1]


def fold(text: str) -> FoldedText:
    """Return `text` folded for matching, at most TEXT_LIMIT characters before and after folding."""
    text = text[:TEXT_LIMIT]
    if text.isascii():
        return FoldedText(text.lower(), range(len(text)), range(1, len(text) + 1))
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for run in _RUN.finditer(text):
        if len(starts) >= TEXT_LIMIT:
            break
        if run["plain"]:
            pieces.append(run[0].translate(_NARROW).lower())
            starts += range(*run.span())
            ends += range(run.start() + 1, run.end() + 1)
            continue
        for start, end, piece in _fold_letters(run[0], run.start()):
            pieces.append(piece)
            starts += [start] * len(piece)
            ends += [end] * len(piece)
    folded = _TYPED_APOSTROPHE.sub("'", "".join(pieces))[:TEXT_LIMIT]
    return FoldedText(folded, starts, ends)


def _fold_letters(run: str, offset: int) -> Iterator[tuple[int, int, str]]:
    """Yield the letters of a run, each with its marks: where it stands, and how it folds."""
    begin = 0
    for i in range(1, len(run) + 1):
        if i == len(run) or not _may_join_previous(run[i]):
            letter = "".join(char for char in run[begin:i] if not _is_invisible(char))
            yield offset + begin, offset + i, unicodedata.normalize("NFKC", _normalize_nfkc(letter).casefold())
            begin = i


def _normalize_nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _may_join_previous(char: str) -> bool:
    """Return whether `char` may become one with the character before it: a mark, or a vowel or final of Hangul."""
    first = _normalize_nfkc(char)[:1]
    return unicodedata.combining(first) != 0 or "\u1160" <= first <= "\u11ff"


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f"


def mentions(text: str, words: Iterable[str]) -> bool:
    """Return whether any of `words` stands in `text`, even within a longer one: most messages need no closer look."""
    return any(map(text.__contains__, words))


def is_word(char: str, joins: str = "_") -> bool:
    """Return whether `char` makes a word longer. Only of scripts that put spaces between words: in CJK, none does.

    So do the characters `joins`.
    """
    return char in joins or (char < "\u0590" and char.isalnum())


def is_whole(text: str, start: int, end: int, joins: str = "_") -> bool:
    """Return whether `text[start:end]` is not a part of a longer word."""
    if start > 0 and is_word(text[start], joins) and is_word(text[start - 1], joins):
        return False
    return not (end < len(text) and is_word(text[end - 1], joins) and is_word(text[end], joins))


@dataclass(frozen=True, slots=True)
class Hit:
    """One phrase found: `phrase` is its folded text."""

    start: int
    end: int
    phrase: str


def fold_phrase(phrase: str) -> str:
    """Return `phrase` in the form in which it is matched; an empty one never matches."""
    folded = fold(phrase).text.strip()
    return folded if len(folded) <= PHRASE_LIMIT else ""


class Phrases:
    """Finds any number of phrases in one pass. Each is literal text; empty ones and giants are ignored.

    `folded` folds a phrase as the texts are folded: "" for one that is never found. `whole`: only whole words count.
    """

    def __init__(
        self, phrases: Iterable[str], *, folded: Callable[[str], str] = fold_phrase, whole: bool = True
    ) -> None:
        self._whole = whole
        self._automaton = ahocorasick.Automaton()
        for phrase in filter(None, map(folded, phrases)):
            self._automaton.add_word(phrase, phrase)
        if len(self._automaton):
            self._automaton.make_automaton()

    def iterate_hits(self, text: str) -> Iterator[Hit]:
        """Yield the phrases in folded `text`, in the order of their ends."""
        if len(self._automaton):
            for last, phrase in self._automaton.iter(text):
                start = last + 1 - len(phrase)
                if not self._whole or is_whole(text, start, last + 1):
                    yield Hit(start, last + 1, phrase)


class Spans:
    """Ranges of a text, and whether one of them covers another range."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(spans)
        self._starts = [start for start, _ in ordered]
        self._ends = list(accumulate((end for _, end in ordered), max))

    def cover(self, start: int, end: int) -> bool:
        i = bisect_right(self._starts, start)
        return i > 0 and self._ends[i - 1] >= end
