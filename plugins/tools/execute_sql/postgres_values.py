"""Values of JSON as PostgreSQL's types require: a parameter's type is the server's word, its value the model's."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final
from uuid import UUID

from gateway.plugin.sql.lexer import TRAITS, Token, lex
from gateway.plugin.sql.statement import find_uninterruptible

from .engine import EngineDoubt


def find_value_doubt(sql: str, params: Sequence[object]) -> EngineDoubt | None:
    """Return the doubt about a statement whose parameters have these values: each counts as if it was written out."""
    if not params:
        return None
    texts = [value if isinstance(value, str) else json.dumps(value) for value in params]
    tokens = lex(sql, traits=TRAITS["postgresql"], dialect="postgresql").tokens
    reason = find_uninterruptible([_substitute_param(token, texts) for token in tokens])
    return None if reason is None else EngineDoubt("engine", reason)


def _substitute_param(token: Token, texts: Sequence[str]) -> Token:
    number = int(token.text[1:]) if token.kind == "param" and token.text[1:].isdecimal() else 0
    return Token("string", texts[number - 1]) if 0 < number <= len(texts) else token


def convert_value(value: object, kind: str) -> object:
    """Return `value` for a parameter of the type `kind`. Raises ValueError or ArithmeticError where it does not fit."""
    if value is None:
        return None
    if kind.endswith("[]"):
        if not isinstance(value, list):
            raise ValueError(kind)
        return [convert_value(each, kind.removesuffix("[]")) for each in value]
    if kind in ("json", "jsonb"):
        return value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, list | dict):
        raise ValueError(kind)
    convert = _CONVERT.get(kind)
    return value if convert is None else convert(value)


def _read_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _read_integer(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(str(value))  # the texts of a fraction and of a truth value are not integers


def _read_truth(value: object) -> bool:
    found = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}.get(_read_text(value).lower())
    if found is None:
        raise ValueError(value)
    return found


def _read_moment(value: object) -> datetime:
    return datetime.fromisoformat(str(value))


def _read_moment_with_zone(value: object) -> datetime:
    moment = _read_moment(value)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_CONVERT: Final[Mapping[str, Callable[[object], object]]] = {
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name", "unknown", "citext", "xml"), _read_text),
    **dict.fromkeys(("int2", "int4", "int8", "oid"), _read_integer),
    **dict.fromkeys(("float4", "float8"), lambda value: float(_read_text(value))),
    "numeric": lambda value: Decimal(_read_text(value)),
    "bool": _read_truth,
    "uuid": lambda value: UUID(str(value)),
    "date": lambda value: date.fromisoformat(str(value)),
    "time": lambda value: time.fromisoformat(str(value)),
    "timestamp": lambda value: _read_moment(value).replace(tzinfo=None),
    "timestamptz": _read_moment_with_zone,
}
