"""The texts of a workflow's steps, and the values of the references in them.

Rule 1: `{{params.x}}` and `{{steps.x}}` are references; everything else is literal, whatever its source.
Rule 2: an inserted value is never searched for references.
Rule 3: time and memory are linear in the text and in the output, which has a limit.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind = Literal["params", "steps"]
#: What references stand for: by kind, then by name. What is not there is absent.
Values = Mapping[str, Mapping[str, object]]

#: Longest text, or arguments as JSON, that may come out of one step's references.
FILLED_CHARS: Final = 1 << 20
_REFERENCE = re.compile(r"\{\{ *+(params|steps)\.([a-z][a-z0-9_-]{0,63}+) *+\}\}")
_ABSENT = object()


class TooLongError(ValueError):
    """The error that the values of references are too long altogether."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference: `{{params.x}}` or `{{steps.x}}`."""

    kind: Kind
    name: str


def iterate_references(template: object) -> Iterator[Reference]:
    """Yield the references in the texts of a JSON value (not in its keys), in order."""
    match template:
        case str():
            for found in _REFERENCE.finditer(template):
                yield Reference("params" if found[1] == "params" else "steps", found[2])
        case Mapping():
            for value in template.values():
                yield from iterate_references(value)
        case list() | tuple():
            for value in template:
                yield from iterate_references(value)


def render_template(template: object, values: Values, *, limit_chars: int = FILLED_CHARS) -> object:
    """Return a JSON value with the references in its texts (not in its keys) replaced once.

    A reference that is the whole text becomes the value itself. If that value is absent, so is the key or the item.
    Raises TooLongError.
    """
    value = _TemplateRenderer(values, limit_chars).render_value(template)
    return None if value is _ABSENT else value


@dataclass(frozen=True, slots=True)
class TemplateValue:
    """The value of a reference in a text; `render_text` is empty if it is absent."""

    name: str  # as it was written: `params.x`
    value: object
    text: str
    absent: bool


def split_pieces(template: str, values: Values, *, limit_chars: int = FILLED_CHARS) -> list[str | TemplateValue]:
    """Return the literal texts of a template and the values between them, in order. Raises TooLongError."""
    return list(_TemplateRenderer(values, limit_chars).iterate_pieces(template))


#: Writes a text in the tool's language; no value becomes a part of its syntax. Raises ValueError, with the reason.
Writer: TypeAlias = Callable[[Sequence[str | TemplateValue]], str]


def fill_object(
    template: Mapping[str, object], values: Values, *, writers: Mapping[str, Writer] | None = None
) -> dict[str, object]:
    """Return the arguments of a tool as `render_template` does; a writer of `writers` writes the argument of its name.

    An argument that is one reference needs no writer. Raises TooLongError, and every exception of the writers.
    """
    whole = render_template(template, values)
    assert isinstance(whole, dict)
    for name, write in (writers or {}).items():
        text = template.get(name)
        if isinstance(text, str) and not _REFERENCE.fullmatch(text):
            whole[name] = write(split_pieces(text, values))
    return whole


def fill_text(template: str, values: Values, *, limit_chars: int = FILLED_CHARS) -> str:
    """Return a text with its references replaced once, by texts; an absent value is empty. Raises TooLongError."""
    return _TemplateRenderer(values, limit_chars).render_text(template)


class _TemplateRenderer:
    """One rendering of a template, and the number of characters that may still come out of it."""

    def __init__(self, values: Values, limit_chars: int) -> None:
        self._values = values
        self._left = limit_chars

    def render_value(self, template: object) -> object:
        """Return a JSON value with its references replaced; absent keys and items are left out."""
        match template:
            case str():
                whole = _REFERENCE.fullmatch(template)
                return self.render_text(template) if whole is None else self._get_whole_value(whole)
            case Mapping():
                entries = ((key, self.render_value(inner)) for key, inner in template.items())
                return {key: value for key, value in entries if value is not _ABSENT}
            case list() | tuple():
                return [value for value in map(self.render_value, template) if value is not _ABSENT]
        return template

    def render_text(self, template: str) -> str:
        return "".join(piece if isinstance(piece, str) else piece.text for piece in self.iterate_pieces(template))

    def iterate_pieces(self, template: str) -> Iterator[str | TemplateValue]:
        """Yield literal texts and values in turn. Raises TooLongError."""
        at = 0
        for found in _REFERENCE.finditer(template):
            yield self._count_text(template[at : found.start()])
            value = self._find_value(found)
            is_absent = value is _ABSENT
            name, text = f"{found[1]}.{found[2]}", self._count_text(format_value(value))
            yield TemplateValue(name, None if is_absent else value, text, is_absent)
            at = found.end()
        yield self._count_text(template[at:])

    def _get_whole_value(self, whole: re.Match[str]) -> object:
        value = self._find_value(whole)
        self._count_text(format_value(value))
        return value

    def _find_value(self, reference: re.Match[str]) -> object:
        return self._values.get(reference[1], {}).get(reference[2], _ABSENT)

    def _count_text(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise TooLongError("what its references bring in is too long")
        return text


def format_value(value: object) -> str:
    """Return a value as it stands within a text: a text itself, anything else as JSON; an absent value is empty."""
    if isinstance(value, str):
        return value
    return "" if value is _ABSENT else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
