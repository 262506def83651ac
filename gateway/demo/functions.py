"""The functions that a client brings: which of them a message is about, and the arguments of its call."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from gateway.demo.words import ScriptedCall

Schema: TypeAlias = dict[str, Any]

NOTE: Final = """\
Without such words, the model calls a function in the request's `tools` if the last user message has a word of 4 or
more letters in common with the function's name: `get_weather` for "What's the weather like in San Francisco?". It calls
the first such function natively, once, and then tells the result. Each required argument gets a value of its type. Text
is the longest capitalised name that does not begin the message ("San Francisco"), else the whole message. With the
`tool_choice` `none` the model calls no function; with `required` or a function's name it needs no such word.
"""

_CAMEL_SEAM: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONG_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_WORD: Final = re.compile(r"[^\W\d_]\w*(?:['’-]\w+)*")


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the client runs; `parameters` is its JSON schema."""

    name: str
    parameters: Schema


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that an answer may call; one of them in any case if `forced`."""

    offered: tuple[Function, ...] = ()
    forced: bool = False

    def find_call(self, message: str, *, by_words: bool) -> ScriptedCall | None:
        """Return the call of the first function that the message names with a word, else of a forced one."""
        words = _list_long_words(message) if by_words and self.offered else frozenset()
        fitting = (function for function in self.offered if words & _list_long_words(function.name))
        function = next(fitting, self.offered[0] if self.forced and self.offered else None)
        return (
            None
            if function is None
            else ScriptedCall(function.name, _choose_arguments(function.parameters, message=message))
        )


NO_FUNCTIONS: Final = Functions()


def read_functions(tools: object, *, choice: object) -> Functions:
    """Return the functions among the `tools` of a request, as its `tool_choice` leaves them.

    The fields of a tool stand beside its type, as in responses, or in an object named by it, as in chat completions.
    """
    offered = tuple(_list_functions(tools))
    if not isinstance(choice, dict):
        return NO_FUNCTIONS if choice == "none" else Functions(offered, forced=choice == "required")
    choice = _flatten_tool(choice)
    match choice.get("type"):
        case "function":
            return Functions(_filter_named(offered, [choice]), forced=True)
        case "allowed_tools":
            return Functions(
                _filter_named(offered, _list_objects(choice.get("tools"))), forced=choice.get("mode") == "required"
            )
        case _:
            return NO_FUNCTIONS  # the choice is a tool of another kind


def _list_functions(tools: object) -> Iterator[Function]:
    for tool in _list_objects(tools):
        name, parameters = tool.get("name"), tool.get("parameters")
        if tool.get("type") == "function" and isinstance(name, str):
            yield Function(name, parameters if isinstance(parameters, dict) else {})


def _filter_named(offered: Sequence[Function], tools: Sequence[Schema]) -> tuple[Function, ...]:
    names = [tool.get("name") for tool in tools if tool.get("type") == "function"]
    return tuple(function for function in offered if function.name in names)


def _list_objects(tools: object) -> list[Schema]:
    return [_flatten_tool(tool) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def _flatten_tool(tool: Schema) -> Schema:
    kind = tool.get("type")
    inner = tool.get(kind) if isinstance(kind, str) else None
    return {**inner, "type": kind} if isinstance(inner, dict) else tool


def _list_long_words(text: str) -> frozenset[str]:
    """Return the words of a text or a name that are long enough to show its subject."""
    return frozenset(word.casefold() for word in _LONG_WORD.findall(_CAMEL_SEAM.sub(" ", text)))


def _choose_arguments(parameters: Schema, *, message: str) -> str:
    properties, required = parameters.get("properties"), parameters.get("required")
    schemas = properties if isinstance(properties, dict) else {}
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return orjson.dumps({name: _choose_value(schemas.get(name), message=message) for name in names}).decode()


def _choose_value(schema: object, *, message: str) -> object:
    """Return a value that fits the schema, for a parameter without a type the text that a string gets."""
    if not isinstance(schema, dict):
        return _find_subject(message)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _choose_first(schema["enum"])
    if "anyOf" in schema:
        return _choose_value(_choose_first(schema["anyOf"]), message=message)
    match _choose_first(schema.get("type")):
        case "integer":
            return _choose_number(schema, whole=True)
        case "number":
            return _choose_number(schema, whole=False)
        case "boolean":
            return True
        case "array":
            return []
        case "object":
            return {}
        case "null":
            return None
        case _:
            return _find_subject(message)


def _choose_first(alternatives: object) -> object:
    return alternatives[0] if isinstance(alternatives, list) and alternatives else alternatives


def _choose_number(schema: Schema, *, whole: bool) -> float:
    """Return 1, or the bound of the schema that is next to it."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, int | float) and low > 1:
        return math.ceil(low) if whole else low
    if isinstance(high, int | float) and high < 1:
        return math.floor(high) if whole else high
    return 1


def _find_subject(message: str) -> str:
    """Return the longest run of capitalised words that does not begin the message, else the message."""
    first = _WORD.search(message)
    runs: list[slice] = []
    for word in _WORD.finditer(message):
        if not word[0][0].isupper():
            continue
        if runs and message[runs[-1].stop : word.start()].isspace():
            runs[-1] = slice(runs[-1].start, word.end())
        else:
            runs.append(slice(word.start(), word.end()))
    names = [message[run] for run in runs if first is not None and run.start != first.start()]
    return max(names, key=len, default=message)
