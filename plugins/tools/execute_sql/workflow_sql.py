"""The values of a workflow in an SQL statement: as parameters, which the driver binds. None becomes SQL.

A reference outside quotes becomes a placeholder, and so does one that fills a string. One within a longer string
becomes a placeholder that `||` joins to the rest. No value can stand in a comment, a quoted name or any other literal.
"""

import re
from collections.abc import Sequence
from typing import Literal

from gateway.plugin.templates import TemplateValue

Dialect = Literal["sqlite", "postgres"]

#: What is not plain SQL, up to its end or that of the text. Strings that a dialect reads in another way than `'...'`
#: are `write_other`, as are names; nested comments of PostgreSQL are found by `_find_comment_end`.
_PIECES = {
    "sqlite": re.compile(
        r"""(?P<string>'(?:[^']++|'')*+(?:'|\Z))|(?P<other>"[^"]*+(?:"|\Z)|`[^`]*+(?:`|\Z)|\[[^\]]*+(?:\]|\Z)|--[^\n]*+)"""
        r"""|(?P<comment>/\*)"""
    ),
    "postgres": re.compile(
        r"""(?P<other>(?<![\w$])(?:[eEbBxXnN]|[uU]&)'(?:[^'\\]++|\\.|'')*+(?:'|\Z)|"[^"]*+(?:"|\Z)|--[^\n\r]*+"""
        r"""|(?<![\w$])(?P<tag>\$(?:[^\W\d]\w*+)?\$).*?(?:(?P=tag)|\Z))|(?P<string>'(?:[^']++|'')*+(?:'|\Z))|(?P<comment>/\*)""",
        re.DOTALL,
    ),
}
_COMMENT_EDGE = re.compile(r"/\*|\*/")
#: Characters that are in no statement a person writes: they stand for a value while the text is read.
_MARK = re.compile("\ue000([0-9]+)\ue001")
_WORD = re.compile(r"[\w$@:#\ue000\ue001]")


class _Writer:
    """The writer of one statement."""

    def __init__(self, values: Sequence[TemplateValue], dialect: Dialect) -> None:
        self._values = values
        self._sign = "?" if dialect == "sqlite" else "$"
        self._postgres = dialect == "postgres"
        self.bound: list[object] = []

    def write_plain(self, text: str) -> str:
        """Write SQL outside quotes. A value has its own type. An object or a list is JSON text."""
        for found in _MARK.finditer(text):
            if _WORD.match(text[found.end() : found.end() + 1]) or _WORD.match(text[found.start() - 1 : found.start()]):
                raise self._build_place_error(found, "as a part of a word")
        return _MARK.sub(lambda found: self._write_placeholder(_convert_bindable(self._get_value(found))), text)

    def write_string(self, literal: str) -> str:
        """Write a string `'...'`: its values are texts."""
        inside = literal[1:-1]
        if (whole := _MARK.fullmatch(inside)) is not None:
            return self._write_placeholder(self._get_value(whole).text)
        parts, at = [], 0
        for found in _MARK.finditer(inside):
            cast = "::text" if self._postgres else ""
            parts += [f"'{inside[at : found.start()]}'", self._write_placeholder(self._get_value(found).text) + cast]
            at = found.end()
        rest = f"'{inside[at:]}'"
        return f"({' || '.join([*parts, rest])})" if parts else literal

    def write_other(self, text: str) -> str:
        """Write a comment, a name or a literal of another kind unchanged. Raises ValueError if it has a value."""
        if (found := _MARK.search(text)) is not None:
            raise self._build_place_error(found, "in a comment, a quoted name or an unusual literal")
        return text

    def _get_value(self, found: re.Match[str]) -> TemplateValue:
        return self._values[int(found[1])]

    def _write_placeholder(self, value: object) -> str:
        self.bound.append(value)
        return f"{self._sign}{len(self.bound)}"

    def _build_place_error(self, found: re.Match[str], where: str) -> ValueError:
        name = self._get_value(found).name
        return ValueError(f"{{{{{name}}}}} stands {where} of the statement, where no value can: move it out")


def build_statement(pieces: Sequence[str | TemplateValue], *, dialect: Dialect) -> tuple[str, list[object]]:
    """Return the statement and the values bound to its placeholders, in their order.

    Raises ValueError for a reference where no value can stand.
    """
    values: list[TemplateValue] = []
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            if "\ue000" in piece or "\ue001" in piece:
                raise ValueError("the statement has characters of private use (U+E000, U+E001)")
            text += piece
        else:
            text += f"\ue000{len(values)}\ue001"
            values.append(piece)
    writer = _Writer(values, dialect)
    return _write_placeholders(text, writer, dialect), writer.bound


def _write_placeholders(text: str, writer: _Writer, dialect: Dialect) -> str:
    parts, at = [], 0
    while (found := _PIECES[dialect].search(text, at)) is not None:
        parts.append(writer.write_plain(text[at : found.start()]))
        at = found.end()
        if found["string"] is not None and found[0][1:].endswith("'"):
            parts.append(writer.write_string(found[0]))
            continue
        if found["comment"] is not None:
            at = _find_comment_end(text, at, nests=dialect == "postgres")
        parts.append(writer.write_other(text[found.start() : at]))
    return "".join((*parts, writer.write_plain(text[at:])))


def _find_comment_end(text: str, at: int, *, nests: bool) -> int:
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += -1 if edge[0] == "*/" else nests
        if not depth:
            return edge.end()
    return len(text)


def _convert_bindable(value: TemplateValue) -> object:
    """Return a value that a driver accepts: objects and lists become texts."""
    return value.text if isinstance(value.value, dict | list) else value.value
