"""A call's arguments fit its tool's schema, or the model is told what does not."""

import time

import pytest

from gateway.contracts.storage.store import Json
from gateway.testing.scripts import build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream
from gateway.tools.schema import PROBLEMS_LIMIT, Schemas, with_defaults

from .doubles import spec

PATH: Json = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer", "minimum": 1}},
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("arguments", [{"path": "x"}, {"path": "", "lines": 3}])
def test_arguments_that_fit_have_no_problem(arguments: Json) -> None:
    """Nothing is added, nothing converted."""
    assert Schemas().find_problem(spec(parameters=PATH), arguments) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ['"path"', "required"]),
        ({"path": 1}, ["path:", "string"]),
        ({"path": "x", "lines": 0}, ["lines:", "minimum"]),
        ({"path": "x", "other": 1}, ["other"]),
        ({"lines": "3"}, ["lines:", "integer", "path"]),
    ],
)
def test_problems_name_the_place_and_the_rule(arguments: Json, words: list[str]) -> None:
    """All of a few at once."""
    problem = Schemas().find_problem(spec(parameters=PATH), arguments)
    assert problem is not None
    for word in words:
        assert word in problem


def test_schema_problem_text_is_bounded() -> None:
    """However much is wrong, and however large it is."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    problem = Schemas().find_problem(spec(parameters=schema), {f"a{i}": "x" for i in range(1000)})
    assert problem is not None and problem.count(";") == PROBLEMS_LIMIT - 1
    large = Schemas().find_problem(spec(parameters=schema), {"a": "x" * 1_000_000})
    assert large is not None and len(large) <= 2000


@pytest.mark.parametrize(
    "schema", [{"type": "nope"}, {"$ref": "#/nowhere"}, {"type": "object", "properties": {"a": {"pattern": "("}}}]
)
def test_invalid_schema_definition_rejects_every_call(schema: Json) -> None:
    """The model is told, instead of a tool run with arguments that nobody checked."""
    problem = Schemas().find_problem(spec("odd", parameters=schema), {})
    assert problem is not None and problem.startswith("the definition of 'odd' is broken")


async def test_schema_references_are_never_fetched() -> None:
    """What it refers to elsewhere, in the network or on disk, makes it broken."""
    async with FakeUpstream(serve(build_ok_answer(b"{}"))) as upstream:
        for reference in (f"{upstream.base_url}/schema", "file:///etc/hostname"):
            problem = Schemas().find_problem(spec(parameters={"$ref": reference}), {})
            assert problem is not None and "is broken" in problem
        assert not upstream.connections


def test_a_pattern_takes_linear_time() -> None:
    """Definitions may be a stranger's, arguments the model's."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    began = time.process_time()
    assert Schemas().find_problem(spec(parameters=schema), {"a": "a" * 50_000 + "!"}) is not None
    assert time.process_time() - began < 1


def test_only_the_first_of_many_schema_problems_is_reported() -> None:
    """5,000 objects without three keys each are 15,000 errors: none but the first is built."""
    item = {"type": "object", "required": ["a", "b", "c"]}
    problem = Schemas().find_problem(spec(parameters={"properties": {"rows": {"items": item}}}), {"rows": [{}] * 5000})
    assert problem == 'rows.0: "a" is a required property'


def test_changed_schema_applies_immediately() -> None:
    """The name alone does not decide."""
    schemas = Schemas()
    assert schemas.find_problem(spec(parameters=PATH), {}) is not None
    assert schemas.find_problem(spec(parameters={"type": "object"}), {}) is None
    assert schemas.find_problem(spec(parameters=PATH), {}) is not None


def test_deeply_nested_arguments_are_validated() -> None:
    """A hundred levels are as good as one."""
    deep: Json = {}
    for _ in range(100):
        deep = {"path": deep}
    problem = Schemas().find_problem(spec(parameters=PATH), deep)
    assert problem is not None and "path:" in problem


def test_defaults_are_filled_in() -> None:
    """Of what is not there, also in an object that is; null is no default, and the arguments given stay as they are."""
    schema: Json = {
        "type": "object",
        "properties": {
            "method": {"type": "string", "default": "GET"},
            "limit": {"type": "integer", "default": 10},
            "cursor": {"type": "string", "default": None},
            "options": {"type": "object", "properties": {"deep": {"default": [1]}}},
        },
    }
    given: Json = {"limit": 3, "options": {}}
    assert with_defaults(schema, given) == {"limit": 3, "options": {"deep": [1]}, "method": "GET"}
    assert given == {"limit": 3, "options": {}} and with_defaults({}, given) == given


def test_defaults_that_do_not_fit_are_left_out() -> None:
    """A definition that contradicts itself must not break a call that fits."""
    schemas = Schemas()
    broken = spec(parameters={"type": "object", "properties": {"n": {"type": "integer", "default": "ten"}}})
    assert schemas.fill_defaults(broken, {}) == {}
