"""Texts of models, tools and clients as HTML: a reader sees exactly the characters that run.

`gateway.approvals.escaping` writes out what does not show, as in a chat. A page can do more: a text of several lines
stands on as many numbered lines, what was written out is marked, and two texts stand beside each other as lines that
were removed and added. More than 8 equal lines in a row are counted, as characters are: nothing is padded away.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import eq
from typing import Any, Final, Literal, TypeAlias

import orjson
from markupsafe import Markup, escape

from gateway.approvals.escaping import (
    NAME_CHARS,
    RUN_CHARS,
    Language,
    describe_omission,
    escape_line,
    format_shown_json,
    format_shown_name,
    iterate_remarks,
)
from gateway.contracts.canonical_json import write_canonical

#: So much of one value stands on a page of many, in characters as they are drawn.
BRIEF_CHARS: Final = 2_000
BRIEF_LINES: Final = 24
#: So many arguments stand there at most, and so much HTML of them; the shortest ones first.
BRIEF_ARGUMENTS: Final = 40
BRIEF_HTML_CHARS: Final = 24_000
#: So many lines have a row with a number each; the ones behind them stand in one block, each on its own line.
NUMBERED_LINES: Final = 5_000
#: The largest texts that are compared line by line, and the most pairs of equal lines in them: a model could write a
#: text whose comparison takes minutes, in which the worker does nothing else.
COMPARED_LINES: Final = 2_000
COMPARED_PAIRS: Final = 20_000
#: Unchanged lines around a change.
CONTEXT_LINES: Final = 3
#: So many lines of a comparison are shown.
DIFFERENCE_LINES: Final = 5_000

#: What `shown` and `format_shown_json` write in place of a character that does not show, or of many.
_NOT_ASCII = re.compile("[^\n\x20-\x7e]")
_WRITTEN_OUT = re.compile(r"(?:\\(?:\\|u\{[0-9a-f]+\}|u[0-9a-f]{4}|\{[^{}]*(?:\{[0-9a-f]+\})?[^{}]*\}|[ntrbf]))+")

#: The begin of an element, and the HTML in it.
Row: TypeAlias = tuple[str, str]
_LINE, _REST = '<span class="line">', '<span class="line rest">'
#: What changed: old lines from and to, new lines from and to.
ChangeKind = Literal["replace", "delete", "insert", "equal"]
Change: TypeAlias = tuple[ChangeKind, int, int, int, int]
LineKind = Literal["same", "removed", "added", "skipped", "rest"]


@dataclass(frozen=True, slots=True)
class ShownArgument:
    """One argument: its name, its value as HTML, and remarks on things that a reader would not see by looking."""

    name: str
    value: Markup
    remarks: tuple[str, ...]

    @property
    def has_long_name(self) -> bool:
        """Return whether the name may be overlooked, so that an approver has to read it like a value."""
        return len(self.name) > NAME_CHARS

    @property
    def html_chars(self) -> int:
        """Return about how much HTML it is: the name stands there twice, and a character takes up to five."""
        return len(self.value) + 5 * (2 * len(self.name) + sum(map(len, self.remarks)))


@dataclass(frozen=True, slots=True)
class ShownArguments:
    """Arguments in canonical order; `rest` is a remark on arguments left out, or "". `is_whole`: nothing is cut."""

    entries: Sequence[ShownArgument]
    rest: str
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class DifferenceLine:
    """One line of a comparison; `skipped`, `rest`: so many lines, unchanged or further ones, stand in its place."""

    kind: LineKind
    text: Markup


def render_exact_text(text: str, *, limit: int | None = None) -> Markup:
    """Return a text as HTML, with a `<span class="line">` for each line.

    `limit`: so many characters of it at most, and BRIEF_LINES lines.
    """
    lines = text.split("\n") if limit is None else text[:limit].split("\n")[:BRIEF_LINES]
    head = "\n".join(lines)
    rest = escape_line(text[len(head) :], 0) if len(head) < len(text) else ""
    rows = _render_plain_rows(head, lines) or _render_counted_rows(lines)
    spans = [f"{start}{body}</span>" for start, body in rows[:NUMBERED_LINES]]
    if len(rows) > NUMBERED_LINES:
        spans.append(_render_span("line many", "\n".join(body for _, body in rows[NUMBERED_LINES:])))
    return _join_markup([*spans, _render_span("line rest", _mark_escapes(rest))] if rest else spans)


def _render_plain_rows(text: str, lines: Sequence[str]) -> Sequence[Row]:
    """Return a text's rows if nothing is written out or counted, as in most, in a fifth of the time; else ()."""
    in_one = text.replace("\n", " ")
    if "\\" in text or escape_line(in_one) != in_one or any(map(eq, lines, lines[RUN_CHARS:])):
        return ()
    return [(_LINE, line) for line in str(escape(text)).split("\n")]


