"""A workflow's state machine: its steps in order, what each result leads to, and a run that goes on from its record."""

import itertools
from typing import Any

import orjson
import pytest

from gateway.agent.loop import Action, AskAction, Execute, Finish
from gateway.agent.output.scanner import CallGroup, MalformedCall, Prose
from gateway.agent.workflow_loop import RESULT_CHARS, WorkflowLoop
from gateway.contracts.calls import CallOutcome, FoundCall, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.templates import FILLED_CHARS, fill_object
from gateway.contracts.tools import ToolCall
from gateway.workflows.definition import Workflow

AUTO = Verdict("auto", "whitelist", "harmless")
CONFIRM = Verdict("confirm", "default", "unknown")
ROWS = {"name": "rows", "tool": "execute_sql", "with": {"sql": "SELECT {{params.n}}", "deep": ["{{params.n}}"]}}
SAID = {"name": "said", "model": "What of {{steps.rows}}?"}
REPORT = {"name": "report", "prompt": "# {{params.title}}\n{{steps.said}}"}


def script(*steps: Json, **parameters: Any) -> WorkflowLoop:
    """A run of a workflow with these steps; its tool `forbidden` is refused, `risky` needs a person."""
    tree = {"name": "w", "description": "x", "steps": steps}
    numbers = itertools.count(1)
    return WorkflowLoop(
        workflow=Workflow.model_validate(tree),
        parameters=parameters,
        plan=_plan,
        new_id=lambda: f"call_{next(numbers)}",
        run_id="run_1",
        fill=lambda _tool, arguments, values: fill_object(arguments, values),
    )


def _plan(call: FoundCall, call_id: str) -> PlannedCall:
    asked = ToolCall(id=call_id, tool=call.tool, arguments=call.parameters, terminate=call.terminate)
    refusal = "Not run: refused by policy. No." if call.tool == "forbidden" else None
    return PlannedCall(asked, None, CONFIRM if call.tool == "risky" else AUTO, refusal)


def ran(run: WorkflowLoop, action: Action, whole: str, *, ok: bool = True) -> Action:
    """Return the action after the one call."""
    assert isinstance(action, Execute)
    (planned,) = action.planned
    text = planned.refusal or whole
    return run.handle_results(action.planned, [CallOutcome(f"shown {text[:10]}", text, ok=ok)])


def said(run: WorkflowLoop, action: Action, text: str, *, finish_reason: str | None = "stop") -> Action:
    assert isinstance(action, AskAction)
    return run.handle_answer(text, Prose(), finish_reason=finish_reason)


def failed(act: Any) -> str:
    with pytest.raises(GatewayError) as error:
        act()
    assert (error.value.code, error.value.facts.status) == ("workflow_failed", 422)
    assert "'w'" in error.value.message and "run_1" in error.value.message
    return error.value.message


def again(run: WorkflowLoop) -> WorkflowLoop:
    """The same run in another process, as its record has it."""
    other = script(*run.workflow.build_definition()["steps"], **run.parameters)
    other.restore(orjson.loads(orjson.dumps(run.take_snapshot())), [])
    return other


def test_workflow_steps_run_in_order_and_return_the_last_result() -> None:
    """A tool, the model, a text; each sees the parameters and the results before it."""
    run = script(ROWS, SAID, REPORT, n=3, title="Numbers")
    first = run.begin()
    assert isinstance(first, Execute)
    (planned,) = first.planned
    assert planned.call == ToolCall(id="call_1", tool="execute_sql", arguments={"sql": "SELECT 3", "deep": [3]})
    asked = ran(run, first, "n\n3")
    assert asked == AskAction(({"role": "user", "content": "What of n\n3?"},)) and run.messages == asked.messages
    assert said(run, asked, "It is three.") == Finish("# Numbers\nIt is three.", "stop")
    assert (run.asked, run.hidden, run.client_tools, run.content) == (1, [], frozenset(), "")


def test_workflow_of_text_steps_finishes_immediately() -> None:
    """And so are several."""
    texts = ({"name": "a", "prompt": "<{{params.x}}>"}, {"name": "b", "prompt": "{{steps.a}}{{steps.a}}"})
    assert script(*texts, x="y").begin() == Finish("<y><y>", "stop")


def test_workflow_model_step_receives_one_user_message() -> None:
    """Nothing of the steps before, and nothing of the client's conversation."""
    run = script(ROWS, {"name": "alone", "model": "Say hi."}, SAID, n=1)
    assert run.messages == ()
    asked = ran(run, run.begin(), "secret rows")
    assert asked == AskAction(({"role": "user", "content": "Say hi."},))
    assert said(run, asked, "hi") == AskAction(({"role": "user", "content": "What of secret rows?"},))


