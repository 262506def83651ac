"""The functions that a client brings: which one a message is about, and its arguments."""

import json
from typing import Any

import pytest

from gateway.demo.functions import NO_FUNCTIONS, Function, Functions, read_functions

WEATHER = "What's the weather like in San Francisco?"


def called(message: str, *names: str, forced: bool = False, by_words: bool = True) -> str | None:
    call = Functions(tuple(Function(name, {}) for name in names), forced).find_call(message, by_words=by_words)
    return None if call is None else call.name


def argument(schema: object, message: str = WEATHER) -> Any:
    parameters = {"type": "object", "properties": {"a": schema, "left_out": {}}, "required": ["a"]}
    call = Functions((Function("get_weather", parameters),), forced=True).find_call(message, by_words=True)
    assert call is not None
    (pair,) = json.loads(call.arguments).items()
    assert pair[0] == "a"
    return pair[1]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (WEATHER, "get_weather"),
        ("WEATHER!", "get-weather"),
        (WEATHER, "getWeather"),
        ("my weather", "GETWeatherNow"),
        ("Use getWeather.", "weather"),
        ("call get_weather", "weather.get"),
        ("Wie ist das Wetter in Köln?", "wetter"),
    ],
)
def test_message_matches_a_function_by_its_long_words(message: str, name: str) -> None:
    """A message is about a function whose name has one of its long words, in any case and way of writing."""
    assert called(message, name) == name


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (WEATHER, "get_time"),
        ("get it in an hour", "get_in"),
        ("the weathers", "weather"),
        ("Wetterübersicht", "wetter"),
        ("", "weather"),
    ],
)
def test_unrelated_message_calls_no_function(message: str, name: str) -> None:
    """Short words, parts of words and other words lead to no call."""
    assert called(message, name) is None


def test_first_matching_function_is_called() -> None:
    """The first function that a word names is called; if a call is forced and no word fits, the first of all."""
    names = ("get_time", "get_weather", "weather_map")
    assert called(WEATHER, *names) == called(WEATHER, *names, forced=True) == "get_weather"
    assert called("hello", *names, forced=True) == called(WEATHER, *names, forced=True, by_words=False) == "get_time"
    assert called("hello", *names) is called(WEATHER, *names, by_words=False) is called("hello", forced=True) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "San Francisco"),
        ({"type": ["string", "null"]}, "San Francisco"),
        ({}, "San Francisco"),
        (None, "San Francisco"),
        ({"type": "string", "enum": ["c", "f"]}, "c"),
        ({"const": None}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 2.5}, 3),
        ({"type": "integer", "minimum": -5, "maximum": 0.5}, 0),
        ({"type": "number", "minimum": 2.5}, 2.5),
        ({"type": "number", "minimum": 0, "maximum": 0.5}, 0.5),
        ({"type": "number", "minimum": "x"}, 1),
        ({"type": "boolean"}, True),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "object"}, {}),
        ({"type": "null"}, None),
    ],
)
def test_required_arguments_get_values_of_their_type(schema: object, value: object) -> None:
    """Each required argument gets a value of its type, and the others are left out."""
    assert argument(schema) == value and type(argument(schema)) is type(value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Is it warm in Rome, Oslo or New York?", "New York"),
        ("Can I fly to Köln?", "Köln"),
        ("fly to Île-de-France", "Île-de-France"),
        ("Saint Petersburg or Ulm?", "Ulm"),
        ('"Paris" or Rome?', "Rome"),
        ("San Francisco weather", "San Francisco weather"),
        ("how warm is it?", "how warm is it?"),
        ("", ""),
    ],
)
def test_text_argument_is_a_capitalised_name_or_the_message(message: str, text: str) -> None:
    """Text is the longest capitalised name that does not begin the message, else all of it."""
    assert argument({"type": "string"}, message) == text


@pytest.mark.parametrize("parameters", [None, 3, {"required": "a"}, {"properties": [], "required": [3]}])
def test_malformed_schema_has_no_required_arguments(parameters: object) -> None:
    """A schema that is none has no required arguments."""
    functions = read_functions([{"type": "function", "name": "weather", "parameters": parameters}], choice="auto")
    call = functions.find_call(WEATHER, by_words=True)
    assert call is not None and call.arguments == "{}"


BESIDE = [{"type": "function", "name": "a", "parameters": {"x": 1}}, {"type": "function", "name": "b"}]
INSIDE = [{"type": tool["type"], "function": {k: v for k, v in tool.items() if k != "type"}} for tool in BESIDE]
A, B = Function("a", {"x": 1}), Function("b", {})


@pytest.mark.parametrize(
    ("choice", "functions"),
    [
        (None, Functions((A, B))),
        ("auto", Functions((A, B))),
        ("none", NO_FUNCTIONS),
        ("required", Functions((A, B), forced=True)),
        ({"type": "function", "name": "b"}, Functions((B,), forced=True)),
        ({"type": "function", "function": {"name": "b"}}, Functions((B,), forced=True)),
        ({"type": "allowed_tools", "mode": "auto", "tools": BESIDE[:1]}, Functions((A,))),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": INSIDE[:1]}}, Functions((A,), True)),
        ({"type": "web_search"}, NO_FUNCTIONS),
        ({}, NO_FUNCTIONS),
    ],
)
@pytest.mark.parametrize("tools", [BESIDE, INSIDE])
def test_functions_are_read_from_chat_and_responses_tools(tools: object, choice: object, functions: Functions) -> None:
    """Tools and the choice among them are read in the form of chat completions and in that of responses."""
    assert read_functions(tools, choice=choice) == functions


@pytest.mark.parametrize(
    "tools",
    [
        None,
        3,
        [],
        ["a"],
        [{}],
        [{"type": "function"}],
        [{"type": ["x"], "name": "a"}],
        [{"type": "custom", "name": "a"}],
    ],
)
def test_non_function_tools_are_ignored(tools: object) -> None:
    """Tools of other kinds or shapes are no functions."""
    assert read_functions(tools, choice=None) == NO_FUNCTIONS
