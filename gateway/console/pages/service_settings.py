"""The settings of a service as fields of a form, and back. Pure.

The fields hold what most services need. Everything else stands in one field, as JSON, with the names that
`mcp.servers` has in the configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from gateway.console.schema_form import FormError, parse_object
from gateway.contracts.storage.store import Json

#: One text in one line.
LINES: Final = ("description", "command", "url")
#: A list of texts, one in each line.
LISTS: Final = ("args", "trigger_keywords")
#: Objects of names and values.
OBJECTS: Final = ("env", "headers")
FLAGS: Final = ("requires_approval",)
#: The field for all other settings.
FURTHER: Final = "further"
FIELDS: Final = frozenset((*LINES, *LISTS, *OBJECTS, *FLAGS))
#: The settings of fields left empty.
_EMPTY: Final[Json] = {
    **{name: [] for name in LISTS},
    **{name: {} for name in OBJECTS},
    **dict.fromkeys(FLAGS, False),
}


def build_form(settings: Json) -> Mapping[str, str]:
    """Return the texts of the fields. A value that its field cannot show to the character stands in `further`."""
    form: dict[str, str] = {}
    further: Json = {}
    for name, value in settings.items():
        text = _format_text(name, value) if name in FIELDS else None
        if text is None:
            further[name] = value
        else:
            form[name] = text
    form[FURTHER] = _format_json(further) if further else ""
    return form


def parse_settings(form: Mapping[str, str]) -> Json:
    """Return the settings that a form brings; fields left empty are none of them. Raises FieldError."""
    settings: Json = {name: text for name in LINES if (text := form.get(name, "").strip())}
    for name in LISTS:
        if lines := _split_lines(form.get(name, "")):
            settings[name] = lines
    for name in OBJECTS:
        if (found := _read_object(name, form)) is not None:
            settings[name] = found
    for name in FLAGS:
        if form.get(name):
            settings[name] = True
    for name, value in (_read_object(FURTHER, form) or {}).items():
        if name in settings:
            raise FormError(FURTHER, "{0} has a field of its own that is filled in: remove one of both", name)
        settings[name] = value
    return settings


def get_field_name(param: object) -> str:
    """Return the field in which the setting at fault stands, by the path that the API names (`env.TOKEN`)."""
    name = str(param or "").partition(".")[0]
    return name if name in FIELDS or name == "name" else FURTHER if name else ""


def _format_text(name: str, value: object) -> str | None:
    """Return the text of a field that brings exactly this value, None if no text does."""
    text: str | None = None
    if name in LINES and isinstance(value, str) and "\n" not in value:
        text = value
    elif name in LISTS and isinstance(value, list) and all(isinstance(one, str) for one in value):
        text = "\n".join(value)
    elif name in OBJECTS and isinstance(value, dict):
        text = _format_json(value) if value else ""
    elif name in FLAGS and isinstance(value, bool):
        return "1" if value else ""
    if text is None or any(not (sign.isprintable() or sign == "\n") for sign in text):
        return None
    return text if parse_settings({name: text}).get(name, _EMPTY.get(name)) == value else None


def _split_lines(text: str) -> Sequence[str]:
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _read_object(name: str, form: Mapping[str, str]) -> Json | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    return parse_object(name, text)


def _format_json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
