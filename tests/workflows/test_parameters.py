"""Parameters of a workflow: read from a chat message, typed, checked; each error names its parameter."""

from contextlib import suppress
from typing import Any

import pytest
from measuring import Effort

from gateway.workflows.parameters import (
    PROBLEMS_LIMIT,
    Json,
    ParameterError,
    convert_parameters,
    read_arguments,
    validate_parameters,
)


def schema(*required: str, **properties: Any) -> Json:
    """Properties by type, or whole."""
    whole = {name: facts if isinstance(facts, dict) else {"type": facts} for name, facts in properties.items()}
    return {"type": "object", "properties": whole, "required": list(required), "additionalProperties": False}


ALL = schema(s="string", i="integer", n="number", b="boolean", a="array", o="object")
TEXT = schema("text", language={"type": "string", "default": "English"}, text="string", count="integer")


def refused(name: str, text: str, of: Json) -> str:
    with pytest.raises(ParameterError) as error:
        read_arguments(text, of)
    assert error.value.name == name and ascii(name) in str(error.value)
    return str(error.value)


def test_parameter_defaults_are_filled_in_schema_order() -> None:
    """What is neither given nor has a default stays absent."""
    assert list(validate_parameters({"text": "x"}, TEXT).items()) == [("language", "English"), ("text", "x")]
    assert validate_parameters({"count": 2, "text": "x", "language": ""}, TEXT) == {
        "language": "",
        "text": "x",
        "count": 2,
    }
    assert validate_parameters({}, schema(x={"type": "boolean", "default": False})) == {"x": False}


@pytest.mark.parametrize(
    ("given", "of", "name", "problem"),
    [
        ({}, TEXT, "text", "it is required"),
        ({"text": 3}, TEXT, "text", "it must be a text"),
        ({"text": None}, TEXT, "text", "it must be a text"),
        ({"text": "x", "count": "3"}, TEXT, "count", "it must be a whole number"),
        ({"text": "x", "count": 1.5}, TEXT, "count", "it must be a whole number"),
        ({"text": "x", "count": True}, TEXT, "count", "it must be a whole number"),
        ({"text": "x", "txet": "y"}, TEXT, "txet", "there is no such parameter; there are language, text, count"),
        ({"x": 1}, schema(), "x", "there are no parameters"),
        ({"a": {}}, ALL, "a", "it must be a JSON array such as [1, 2]"),
        ({"o": []}, ALL, "o", "it must be a JSON object"),
        ({"b": 1}, ALL, "b", "it must be true or false"),
        ({"n": "1"}, ALL, "n", "it must be a number"),
        ({"m": "c"}, schema(m={"type": "string", "enum": ["a", "b"]}), "m", "it must be one of a, b"),
        ({"m": 3}, schema(m={"type": "integer", "enum": list(range(5, 99))}), "m", "23, 24, ..."),
    ],
)
def test_parameter_error_names_the_parameter_and_the_expected_value(
    given: Json, of: Json, name: str, problem: str
) -> None:
    """Never the value, which may be long or private."""
    with pytest.raises(ParameterError) as error:
        validate_parameters(given, of)
    assert error.value.name == name
    assert f"Parameter {name!r}: " in str(error.value) and problem in str(error.value)


def test_several_parameter_problems_are_reported_together_up_to_a_limit() -> None:
    """Each parameter once, and not all of a hundred."""
    with pytest.raises(ParameterError, match=r"Parameter 'i': .*\. Parameter 'b': ") as error:
        validate_parameters({"i": "x", "b": "secret"}, ALL)
    assert error.value.name == "i" and "secret" not in str(error.value)
    with pytest.raises(ParameterError) as error:
        validate_parameters({}, schema(*(f"p{i}" for i in range(100))))
    assert str(error.value).count("required") == PROBLEMS_LIMIT


