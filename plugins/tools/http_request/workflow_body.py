"""The values of a workflow in the body of a request: none adds a key to JSON, or a field to a form.

In JSON a value within a string is escaped, and one outside of strings is a whole JSON value. In a form a value is
percent-encoded. Any other body is a text, and values are texts in it.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote_plus

from gateway.plugin import strict_json
from gateway.plugin.templates import TemplateValue

_FORM: Final = "application/x-www-form-urlencoded"


def build_body_writer(content_type: str | None) -> Callable[[Sequence[str | TemplateValue]], str]:
    """Return the function that writes a body of this type. None: JSON is recognised by its first character."""
    kind = None if content_type is None else content_type.partition(";")[0].strip().lower()

    def write(pieces: Sequence[str | TemplateValue]) -> str:
        if kind == _FORM:
            return "".join(piece if isinstance(piece, str) else quote_plus(piece.text) for piece in pieces)
        first = pieces[0].lstrip()[:1] if pieces and isinstance(pieces[0], str) else ""
        if (kind is not None and (kind.endswith(("/json", "+json")))) or (kind is None and first in ("{", "[")):
            return _build_json(pieces)
        return "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)

    return write


def _build_json(pieces: Sequence[str | TemplateValue]) -> str:
    parts: list[str] = []
    in_string = escaped = False
    for piece in pieces:
        if isinstance(piece, TemplateValue):
            if escaped:
                raise ValueError(f"{{{{{piece.name}}}}} stands behind a backslash: write it without one")
            parts.append(_dump_json(piece.text)[1:-1] if in_string else _parse_value(piece))
            continue
        for character in piece:
            if escaped:
                escaped = False
            elif character == "\\" and in_string:
                escaped = True
            elif character == '"':
                in_string = not in_string
        parts.append(piece)
    return "".join(parts)


def _parse_value(value: TemplateValue) -> str:
    """Return a whole JSON value. A step's result that is JSON, such as rows, is that value."""
    if value.absent or not isinstance(value.value, str):
        return _dump_json(None if value.absent else value.value)
    if value.name.startswith("steps."):
        try:
            return _dump_json(strict_json.loads(value.text))
        except strict_json.StrictJsonError:
            pass
    return _dump_json(value.text)


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
