"""The places where a message only shows text instead of meaning it: code blocks, quotations, quoted lines."""

import re
from bisect import bisect_left
from collections.abc import Iterator

from gateway.text.phrases import Spans, mentions

#: A quotation has at most this length; a quote that opens without closing is not one.
QUOTE_LIMIT = 1000

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_QUOTED_LINE = re.compile(r"^ {0,3}>.*", re.MULTILINE)
_OPENING = re.compile(r"[“‘「『`]|(?<![0-9a-z])\"|(?<![a-z0-9_])'(?=\S)")
_CLOSING = {
    "“": re.compile("”"),
    "‘": re.compile("’"),
    "「": re.compile("」"),
    "『": re.compile("』"),
    "`": re.compile("`"),
    '"': re.compile('"'),
    "'": re.compile(r"(?<=\S)'(?![a-z0-9_])"),
}
#: Whatever is shown has one of these.
_MARKS = (">", "~~~", *_CLOSING)
_NOTHING = Spans(())
_AROUND = " \t\r\n.。!?…"


def list_code_blocks(text: str) -> Spans:
    """Return the fenced blocks of folded `text`; one that is not closed lasts to the end."""
    return Spans(_find_blocks(text))


def find_shown_text(text: str) -> Spans:
    """Return the ranges of code, quotations and quoted lines, unless all of it is one quotation."""
    if not mentions(text, _MARKS):
        return _NOTHING
    quoted = _QUOTED_LINE.finditer(text) if ">" in text else ()
    return Spans([*_find_blocks(text), *_find_quotes(text), *(line.span() for line in quoted)])


def _find_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of fenced code blocks; an open one lasts to the end."""
    if not mentions(text, ("```", "~~~")):
        return
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]):
            yield opened.start(), fence.end()
            opened = None
    if opened is not None:
        yield opened.start(), len(text)


def _find_quotes(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of quotations up to QUOTE_LIMIT characters, except one of the whole text."""
    if not mentions(text, _CLOSING):
        return
    stripped = text.strip(_AROUND)
    first = text.find(stripped)
    closings: dict[str, list[int]] = {}
    after = 0
    for opening in _OPENING.finditer(text):
        start = opening.start()
        if start < after:
            continue
        if opening[0] not in closings:
            closings[opening[0]] = [mark.start() for mark in _CLOSING[opening[0]].finditer(text)]
        ends = closings[opening[0]]
        i = bisect_left(ends, start + 1)
        if i == len(ends) or ends[i] - start > QUOTE_LIMIT:
            continue
        if (start, ends[i] + 1) == (first, first + len(stripped)):
            continue
        yield start, ends[i] + 1
        after = ends[i] + 1