def test_long_parameter_name_is_truncated_in_errors() -> None:
    """It is a stranger's word."""
    with pytest.raises(ParameterError) as error:
        validate_parameters({"é\n" * 1000: 1}, ALL)
    assert len(error.value.name) == 64 and len(str(error.value)) < 500 and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("s", "007", "007"),
        ("s", "", ""),
        ("i", "-12", -12),
        ("i", " 12 ", 12),
        ("n", "12", 12),
        ("n", "-1.5e3", -1500.0),
        ("b", "true", True),
        ("b", "False", False),
        ("a", '[1, {"x": null}]', [1, {"x": None}]),
        ("o", "{}", {}),
    ],
)
def test_a_written_value_gets_the_type_of_its_parameter(name: str, text: str, value: object) -> None:
    """Numbers in plain digits, arrays and objects as JSON."""
    found = convert_parameters({name: text}, ALL)[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("i", "1.0"),
        ("i", "x"),
        ("i", ""),
        ("i", "1_000"),
        ("i", "9" * 19),
        ("i", "١"),
        ("n", "nan"),
        ("n", "1e999"),
        ("n", "0x10"),
        ("b", "yes"),
        ("b", "1"),
        ("a", "{}"),
        ("a", "1,2"),
        ("a", "[1"),
        ("o", "[]"),
        ("o", '{"a":1,"a":2}'),
        ("o", "[" * 100_000),
        ("z", "1"),
    ],
)
def test_a_written_value_that_does_not_fit_is_refused(name: str, text: str) -> None:
    """With the parameter's name, and without the value."""
    with pytest.raises(ParameterError) as error:
        convert_parameters({name: text}, ALL)
    assert error.value.name == name and f"Parameter {name!r}: " in str(error.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        (" \n ", {}),
        ("s=x i=3 b=true", {"s": "x", "i": 3, "b": True}),
        ("s=", {"s": ""}),
        ("s=a=b", {"s": "a=b"}),
        ('s="two words" i=3', {"s": "two words", "i": 3}),
        ("s='two words'", {"s": "two words"}),
        (r's="say \"hi\" to C:\\x \n"', {"s": r'say "hi" to C:\x \n'}),
        ("s='it\\'s'", {"s": "it's"}),
        ('s="two\nlines"', {"s": "two\nlines"}),
        ("a='[1, 2]' o='{\"k\": \"v\"}'", {"a": [1, 2], "o": {"k": "v"}}),
        ("a=[1,2]", {"a": [1, 2]}),
        ("i=3 the rest of it", {"i": 3, "s": "the rest of it"}),
    ],
)
def test_name_value_pairs_are_read_as_parameters(text: str, found: Json) -> None:
    """With quotes where there are spaces."""
    assert read_arguments(text, ALL) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hello there", "Hello there"),
        ("language=fr  Hello\n  there  ", "Hello\n  there"),
        ("Hello there language=fr", "Hello there"),
        ("language=fr Hello count=2", "Hello"),
        ("if language=fr then", "if language=fr then"),
        ("x=1 is an equation", "x=1 is an equation"),
        ('he said "hi" and don\'t', 'he said "hi" and don\'t'),
        ("{{config.keys}} {% x %} ${y}", "{{config.keys}} {% x %} ${y}"),
        ('an open language="quote', 'an open language="quote'),
        ("Text=1", "Text=1"),
    ],
)
def test_remaining_text_becomes_the_first_required_string(text: str, found: str) -> None:
    """As it is, also where something in the middle of it looks like a pair."""
    assert read_arguments(text, TEXT)["text"] == found


def test_remaining_text_is_assigned_to_the_first_unset_parameter() -> None:
    """The first required string without one, else the only string, else the only parameter."""
    two = schema("first", "second", first="string", second="string")
    assert read_arguments("first=a b c", two) == {"first": "a", "second": "b c"}
    assert read_arguments("second=a b c", two) == {"second": "a", "first": "b c"}
    assert read_arguments("some words", schema(s="string", i="integer")) == {"s": "some words"}
    assert read_arguments("5", schema("i", i="integer")) == {"i": 5}


def test_unassignable_text_is_refused_with_known_parameters() -> None:
    """With its first word, which was meant as a name."""
    assert "there are a, b" in refused("c", "c=3", schema(a="integer", b="integer"))
    assert "there are a, b" in refused("5", "5 6", schema(a="string", b="string"))
    assert "there are no parameters" in refused("please", "please", schema())
    refused("x", "text=a x y", schema("text", text="string"))


def test_unreadable_parameter_error_names_the_parameter() -> None:
    """Twice the same, an open quote, a missing one, a wrong type."""
    assert "given twice" in refused("i", "i=1 i=2", ALL)
    assert "given twice" in refused("text", "text=a hello text=b", TEXT)
    assert "closing quote" in refused("s", 's="open', ALL)
    assert "closing quote" in refused("s", "s='open'x", ALL)
    assert "required" in refused("text", "language=fr", TEXT)
    assert "whole number" in refused("count", "count=many hello", TEXT)


@pytest.mark.parametrize(
    "piece",
    [
        'text="',
        "text='",
        'text="a"b ',
        'text="\\" ',
        "a=\"b=' ",
        '"',
        "\\",
        " ",
        "language=x ",
        "a" * 63 + " ",
        "text=",
    ],
)
def test_argument_parsing_takes_linear_time(piece: str) -> None:
    """Of a megabyte that somebody made to be slow."""
    text = f"x {piece * (1_000_000 // len(piece))}"
    effort = Effort()
    with suppress(ParameterError):
        read_arguments(text, TEXT)
    assert effort.cpu_s < 3