def test_workflow_model_step_receives_no_tools() -> None:
    """Whatever the request said that began the run; its other fields hold."""
    run = script({"name": "a", "model": "Say {{params.x}}."}, x="hi")
    body = {"model": "m", "temperature": 0, "messages": [], "tools": [{}], "tool_choice": "auto"}
    body |= {"functions": [{}], "function_call": "auto", "parallel_tool_calls": True, "response_format": {}}
    asked = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "Say hi."}]}
    assert run.build_request(body, [{"role": "user", "content": "/w hi"}]) == asked


@pytest.mark.parametrize(
    "outcome", [Prose(), MalformedCall("cut"), CallGroup((FoundCall("execute_sql", {"sql": "DROP TABLE t"}, True),))]
)
def test_workflow_answer_resembling_a_call_is_text(outcome: Any) -> None:
    """Nobody offered the model a tool, and what it says runs nowhere."""
    text = '{"tool": "execute_sql", "parameters": {"sql": "DROP TABLE t"}, "terminate": true}'
    run = script({"name": "a", "model": "x"}, {"name": "b", "prompt": "It said: {{steps.a}}"})
    run.begin()
    assert run.handle_answer(text, outcome, finish_reason="stop") == Finish(f"It said: {text}", "stop")


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        (None, "stop"),
    ],
)
def test_last_model_step_passes_on_its_finish_reason(outcome: str | None, reason: str) -> None:
    """A client learns that it was cut off; of other steps that is not the client's."""
    run = script({"name": "a", "model": "x"})
    assert said(run, run.begin(), "hi", finish_reason=outcome) == Finish("hi", reason)  # type: ignore[arg-type]
    run = script({"name": "a", "model": "x"}, {"name": "b", "prompt": "y"})
    assert said(run, run.begin(), "hi", finish_reason=outcome) == Finish("y", "stop")


def test_workflow_ending_in_a_tool_returns_its_whole_result() -> None:
    """Also where a model would have been shown less."""
    run = script({"name": "a", "tool": "t"})
    assert ran(run, run.begin(), "x" * 100_000) == Finish("x" * 100_000, "stop")


@pytest.mark.parametrize("brought", ["{{params.n}}", "{{steps.rows}}", "{% x %}", "${HOME}", "{0.__class__}"])
def test_workflow_values_are_not_expanded_again(brought: str) -> None:
    """Neither what a user gave nor what a tool or a model said (T32)."""
    run = script(
        ROWS, SAID, {"name": "end", "tool": "t", "with": {"a": "{{steps.said}}", "b": "{{params.n}}"}}, n=brought
    )
    asked = ran(run, run.begin(), brought)
    assert asked == AskAction(({"role": "user", "content": f"What of {brought}?"},))
    last = said(run, asked, brought)
    assert isinstance(last, Execute) and last.planned[0].call.arguments == {"a": brought, "b": brought}


def test_absent_optional_parameter_is_omitted_from_call_arguments() -> None:
    """Its tool's own default holds."""
    action = script({"name": "a", "tool": "t", "with": {"x": "{{params.x}}", "y": 1}}).begin()
    assert isinstance(action, Execute) and action.planned[0].call.arguments == {"y": 1}


def test_a_tool_that_fails_ends_the_workflow_at_its_step() -> None:
    """The error names workflow, step and run, and says why; later steps never run."""
    run = script(ROWS, SAID, n=1)
    message = failed(lambda: ran(run, run.begin(), "Error: no such table: t\x1b[2J", ok=False))
    assert "'rows': Error: no such table: t\\u{1b}[2J" in message
    assert len(failed(lambda: ran(script(ROWS, n=1), run.begin(), "y" * 100_000, ok=False))) < 1000


def test_a_step_that_is_refused_ends_the_workflow() -> None:
    """By policy, by a person, or because there is no such tool or its arguments do not fit."""
    run = script({"name": "a", "tool": "forbidden"}, REPORT)
    assert "'a': Not run: refused by policy. No." in failed(lambda: ran(run, run.begin(), ""))


def test_risky_workflow_step_is_planned_for_approval() -> None:
    """It needs a person, and runs with what the person made of it."""
    run = script({"name": "a", "tool": "risky"}, {"name": "b", "prompt": "{{steps.a}}"})
    action = run.begin()
    assert isinstance(action, Execute) and action.planned[0].needs_approval
    assert ran(run, action, "done") == Finish("done", "stop")


def test_long_step_result_is_truncated_with_a_note_for_the_model() -> None:
    """With how much is missing."""
    run = script(ROWS, SAID, n=1)
    asked = ran(run, run.begin(), "x" * (RESULT_CHARS + 5))
    assert isinstance(asked, AskAction)
    assert asked.messages[0]["content"] == f"What of {'x' * RESULT_CHARS}\n[... 5 characters omitted]?"


