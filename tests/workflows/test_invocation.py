"""Workflows that a chat message calls."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.workflows.definition import Workflow
from gateway.workflows.invocation import check_parameters, find_workflow_call
from tests.api.workflow_pages import ALL


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("/translate Hello there", "translate", {"text": "Hello there", "language": "English"}),
        ("  /translate\nlanguage=German Hi", "translate", {"text": "Hi", "language": "German"}),
        (
            "/translate language=German text='a b' times=3",
            "translate",
            {"text": "a b", "language": "German", "times": 3},
        ),
        ("/deploy", "deploy", {}),
    ],
)
def test_a_chat_message_calls_a_workflow(text: str, name: str, parameters: dict[str, object]) -> None:
    """`/name` is its first word; the rest are the parameters."""
    assert find_workflow_call(text, ALL) == (ALL[name], parameters)


@pytest.mark.parametrize(
    "text",
    ["", "/", "/nope x", "please /deploy", "/deploy/now", "//deploy", "/Deploy", "/deploy.", "deploy", "/etc/hosts"],
)
def test_an_unknown_name_is_ordinary_text(text: str) -> None:
    """And so is a name that is not the first word."""
    assert find_workflow_call(text, ALL) is None


def test_a_chat_message_with_wrong_parameters_is_refused() -> None:
    """The error names the parameter, as that of the page does."""
    for text, param in (("/translate", "text"), ("/translate times=x hi", "times"), ("/deploy now", "now")):
        with pytest.raises(GatewayError) as error:
            find_workflow_call(text, ALL)
        assert (error.value.code, error.value.param) == ("invalid_parameters", param)
    assert check_parameters(Workflow.model_validate(ALL["deploy"].build_definition()), {}) == {}
