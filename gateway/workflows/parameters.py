"""The parameters of a workflow, from JSON or from a user's text behind its name: typed, checked, with defaults.

A schema here is a JSON Schema of type object whose properties have a `type`, and maybe `default` and `enum`. Each error
names its parameter and never repeats a value. Time is linear in the text.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.contracts.templates import format_value
from gateway.jsontext import strict_json

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Json = dict[str, Any]

#: Problems reported, and choices named, at once.
PROBLEMS_LIMIT: Final = 5
CHOICES_LIMIT: Final = 20
_NAME_CHARS = 64
_NAME = rf"[a-z][a-z0-9_-]{{0,{_NAME_CHARS - 1}}}+"
# A pair, or any other word. What a quote that is not closed begins is an ordinary word.
_WORD = re.compile(
    rf"""(?P<name>{_NAME})=(?:"(?P<double>(?:[^"\\]|\\.)*+)"|'(?P<single>(?:[^'\\]|\\.)*+)'|(?P<bare>(?!["'])\S*+))(?!\S)|\S++""",
    re.DOTALL,
)
_UNCLOSED = re.compile(rf"({_NAME})=[\"']")
_ESCAPED = re.compile(r"\\([\"'\\])")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[-+]?[0-9]{1,300}(?:\.[0-9]{1,300})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_MEANT: Mapping[str, str] = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a JSON array such as [1, 2]",
    "object": 'a JSON object such as {"a": 1}',
}
_ABSENT = object()


class ParameterError(ValueError):
    """The error of parameters that do not fit; the text names each, `name` is the first."""

    def __init__(self, name: str, *problems: str) -> None:
        super().__init__(" ".join(problems))
        self.name = name[:_NAME_CHARS]


def validate_parameters(given: Json, schema: Json) -> Json:
    """Return the parameters in the order of the schema, with its defaults. Raises ParameterError."""
    from jsonschema_rs import validator_for  # 2 MB only with workflows

    properties: Mapping[str, Json] = schema["properties"]
    validator = validator_for(schema, offline=True)
    problems: dict[str, str] = {}
    for error in validator.iter_errors(given):
        name, problem = _describe_problem(error, properties)
        problems.setdefault(name, problem)
        if len(problems) == PROBLEMS_LIMIT:
            break
    if problems:
        told = (f"Parameter {_quote_name(name)}: {problem}." for name, problem in problems.items())
        raise ParameterError(next(iter(problems)), *told)
    defaults = {name: facts["default"] for name, facts in properties.items() if "default" in facts}
    return {name: given.get(name, defaults.get(name)) for name in properties if name in given or name in defaults}


def convert_parameters(written: Mapping[str, str], schema: Json) -> Json:
    """Convert parameters that were written as texts to their types. Raises ParameterError. Call `checked` after it."""
    properties: Mapping[str, Json] = schema["properties"]
    found = {}
    for name, text in written.items():
        if name not in properties:
            raise ParameterError(name, f"Parameter {_quote_name(name)}: {_describe_unknown(properties)}.")
        kind = properties[name]["type"]
        value = _CONVERT.get(kind, _convert_text)(text)
        if value is _ABSENT:
            raise ParameterError(name, f"Parameter {_quote_name(name)}: it must be {_MEANT[kind]}.")
        found[name] = value
    return found


def read_arguments(text: str, schema: Json) -> Json:
    """Return the parameters in a user's text behind the name of a workflow. Raises ParameterError.

    `name=value` pairs stand in front of all other text or behind it; values with spaces are in quotes, in which a
    backslash stands before a quote or a backslash. The other text is the value of the first required string without
    one, or of the only string, or of the only parameter.
    """
    properties: Mapping[str, Json] = schema["properties"]
    pairs, rest = _split_pairs(text, properties)
    written: dict[str, str] = {}
    for name, value in pairs:
        if name in written:
            raise ParameterError(name, f"Parameter {_quote_name(name)}: it is given twice.")
        written[name] = value
    if rest:
        written[_find_text_parameter(rest, written, schema)] = rest
    return validate_parameters(convert_parameters(written, schema), schema)


