"""Forms from the JSON Schema of a tool or a workflow, and the values that a person filled in.

A field shows what a value is, to the character: a text that a form control would change (line ends, hidden characters)
is edited as JSON. A schema that requires more than a form can show is checked by the API, which returns the error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from gateway.approvals.escaping import escape_line
from gateway.console.translation import Translate
from gateway.console.visible_text import render_exact_json
from gateway.contracts.storage.store import Json
from gateway.jsontext import strict_json

#: A text beyond this is edited in several lines.
LINE_CHARS: Final = 80
PREFIX: Final = "field."

_SPACES = re.compile("[ \t]+")
_CHANGED = re.compile("[%\x00-\x1f\x7f]")

Control = Literal["line", "text", "number", "choice", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a form. `text` is what its control holds at first; `choices` are the texts of its options."""

    name: str
    control: Control
    kind: str  # the type in words, such as `integer`
    text: str = ""
    required: bool = False
    present: bool = False  # a value was there before
    description: str = ""
    choices: Sequence[str] = ()
    values: Sequence[Any] = field(default=(), repr=False)

    @property
    def control_name(self) -> str:
        """Return the name of the form control, without characters that a browser would change."""
        return PREFIX + _CHANGED.sub(lambda found: f"%{ord(found[0]):02X}", self.name)

    @property
    def rows(self) -> int:
        """Return the height of the control, in lines."""
        return min(max(3, self.text.count("\n") + 2), 24)


class FormError(ValueError):
    """The error of a value that is none of its field; `name` is the field's. `text` is one to translate."""

    def __init__(self, name: str, text: str, *values: object) -> None:
        super().__init__(text.format(*values) if values else text)
        self.name = name
        self._text, self._values = text, values

    def format_problem(self, t: Translate) -> str:
        """Return the error in the reader's language."""
        return t(self._text, *self._values)


def build_fields(schema: Json | None, values: Mapping[str, Any], *, defaults: bool = False) -> Sequence[FormField]:
    """Return the fields of an object's schema, and of values that the schema does not name, in that order.

    `defaults`: a field without a value begins with the schema's default.
    """
    properties: Mapping[str, Any] = (schema or {}).get("properties") or {}
    required = (schema or {}).get("required") or ()
    names = [*properties, *(name for name in values if name not in properties)]
    return [
        _build_field(name, properties.get(name), values, required=name in required, defaults=defaults)
        for name in names
        if isinstance(name, str)
    ]


def parse_values(fields: Sequence[FormField], form: Mapping[str, str]) -> Json:
    """Return the values that a form brings. An optional field that is empty is left out, but for a text that was there.

    Raises FieldError, also for a form without a field of a value that was there: nothing disappears unseen.
    """
    values: Json = {}
    for one in fields:
        text = form.get(one.control_name)
        if text is None and one.present:
            raise FormError(one.name, "the form lacks this field: load its page again")
        if text is None or (text == "" and _may_be_left_out(one)):
            continue
        values[one.name] = _read_value(one, text)
    return values


def _may_be_left_out(one: FormField) -> bool:
    """Return whether an empty control means a missing value."""
    if one.control in ("line", "text"):
        return not one.present and not one.required
    return not one.present if "" in one.choices else not (one.present and one.required)


def _build_field(name: str, schema: object, values: Mapping[str, Any], *, required: bool, defaults: bool) -> FormField:
    facts: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    present = name in values
    value = values.get(name, facts.get("default") if defaults else None)
    is_there = present or (defaults and "default" in facts)
    kind = facts.get("type") if isinstance(facts.get("type"), str) else "json"
    plain = FormField(
        name=name,
        control="json",
        kind=str(kind),
        text=render_exact_json(value) if is_there else "",
        required=required,
        present=present,
        description=str(facts.get("description") or ""),
    )
    options = facts.get("enum") if isinstance(facts.get("enum"), list) else [True, False] if kind == "boolean" else None
    texts = [option if isinstance(option, str) else render_exact_json(option) for option in options or ()]
    can_choose = len(set(texts)) == len(texts) and not any("\n" in text or not _survives_form(text) for text in texts)
    if options and can_choose and (not is_there or any(_is_same_json(value, option) for option in options)):
        at = next((texts[i] for i, option in enumerate(options) if is_there and _is_same_json(value, option)), "")
        return replace(plain, control="choice", text=at, choices=texts, values=options)
    if kind == "string" and (not is_there or (isinstance(value, str) and _survives_form(value))):
        text = value if isinstance(value, str) else ""
        return replace(plain, control="text" if "\n" in text or len(text) > LINE_CHARS else "line", text=text)
    if kind in ("integer", "number") and (not is_there or _is_number(value)):
        return replace(plain, control="number")
    return plain


def _survives_form(text: str) -> bool:
    """Return whether a form control shows and returns every character of a text."""
    lines = _SPACES.sub(" ", text).split("\n")
    return all(escape_line(line).replace("\\\\", "\\") == line for line in lines)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same_json(left: object, right: object) -> bool:
    """Return whether two values are the same JSON: neither true nor 1.0 is 1, at any depth."""
    return render_exact_json(left) == render_exact_json(right)


def _read_value(one: FormField, text: str) -> Any:
    """Return the value of one field. Raises FieldError."""
    if one.control in ("line", "text"):
        return text.replace("\r\n", "\n")  # as every browser sends line ends (HTML, "normalize newlines")
    if one.control == "choice":
        if text not in one.choices:
            raise FormError(one.name, "choose one of the options")
        return one.values[one.choices.index(text)]
    value = _parse_json(one.name, text)
    if one.control == "number" and (not _is_number(value) or (one.kind == "integer" and value != int(value))):
        raise FormError(one.name, "send a number of the type {0}", one.kind)
    return value


def parse_object(name: str, text: str) -> Json:
    """Return the JSON object that a field holds. Raises FieldError."""
    value = _parse_json(name, text)
    if not isinstance(value, dict):
        raise FormError(name, "this is not a JSON object")
    return value


def _parse_json(name: str, text: str) -> Any:
    try:
        return strict_json.loads(text)
    except strict_json.StrictJsonError as error:
        raise FormError(name, "this is not JSON: {0}", error) from None
