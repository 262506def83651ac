"""The definition of a workflow: its form, and its definition as its runs keep it."""

import orjson
import pytest
from pydantic import ValidationError

from gateway.workflows.definition import Workflow, WorkflowParameter

TREE = {
    "name": "table-report",
    "description": "Reports.",
    "parameters": {
        "sql": {"required": True, "description": "One statement."},
        "max_rows": {"type": "integer", "default": 10, "enum": [10, 20]},
    },
    "steps": [
        {"name": "rows", "tool": "execute_sql", "with": {"sql": "{{params.sql}}", "deep": [1, {"a": None}]}},
        {"name": "said", "model": "{{steps.rows}}"},
        {"name": "end", "prompt": "{{steps.said}}"},
    ],
}


def test_workflow_schema_describes_its_parameters_in_order() -> None:
    """Of type object, with titles, descriptions and defaults, in the order of the file; nothing else is taken."""
    assert Workflow.model_validate(TREE).build_schema() == {
        "type": "object",
        "title": "table-report",
        "description": "Reports.",
        "properties": {
            "sql": {"type": "string", "title": "Sql", "description": "One statement."},
            "max_rows": {"type": "integer", "title": "Max rows", "default": 10, "enum": [10, 20]},
        },
        "required": ["sql"],
        "additionalProperties": False,
    }
    assert WorkflowParameter(type="boolean", default=False).build_schema("dry-run") == {
        "type": "boolean",
        "title": "Dry run",
        "default": False,
    }


def test_omitted_workflow_fields_take_their_defaults() -> None:
    """A parameter is an optional text; a workflow without parameters is complete."""
    workflow = Workflow.model_validate({"name": "w", "description": "x", "steps": [{"name": "a", "prompt": "hi"}]})
    assert (workflow.category, workflow.parameters, workflow.steps[0].with_) == ("general", {}, {})
    plain = WorkflowParameter()
    assert (plain.type, plain.required, plain.default, plain.enum) == ("string", False, None, None)
    assert workflow.build_schema()["properties"] == {}


def test_workflow_definition_round_trips_through_json() -> None:
    """Through JSON, as a run on record keeps it."""
    workflow = Workflow.model_validate(TREE)
    assert Workflow.model_validate(orjson.loads(orjson.dumps(workflow.build_definition()))) == workflow


def test_workflow_is_immutable() -> None:
    """Runs share it."""
    workflow = Workflow.model_validate(TREE)
    with pytest.raises(ValidationError):
        workflow.name = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        workflow.steps[0].tool = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a b", "a.b", "ä", "a" * 65, "a/b", "a\n"])
def test_workflow_and_parameter_names_are_restricted(name: str) -> None:
    """They stand in paths, behind `/` in a chat, in metrics and in references."""
    with pytest.raises(ValidationError):
        Workflow.model_validate({**TREE, "name": name})
    with pytest.raises(ValidationError):
        Workflow.model_validate({**TREE, "parameters": {name: {}}})
    assert Workflow.model_validate({**TREE, "name": "a" * 64}).name == "a" * 64
