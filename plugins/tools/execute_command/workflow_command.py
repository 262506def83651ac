"""The values of a workflow in a shell command: as words, of which a shell reads nothing as its own language.

A value is quoted for the place where its reference stands: outside quotes, within single or within double quotes. Every
other place (a substitution, an expansion, arithmetic, a here-document, a comment, behind a backslash) is refused.
"""

from collections.abc import Sequence
from typing import Literal

from gateway.plugin.templates import TemplateValue

_Place = Literal["outside", "single", "double", "comment"]
#: What begins a language within the language, in which quotes mean something else. `$'` is not a quote to every shell.
_OPENERS = ("`", "$(", "${", "$[", "$'", '$"', "<<", "((")


def build_command(pieces: Sequence[str | TemplateValue]) -> str:
    """Return the command. Raises ValueError for a reference where no value can stand."""
    parts: list[str] = []
    reader = _Reader()
    for piece in pieces:
        if isinstance(piece, str):
            reader.read(piece)
            parts.append(piece)
        elif piece.absent and reader.is_between_words:
            continue
        else:
            parts.append(_quote_value(piece, reader))
            reader.in_word, reader.behind_dollar = True, False
    return "".join(parts)


def _quote_value(value: TemplateValue, reader: "_Reader") -> str:
    if reader.nested is not None:
        raise ValueError(
            f"{{{{{value.name}}}}} stands behind {reader.nested!r}, where its value could run: move it out"
        )
    if reader.behind_dollar and reader.place == "outside":
        raise ValueError(f"{{{{{value.name}}}}} stands behind '$', which gives quotes another meaning: quote the '$'")
    if reader.escaped or reader.place == "comment":
        raise ValueError(f"{{{{{value.name}}}}} stands in a comment or behind a backslash: make it a word of its own")
    inside_single = value.text.replace("'", "'\\''")
    if reader.place == "single":
        return inside_single
    if reader.place == "double":
        return f"\"'{inside_single}'\""
    return f"'{inside_single}'"


class _Reader:
    """The place in a command of the next character, as a POSIX shell reads it (XCU 2.2, 2.3)."""

    def __init__(self) -> None:
        self.place: _Place = "outside"
        self.escaped = False
        self.in_word = False  # so that `#` begins no comment
        self.nested: str | None = None  # what began another language
        self._last, self._last_mark = " ", " "  # the last character, and the last one that is not a blank
        self.behind_dollar = False  # `$` and a quote are `$'...'` to some shells, where a backslash escapes

    @property
    def is_between_words(self) -> bool:
        """Return whether an absent value here gives no word.

        It then joins no two characters, and no redirection takes the next word.
        """
        return self.place == "outside" and self._last in " \t\n" and self._last_mark not in "<>"

    def read(self, text: str) -> None:
        for index, character in enumerate(text):
            if self.nested is None and self.place in ("outside", "double") and not self.escaped:
                self.nested = self._match_opener(text, index)
            self.behind_dollar = character == "$" and self.place == "outside" and not self.escaped
            self._read_character(character)
            self._last = character
            self._last_mark = self._last_mark if character in " \t" else character

    def _match_opener(self, text: str, index: int) -> str | None:
        outside_only = ("<<", "((", "$'", '$"')
        found = next((opener for opener in _OPENERS if text.startswith(opener, index)), None)
        return None if found in outside_only and self.place == "double" else found

    def _read_character(self, character: str) -> None:
        if self.place == "single":
            self.place = "outside" if character == "'" else "single"
        elif self.place == "comment":
            self.place = "outside" if character == "\n" else "comment"
            self.in_word = False
        elif self.escaped:
            self.escaped = False
        elif character == "\\":
            self.escaped = self.in_word = True
        elif self.place == "double":
            self.place = "outside" if character == '"' else "double"
        else:
            self._read_unquoted(character)

    def _read_unquoted(self, character: str) -> None:
        if character == "'":
            self.place = "single"
        elif character == '"':
            self.place = "double"
        elif character == "#" and not self.in_word:
            self.place = "comment"
        self.in_word = character not in " \t\n;&|<>()"
