"""What checking a value by a stranger's schema takes: bounded in time and memory, however schema and value are made."""

import resource
from typing import Any

import jsonschema_rs
import pytest
from measuring import Effort

from gateway.tools.schema_check import SchemaCheck

#: Compares each character with hundreds of states.
SLOW = "(?:a|b)*a(?:a|b){300}c"


def check(schema: Any) -> SchemaCheck:
    options = jsonschema_rs.RegexOptions()
    return SchemaCheck(schema, jsonschema_rs.validator_for(schema, offline=True, pattern_options=options))


def test_schema_problems_report_paths_up_to_the_limit() -> None:
    """The first ones, and no more than are wanted."""
    names = check({"type": "object", "properties": {"n": {"items": {"type": "string"}}}, "required": ["m"]})
    assert names.list_problems({"n": [], "m": 1}, most=5) == []
    assert sorted(names.list_problems({"n": ["a", 2, 3]}, most=5)) == [
        '"m" is a required property',
        'n.1: 2 is not of type "string"',
        'n.2: 3 is not of type "string"',
    ]
    assert len(names.list_problems({"n": [2, 3]}, most=2)) == 2


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"allOf": [{"type": "string"}] * 500}},
        {
            "items": {"$ref": "#/$defs/a"},
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}] * 500}, "b": {"type": "null"}},
        },
        {"items": {"allOf": [{"$ref": "#b"}] * 500}, "$defs": {"b": {"$anchor": "b", "type": "null"}}},
    ],
    ids=["parts", "references", "anchors"],
)
def test_schema_check_builds_only_the_first_of_many_errors(schema: Any) -> None:
    """400 numbers were 200,000 errors and 0.3 GB, before the first of them was told."""
    found, effort, before_kib = check(schema), Effort(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(found.list_problems([1] * 400, most=5)) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 << 10
    assert effort.cpu_s < 1


def test_repeated_errors_about_a_long_value_are_reported_once() -> None:
    """500 errors, each with a text of 100,000 characters."""
    problems = check({"allOf": [{"type": "null"}] * 500}).list_problems("x" * 100_000, most=5)
    assert len(problems) == 1 and "is not of type" in problems[0]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"not": {"pattern": SLOW}}] * 40}, "ab" * 10_000),
        ({"allOf": [{"patternProperties": {SLOW: False}}] * 40}, {"ab" * 10_000: 1}),
        ({"allOf": [{"$ref": "#/$defs/a"}] * 40, "$defs": {"a": {"not": {"pattern": SLOW}}}}, "ab" * 10_000),
        ({"allOf": [{"not": {"contains": {"const": -1}}}] * 100}, list(range(60_000))),
    ],
    ids=["patterns", "patterns of names", "references", "parts"],
)
def test_expensive_schema_check_is_refused(schema: Any, value: Any) -> None:
    """It counts as a value that does not fit."""
    found, effort = check(schema), Effort()
    (problem,) = found.list_problems(value, most=5)
    assert problem.startswith("it is too large to be checked")
    assert effort.cpu_s < 1


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {f"p{n}": {"pattern": r"^[\w.-]{1,128}$"} for n in range(12)}}, {"text": "x" * 10_000}),
        ({"properties": {"path": {"pattern": "^.{1,500}$"}, "text": {}}}, {"path": "a", "text": "x" * 10_000}),
        ({"properties": {"rows": {"items": {"type": "object"}}}}, {"rows": [{"n": n} for n in range(20_000)]}),
        ({"$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}, [[[]]] * 20_000),
        ({"allOf": [{"type": "array"}] * 500}, [1] * 1000),
    ],
    ids=["patterns", "a large pattern", "rows", "a schema that refers to itself", "parts"],
)
def test_ordinary_large_values_are_checked(schema: Any, value: Any) -> None:
    """Long texts beside patterns, many rows, and schemas that plugins bring."""
    assert check(schema).list_problems(value, most=5) == []