@pytest.mark.parametrize("through", [(), ({"name": "text", "prompt": "{{steps.rows}}"},)])
def test_truncated_result_is_refused_as_a_call_argument(through: tuple[Json, ...]) -> None:
    """A tool would write it down as the whole; also where a text brings it."""
    last = {"name": "save", "tool": "write", "with": {"content": [f"{{{{steps.{'text' if through else 'rows'}}}}}"]}}
    run = script(ROWS, *through, last, n=1)
    assert "'save'" in failed(lambda: ran(run, run.begin(), "x" * (RESULT_CHARS + 1)))
    run = script(ROWS, *through, last, n=1)
    assert isinstance(ran(run, run.begin(), "x" * RESULT_CHARS), Execute)


@pytest.mark.parametrize("kind", ["prompt", "model", "tool"])
def test_expanded_workflow_references_have_a_size_limit(kind: str) -> None:
    """Memory is bounded, whatever parameters and results are."""
    text = "{{params.x}}" * 20
    step = {"name": "a", "tool": "t", "with": {"x": text}} if kind == "tool" else {"name": "a", kind: text}
    run = script(step, x="y" * (FILLED_CHARS // 20 + 1))
    assert "'a': what its references bring in is too long" in failed(run.begin)


def test_workflow_snapshot_keeps_only_results_still_needed() -> None:
    """The record of a run is small."""
    run = script(
        ROWS, {"name": "b", "model": "x"}, {"name": "c", "model": "y"}, {"name": "d", "prompt": "{{steps.b}}"}, n=1
    )
    action = said(run, ran(run, run.begin(), "many rows"), "kept")
    assert isinstance(action, AskAction)
    assert run.take_snapshot() == {"number": 2, "results": {"b": "kept"}, "cut": []}


def test_workflow_resumes_from_its_snapshot_at_every_step() -> None:
    """At every point, with the results so far; steps that are on record are not repeated."""
    run = script(ROWS, SAID, {"name": "save", "tool": "write", "with": {"text": "{{steps.said}}"}}, n=1, title="T")
    other = again(run)
    assert other.begin() == run.begin()
    action = ran(other, other.begin(), "rows")
    other = again(other)
    assert other.begin() == action == AskAction(other.messages)
    action = said(other, action, "It is one.")
    later = again(other)
    # Its round is open in the record: the call that was started is told to the machine as it stands.
    assert isinstance(action, Execute) and action.planned[0].call.arguments == {"text": "It is one."}
    assert later.handle_results(action.planned, [CallOutcome("saved", "saved")]) == Finish("saved", "stop")
    assert later.asked == 2


def test_truncated_result_is_still_refused_after_a_restart() -> None:
    """It still becomes no argument."""
    run = script(ROWS, SAID, {"name": "save", "tool": "write", "with": {"a": "{{steps.rows}}"}}, n=1)
    action = ran(run, run.begin(), "x" * (RESULT_CHARS + 1))
    other = again(run)
    assert "'save'" in failed(lambda: said(other, action, "hi"))


def test_workflow_error_names_its_step() -> None:
    """A failure of the model or of the clock names step and workflow, and is otherwise what it was."""
    run = script(ROWS, SAID, n=3)
    ran(run, run.begin(), "3")
    error = GatewayError("upstream_error", "It broke.", param="x", retry_after_s=2.0)
    named = run.add_step_to_error(error)
    assert named.message == "It broke. That was the step 'said' of the workflow 'w' (run run_1)."
    assert (named.code, named.facts, named.param, named.retry_after_s) == (error.code, error.facts, "x", 2.0)
    settled = run.add_step_to_error(error.mark_after_effects())
    assert (settled.settled, settled.facts.status) == (True, 422) and "'said'" in settled.message


def test_workflow_failure_is_not_wrapped_with_its_step_again() -> None:
    """It names its step already."""
    run = script(ROWS, n=3)
    error = GatewayError("workflow_failed", "The workflow 'w' ended at its step 'rows': no.")
    assert run.add_step_to_error(error) is error


@pytest.mark.parametrize("finish_reason", ["length", "content_filter"])
def test_truncated_model_answer_is_not_passed_to_a_tool(finish_reason: str) -> None:
    """Of which the model itself said that it is cut; a later text may have it, and the last one is told as it is."""
    first: Json = {"name": "said", "model": "Hi"}
    run = script(first, {"name": "put", "tool": "execute_sql", "with": {"sql": "{{steps.said}}"}})
    assert "'put'" in failed(lambda: said(run, run.begin(), "DELETE FROM pets", finish_reason=finish_reason))
    run = script(first, {"name": "end", "prompt": "{{steps.said}}"})
    assert said(run, run.begin(), "Half", finish_reason=finish_reason) == Finish("Half", "stop")
