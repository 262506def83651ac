"""Calls whose arguments must be exactly what the client's API has."""

from gateway.agent.output.fixed_argument_calls import reject_inexact_calls
from gateway.agent.output.tool_calls import CallGroup, MalformedCall, Prose
from gateway.contracts.calls import FoundCall
from gateway.contracts.storage.store import Json

SCHEMA: Json = {"type": "object", "properties": {"commands": {"type": "array"}}, "required": ["commands"]}
FITS = FoundCall("shell", {"commands": []}, terminate=False)


def test_arguments_are_checked_only_for_tools_with_a_schema() -> None:
    """Functions of the client get whatever their model wrote."""
    other = CallGroup((FoundCall("look", {"x": 1}, terminate=False), FITS))
    assert reject_inexact_calls(other, {"shell": SCHEMA}) is other
    wrong = CallGroup((FoundCall("shell", {}, terminate=False),))
    assert reject_inexact_calls(wrong, {}) is wrong
    assert reject_inexact_calls(Prose(), {"shell": SCHEMA}) == Prose()


def test_one_call_that_does_not_fit_makes_the_answer_malformed() -> None:
    """Half of a group is another action."""
    found = reject_inexact_calls(
        CallGroup((FITS, FoundCall("shell", {"command": "ls"}, terminate=False))), {"shell": SCHEMA}
    )
    assert found == MalformedCall("""The arguments of 'shell' do not fit: "commands" is a required property.""")
