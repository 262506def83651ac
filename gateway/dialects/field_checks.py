"""Checks of single fields. Each refusal names the place, such as `input[2].content[0].text`, and never its value."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json

#: Ids of items and calls, names of tools, and keys have at most so many characters, as at OpenAI.
ID_CHARS: Final = 64
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{ID_CHARS}}}")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: `accepts` recognises one, and `described` ends the sentence "It must be".

    null counts as left out, which `required` does not allow.
    """

    accepts: Callable[[object], bool]
    described: str
    required: bool = False


def mark_required(kind: Kind) -> Kind:
    """Return a kind that a value must be there for."""
    return replace(kind, required=True)


def build_short_text_kind(limit: int) -> Kind:
    """Return the kind of texts with 1 to `limit` characters."""
    return Kind(lambda value: type(value) is str and 0 < len(value) <= limit, f"text of 1 to {limit} characters")


def build_enum_kind(*texts: str) -> Kind:
    """Return the kind that allows only these texts."""
    known = frozenset(texts)
    return Kind(lambda value: type(value) is str and value in known, f"one of {', '.join(texts)}")


def build_whole_number_kind(low: int, high: int | None = None) -> Kind:
    """Return the kind of whole numbers from `low` to `high`, both included."""
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    return Kind(
        lambda value: type(value) is int and low <= value and (high is None or value <= high),
        f"a whole number {bounds}",
    )


def build_number_kind(low: float, high: float) -> Kind:
    """Return the kind of numbers from `low` to `high`, both included."""
    return Kind(
        lambda value: type(value) in (int, float) and low <= value <= high,  # type: ignore[operator]
        f"a number from {low:g} to {high:g}",
    )


def _is_string_list(value: object) -> bool:
    return type(value) is list and all(type(one) is str for one in value)


TEXT: Final = Kind(lambda value: type(value) is str, "text")
TRUTH: Final = Kind(lambda value: type(value) is bool, "true or false")
OBJECT: Final = Kind(lambda value: type(value) is dict, "an object")
LIST: Final = Kind(lambda value: type(value) is list, "a list")
TEXTS: Final = Kind(_is_string_list, "a list of texts")
WHOLE: Final = Kind(lambda value: type(value) is int, "a whole number")
ANYTHING: Final = Kind(lambda _: True, "a value")
ID: Final = build_short_text_kind(ID_CHARS)
NAME: Final = Kind(
    lambda value: type(value) is str and _NAME.fullmatch(value) is not None,
    f"1 to {ID_CHARS} letters, digits, '_' and '-'",
)


def check_object_fields(
    place: str, value: Mapping[str, object], kinds: Mapping[str, Kind], *, closed: bool = False
) -> None:
    """Check the fields of an object at `place`, which is "" for the request. `closed`: it has no other fields.

    Raises GatewayError (missing_field, invalid_field, unknown_parameter).
    """
    if closed:
        for name in value:
            if name not in kinds:
                raise build_unknown_field_error(join_place(place, name[:ID_CHARS]))
    for name, kind in kinds.items():
        if (given := value.get(name)) is not None:
            if not kind.accepts(given):
                refuse(join_place(place, name), kind.described)
        elif kind.required:
            refuse_missing(join_place(place, name), kind.described)


def check_object(place: str, value: object, described: str = OBJECT.described) -> Json:
    """Return an object. Raises GatewayError (invalid_field) for anything else."""
    if type(value) is not dict:
        refuse(place, described)
    return value


def join_place(place: str, name: str) -> str:
    """Return the place of a field."""
    return f"{place}.{name}" if place else name


def build_unknown_field_error(place: str) -> GatewayError:
    """Return the error of a field that the API does not have, in OpenAI's words."""
    return GatewayError("unknown_parameter", f"Unknown parameter: '{place}'.", param=place)


def refuse(place: str, described: str) -> NoReturn:
    """Refuse a value. Raises GatewayError (invalid_field)."""
    raise GatewayError("invalid_field", f"'{place}' must be {described}.", param=place)


def refuse_missing(place: str, described: str) -> NoReturn:
    """Refuse an object without a field. Raises GatewayError (missing_field)."""
    raise GatewayError("missing_field", f"'{place}' is missing: it must be {described}.", param=place)


def build_unsupported_error(place: str, next_step: str) -> GatewayError:
    """Return the error of a field that OpenAI has, and the gateway cannot honour."""
    return GatewayError("unsupported_parameter", f"'{place}' is not offered in context mode: {next_step}.", param=place)