def _split_pairs(text: str, properties: Mapping[str, Json]) -> tuple[list[tuple[str, str]], str]:
    """Return the name=value pairs at both ends of a text, and the text between them."""
    leading: list[tuple[str, str]] = []
    trailing: list[tuple[str, str]] = []
    begin = end = -1
    for word in _WORD.finditer(text):
        if word["name"] is not None and word["name"] in properties:
            (leading if begin < 0 else trailing).append((word["name"], _unquote_value(word)))
            continue
        if begin < 0:
            begin = word.start()
            unclosed = _UNCLOSED.match(word[0])
            if unclosed is not None and unclosed[1] in properties:
                name = unclosed[1]
                problem = (
                    f"Parameter {_quote_name(name)}: its closing quote must come, and a space or nothing behind it."
                )
                raise ParameterError(name, problem)
        end = word.end()
        trailing.clear()
    return leading + trailing, text[begin:end] if begin >= 0 else ""


def _unquote_value(pair: re.Match[str]) -> str:
    if pair["bare"] is not None:
        return pair["bare"]
    return _ESCAPED.sub(r"\1", pair["single"] if pair["double"] is None else pair["double"])


def _find_text_parameter(rest: str, written: Mapping[str, str], schema: Json) -> str:
    """Return the name of the parameter that takes the text between the pairs. Raises ParameterError."""
    properties: Mapping[str, Json] = schema["properties"]
    free = [name for name in properties if name not in written]
    strings = [name for name in free if properties[name]["type"] == "string"]
    required = [name for name in strings if name in schema["required"]]
    if required:
        return required[0]
    if len(strings) == 1:
        return strings[0]
    if len(properties) == 1 and free:
        return free[0]
    word = rest.split(maxsplit=1)[0].partition("=")[0]
    raise ParameterError(word, f"Parameter {_quote_name(word)}: {_describe_unknown(properties)}; write name=value.")


def _describe_problem(error: "ValidationError", properties: Mapping[str, Json]) -> tuple[str, str]:
    """Return the name of the parameter, and its problem; never its value."""
    from jsonschema_rs import ValidationErrorKind

    kind = error.kind
    if isinstance(kind, ValidationErrorKind.Required):
        return str(kind.property), "it is required"
    if isinstance(kind, ValidationErrorKind.AdditionalProperties):
        return str(kind.unexpected[0]), _describe_unknown(properties)
    name = str(error.instance_path[0])
    if isinstance(kind, ValidationErrorKind.Enum):
        return name, f"it must be one of {', '.join(map(format_value, _shorten_choices(properties[name]['enum'])))}"
    return name, f"it must be {_MEANT[properties[name]['type']]}"


def _shorten_choices(choices: Sequence[object]) -> Sequence[object]:
    return choices if len(choices) <= CHOICES_LIMIT else [*choices[:CHOICES_LIMIT], "..."]


def _describe_unknown(properties: Mapping[str, Json]) -> str:
    return f"there is no such parameter; there are {', '.join(properties)}" if properties else "there are no parameters"


def _quote_name(name: str) -> str:
    return ascii(name[:_NAME_CHARS])


def _convert_text(text: str) -> object:
    return text


def _convert_integer(text: str) -> object:
    return int(text) if _INTEGER.fullmatch(text.strip()) else _ABSENT


def _convert_number(text: str) -> object:
    if _NUMBER.fullmatch(text.strip()) is None:
        return _ABSENT
    number = float(text)
    return _convert_integer(text) if _INTEGER.fullmatch(text.strip()) else number if math.isfinite(number) else _ABSENT


def _convert_boolean(text: str) -> object:
    return {"true": True, "false": False}.get(text.strip().lower(), _ABSENT)


def _build_json_converter(kind: type) -> Callable[[str], object]:
    """Return a function that parses a text as JSON of this type; _ABSENT if it is not."""

    def convert(text: str) -> object:
        try:
            value = strict_json.loads(text)
        except strict_json.StrictJsonError:
            return _ABSENT
        return value if isinstance(value, kind) else _ABSENT

    return convert


_CONVERT: Mapping[str, Callable[[str], object]] = {
    "string": _convert_text,
    "integer": _convert_integer,
    "number": _convert_number,
    "boolean": _convert_boolean,
    "array": _build_json_converter(list),
    "object": _build_json_converter(dict),
}
