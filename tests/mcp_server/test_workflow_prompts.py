"""Workflows as prompts: their steps for the model of the client."""

import pytest
from mcp.shared.exceptions import MCPError

from gateway.mcp_server.prompts import WorkflowPrompts
from gateway.workflows.definition import Workflow

FLOW = Workflow.model_validate(
    {
        "name": "tidy",
        "description": "Tidies a folder.",
        "parameters": {"path": {"required": True, "description": "Which one."}, "depth": {"type": "integer"}},
        "steps": [
            {"name": "listed", "tool": "here.list", "with": {"path": "{{params.path}}", "depth": "{{params.depth}}"}},
            {"name": "said", "model": "What is odd in {{steps.listed}}?"},
        ],
    }
)
PROMPTS = WorkflowPrompts(lambda: {"tidy": FLOW})


def test_a_workflow_is_listed_with_its_parameters() -> None:
    """Each says whether it must be given."""
    (entry,) = PROMPTS.list_prompts()
    assert (entry["name"], entry["description"]) == ("tidy", "Tidies a folder.")
    path = {"name": "path", "required": True, "description": "Which one."}
    assert entry["arguments"] == [path, {"name": "depth", "required": False}]


def test_workflow_prompt_text_contains_its_arguments() -> None:
    """Results of earlier steps are named."""
    text = PROMPTS.get("tidy", {"path": "/a", "depth": "2"})["messages"][0]["content"]["text"]
    assert '1. Call the tool here__list with these arguments: {"path":"/a","depth":2}' in text
    assert "2. What is odd in <the result of step 1>?" in text


@pytest.mark.parametrize("arguments", [{}, {"path": "/a", "depth": "deep"}, {"path": "/a", "more": "x"}])
def test_invalid_workflow_prompt_arguments_are_refused(arguments: dict[str, str]) -> None:
    """The error names the parameter."""
    with pytest.raises(MCPError, match="Parameter"):
        PROMPTS.get("tidy", arguments)


def test_workflow_prompt_over_the_size_limit_is_refused() -> None:
    """The text that comes out of references is bounded."""
    with pytest.raises(MCPError, match="too long"):
        PROMPTS.get("tidy", {"path": "x" * ((1 << 20) + 1)})