def _render_counted_rows(lines: Sequence[str]) -> Sequence[Row]:
    """Return the rows of lines. Lines behind a run of equal ones keep their own numbers."""
    rows: list[Row] = []
    number, counted = 0, False
    for line, count in _iterate_line_runs(lines):
        body = _mark_escapes(escape_line(line))
        for _ in range(count if count <= RUN_CHARS else 1):
            number += 1
            rows.append((f'<span class="line" data-line="{number}">' if counted else _LINE, body))
        if count > RUN_CHARS:
            rows.append((_REST, _format_repetition(count)))
            number, counted = number + count - 1, True
    return rows


def _iterate_line_runs(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield each line with the number of equal ones in a row."""
    return ((line, sum(1 for _ in group)) for line, group in groupby(lines))


def _format_repetition(count: int) -> Markup:
    """Return the note behind the first of so many equal lines."""
    return Markup(f"<mark>\\{{{count - 1} more lines like this one}}</mark>")  # noqa: S704 - a number


def render_exact_value(value: Any, *, limit: int | None = None) -> Markup:
    """Return a JSON value as HTML: a text of several lines as lines, everything else as canonical JSON."""
    if isinstance(value, str) and "\n" in value:
        return render_exact_text(value, limit=limit)
    return _join_markup([_render_span("line", _mark_escapes(format_shown_json(value, limit)))])


def render_exact_arguments(
    arguments: Mapping[str, Any], *, language: Language = "en", brief: bool = False
) -> ShownArguments:
    """Return the arguments as HTML; `brief`: the beginning of long ones, and of many the shortest."""
    if not brief:
        return ShownArguments(
            [_render_argument(name, arguments[name], None, language) for name in sorted(arguments)], ""
        )
    entries: dict[str, ShownArgument] = {}
    html_chars = 0
    for name in sorted(arguments, key=lambda name: (len(write_canonical(arguments[name])), name))[:BRIEF_ARGUMENTS]:
        entry = _render_argument(name, arguments[name], _count_brief_chars(_get_source(arguments[name])), language)
        html_chars += entry.html_chars
        if entries and html_chars > BRIEF_HTML_CHARS:
            break
        entries[name] = entry
    rest = {name: value for name, value in arguments.items() if name not in entries}
    note = describe_omission(rest, language=language)[2:] if rest else ""
    is_whole = not rest and not any(len(name) > NAME_CHARS or _is_shortened(value) for name, value in arguments.items())
    return ShownArguments([entries[name] for name in sorted(entries)], note, is_whole)


def _is_shortened(value: Any) -> bool:
    """Return whether a card shows only the beginning of a value."""
    source = _get_source(value)
    return len(source) > _count_brief_chars(source) or source.count("\n") >= BRIEF_LINES


def _count_brief_chars(source: str) -> int:
    """Return how many characters of a text a card shows. One that is written out is drawn as up to nine."""
    head = source[:BRIEF_CHARS]
    drawn_chars = len(escape_line(head))
    return len(head) if drawn_chars <= BRIEF_CHARS else len(head) * BRIEF_CHARS // drawn_chars


def _get_source(value: Any) -> str:
    """Return the text of which `render_exact_value` shows lines: a string of several, else canonical JSON."""
    return value if isinstance(value, str) and "\n" in value else write_canonical(value)


def _render_argument(name: str, value: Any, limit: int | None, language: Language) -> ShownArgument:
    found = iterate_remarks(f"{name} {get_shown_source(value)}", language=language)
    shown_as = format_shown_name(name, whole=limit is None)
    return ShownArgument(shown_as, render_exact_value(value, limit=limit), tuple(remark[2:] for remark in found))


def get_shown_source(value: Any) -> str:
    """Return the text that remarks are about: a string as it is, else canonical JSON."""
    return value if isinstance(value, str) else format_shown_json(value)


def render_exact_json(value: object) -> str:
    """Return a value as indented JSON in which no character can hide: invisible ones are escaped."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return _NOT_ASCII.sub(lambda found: _escape_character(found[0]), text)


@lru_cache(maxsize=4096)
def _escape_character(character: str) -> str:
    """Return a character that shows as it is, another one as the escape of JSON."""
    if escape_line(character) == character:
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def render_exact_difference(before: str | None, after: str) -> Sequence[DifferenceLine]:
    """Return what changes from one text to the other, with a few unchanged lines around each change.

    `before` None: the text is new, and so is each line.
    """
    old, new = [] if before is None else before.split("\n"), after.split("\n")
    if old == new:
        return []
    found: list[DifferenceLine] = []
    end = 0
    for group in _group_changes(old, new):
        found += _build_skipped_line(group[0][1] - end)
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                found += _split_lines("same", old[old_from:old_to])
            else:
                found += [*_split_lines("removed", old[old_from:old_to]), *_split_lines("added", new[new_from:new_to])]
        end = group[-1][2]
    found += _build_skipped_line(len(old) - end)
    rest = len(found) - DIFFERENCE_LINES
    return found if rest <= 0 else [*found[:DIFFERENCE_LINES], DifferenceLine("rest", escape(rest))]


def _group_changes(old: Sequence[str], new: Sequence[str]) -> Iterable[Sequence[tuple[str, int, int, int, int]]]:
    """Return the changes in groups, as `SequenceMatcher.get_grouped_opcodes` does, in a time that is bounded."""
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    last = next((i for i in range(shorter - first) if old[-1 - i] != new[-1 - i]), shorter - first)
    inner_old, inner_new = old[first : len(old) - last], new[first : len(new) - last]
    inner: Sequence[Change] = [("replace", 0, len(inner_old), 0, len(inner_new))]
    if _is_comparable(inner_old, inner_new):
        inner = difflib.SequenceMatcher(None, inner_old, inner_new, autojunk=False).get_opcodes()
    matcher = _PresetMatcher(
        [
            ("equal", 0, first, 0, first),
            *((kind, a + first, b + first, c + first, d + first) for kind, a, b, c, d in inner),
            ("equal", len(old) - last, len(old), len(new) - last, len(new)),
        ]
    )
    return matcher.get_grouped_opcodes(CONTEXT_LINES)


class _PresetMatcher(difflib.SequenceMatcher[str]):
    """A comparison whose result is there already, for the grouping."""

    def __init__(self, changes: Sequence[Change]) -> None:
        super().__init__()
        self._changes = list(changes)

    def get_opcodes(self) -> list[Change]:
        return self._changes


def _is_comparable(old: Sequence[str], new: Sequence[str]) -> bool:
    if len(old) + len(new) > COMPARED_LINES:
        return False
    counts = Counter(new)
    return sum(counts[line] for line in old) <= COMPARED_PAIRS


def _split_lines(kind: LineKind, lines: Sequence[str]) -> Iterator[DifferenceLine]:
    for line, count in _iterate_line_runs(lines):
        body = _mark_escapes(escape_line(line))
        yield from [DifferenceLine(kind, body)] * (count if count <= RUN_CHARS else 1)
        if count > RUN_CHARS:
            yield DifferenceLine(kind, _format_repetition(count))


def _build_skipped_line(count: int) -> Iterator[DifferenceLine]:
    if count > 0:
        yield DifferenceLine("skipped", escape(count))


def _mark_escapes(text: str) -> Markup:
    """Return text of `shown` or `format_shown_json` as HTML in which the written-out characters are marked."""
    if "\\" not in text:  # nothing is written out: a page has thousands of such lines
        return escape(text)
    parts: list[str] = []
    end = 0
    for found in _WRITTEN_OUT.finditer(text):
        parts += [escape(text[end : found.start()]), f"<mark>{escape(found[0])}</mark>"]
        end = found.end()
    return _join_markup([*parts, escape(text[end:])])


def _render_span(name: str, body: str) -> str:
    return f'<span class="{name}">{body}</span>'


def _join_markup(parts: Iterable[str]) -> Markup:
    """Return these parts of HTML as one. A page has thousands: with `Markup.format` each costs ten times as much."""
    return Markup("".join(parts))  # noqa: S704 - of `escape` and `_render_span` only
