"""The agent loop's state machine: every answer of the model, every set of results, and what follows."""

import itertools
from collections.abc import Callable

import orjson
import pytest

from gateway.agent.loop import CALL_WISH, Action, AskAction, Execute, Finish, Loop
from gateway.agent.output.scanner import CallGroup, MalformedCall, Prose
from gateway.contracts.calls import CallOutcome, FoundCall, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall

AUTO = Verdict("auto", "whitelist", "harmless")
BAD = MalformedCall("The tool call is not valid JSON: it is not complete.")


def found(
    tool: str = "look", *, terminate: bool = False, call_id: str | None = None, **parameters: object
) -> FoundCall:
    return FoundCall(tool, parameters, terminate, call_id)


class Run:
    """A loop whose tools are all allowed but `forbidden`, which is refused, and `theirs`, the client's."""

    def __init__(self, *, is_lowered: bool = False, **limits: object) -> None:
        numbers = itertools.count(1)
        self.loop = Loop(
            limits=LoopLimits(**limits),  # type: ignore[arg-type]
            plan=self._plan,
            client_tools=frozenset(("theirs",)),
            new_id=lambda: f"call_{next(numbers)}",
            run_id="run_1",
            is_lowered=is_lowered,
        )

    @staticmethod
    def _plan(call: FoundCall, call_id: str) -> PlannedCall:
        asked = ToolCall(id=call_id, tool=call.tool, arguments=call.parameters, terminate=call.terminate)
        return PlannedCall(asked, None, AUTO, "Not run." if call.tool == "forbidden" else None)

    def called(self, *calls: FoundCall, content: str = "") -> Action:
        return self.loop.handle_answer(content, CallGroup(calls), finish_reason="stop")

    def outcome(self, action: Action, *, whole: str | None = None) -> Action:
        """Return the action after the planned calls; each result is `shown N`, or the refusal."""
        assert isinstance(action, Execute)
        results = [CallOutcome(p.refusal or f"shown {i}", whole or f"whole {i}") for i, p in enumerate(action.planned)]
        return self.loop.handle_results(action.planned, results)

    def round(self, *calls: FoundCall, content: str = "") -> Action:
        return self.outcome(self.called(*calls, content=content))


def refused(code: str, act: Callable[[], Action]) -> GatewayError:
    with pytest.raises(GatewayError) as error:
        act()
    assert (error.value.code, error.value.facts.status) == (code, 422)
    assert "run_1" in error.value.message
    return error.value


# Text ends the turn.


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        (None, "stop"),
        ("tool_calls", "stop"),
        ("eos", "stop"),
    ],
)
def test_text_answer_ends_the_turn(outcome: str | None, reason: str) -> None:
    """With the model's own reason where it is one that clients know; its text was streamed already."""
    run = Run()
    assert run.loop.handle_answer("Hello.", Prose(), finish_reason=outcome) == Finish("", reason)  # type: ignore[arg-type]
    assert run.loop.messages == ()


# A call, its result, the next question.


def test_a_call_is_executed_and_its_result_goes_to_the_model() -> None:
    """As a pair of an assistant message with `tool_calls` and a tool message of the same id."""
    run = Run()
    action = run.called(found(path="a"), content="Let me look.")
    assert isinstance(action, Execute)
    assert [p.call for p in action.planned] == [ToolCall(id="call_1", tool="look", arguments={"path": "a"})]
    asked = run.outcome(action)
    assert asked == AskAction(run.loop.messages)
    assert isinstance(asked, AskAction)
    call: Json = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"path":"a"}'}}
    assert list(asked.messages) == [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "shown 0"},
    ]


def test_model_receives_the_shortened_result() -> None:
    """Not the whole one."""
    run = Run()
    run.outcome(run.called(found()), whole="x" * 100_000)
    assert run.loop.messages[1]["content"] == "shown 0"
    assert run.loop.messages[0]["content"] is None


def test_native_call_id_is_kept() -> None:
    """The pair that the model sees is the pair that it began."""
    run = Run()
    run.round(found(call_id="call_of_the_model"))
    assert run.loop.messages[1]["tool_call_id"] == "call_of_the_model"


def test_group_of_tool_calls_is_executed_in_order() -> None:
    """One assistant message with all calls, one result for each; a refused call's result is its refusal."""
    run = Run()
    action = run.called(found("a"), found("forbidden"), found("b"))
    assert isinstance(action, Execute)
    assert [p.call.tool for p in action.planned] == ["a", "forbidden", "b"]
    asked = run.outcome(action)
    assert isinstance(asked, AskAction)
    question, *results = asked.messages
    assert [call["id"] for call in question["tool_calls"]] == [result["tool_call_id"] for result in results]
    assert [result["content"] for result in results] == ["shown 0", "Not run.", "shown 2"]


def test_tool_rounds_are_kept_in_order() -> None:
    """Each stays in the history, in order."""
    run = Run()
    for tool in ("a", "b", "c"):
        run.round(found(tool))
    names = [message["name"] for message in run.loop.messages if message["role"] == "tool"]
    assert names == ["a", "b", "c"]
    assert run.loop.handle_answer("Done.", Prose(), finish_reason="stop") == Finish("", "stop")


def test_tool_results_are_sent_as_user_messages_when_configured() -> None:
    """`result_role: user`: what the model wrote, then what came of it, as plain messages."""
    run = Run(result_role="user")
    run.round(found("a", x=1), content="I look.")
    run.round(found("a", x=1), found("b"))
    first, outcome, group, both = run.loop.messages
    assert first["role"] == group["role"] == "assistant" and outcome["role"] == both["role"] == "user"
    said, _, call = first["content"].partition("\n")
    assert said == "I look."
    assert orjson.loads(call) == {"tool": "a", "parameters": {"x": 1}, "terminate": False}
    assert [one["tool"] for one in orjson.loads(group["content"])] == ["a", "b"]
    assert outcome["content"] == "Result of the tool a:\nshown 0"
    assert both["content"] == "Result of the tool a:\nshown 0\n\nResult of the tool b:\nshown 1"


# terminate.


def test_terminate_makes_the_result_the_answer() -> None:
    """The whole of it, without another question to the model; the pair is kept for later turns."""
    run = Run()
    assert run.outcome(run.called(found(terminate=True)), whole="everything") == Finish("everything", "stop")
    assert [message["role"] for message in run.loop.hidden] == ["assistant", "tool"]


def test_terminating_call_that_did_not_run_returns_to_the_model() -> None:
    """It may do better."""
    run = Run()
    assert isinstance(run.round(found("forbidden", terminate=True)), AskAction)


def test_several_terminating_results_are_joined_into_one_answer() -> None:
    """One behind the other; results of calls that do not terminate are not part of it."""
    run = Run()
    action = run.round(found("a", terminate=True), found("b"), found("c", terminate=True))
    assert action == Finish("whole 0\nwhole 2", "stop")


# The client's own tools.


def test_client_tool_call_is_returned_to_the_client() -> None:
    """The turn ends with `tool_calls`, each in one piece, with an index; nothing runs, nothing is hidden."""
    run = Run()
    action = run.called(found("theirs", x=1), found("theirs", call_id="call_m"))
    assert isinstance(action, Finish)
    assert (action.text, action.reason) == ("", "tool_calls")
    assert list(action.tool_calls) == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "theirs", "arguments": '{"x":1}'}},
        {"index": 1, "id": "call_m", "type": "function", "function": {"name": "theirs", "arguments": "{}"}},
    ]
    assert run.loop.messages == () and run.loop.asked == 0


@pytest.mark.parametrize("terminate", [False, True])
def test_mixed_answer_runs_gateway_calls_and_returns_client_calls(terminate: bool) -> None:
    """Ours stays in the run's own history; the model is not asked again."""
    run = Run()
    action = run.called(found("look", terminate=terminate), found("theirs"))
    assert isinstance(action, Execute)
    assert [p.call.tool for p in action.planned] == ["look"]
    ended = run.outcome(action)
    assert isinstance(ended, Finish)
    assert (ended.text, ended.reason) == ("", "tool_calls")
    assert [call["function"]["name"] for call in ended.tool_calls] == ["theirs"]
    assert [call["function"]["name"] for call in run.loop.hidden[0]["tool_calls"]] == ["look"]


# Answers that cannot be read.


def test_malformed_call_is_explained_to_the_model_and_not_kept() -> None:
    """The model gets the reason and the format; its answer is not in the history."""
    run = Run()
    action = run.loop.handle_answer("I will {", BAD, finish_reason="stop")
    assert isinstance(action, AskAction)
    (complaint,) = action.messages
    assert complaint["role"] == "user"
    assert BAD.reason in complaint["content"] and '{"tool": "<name>", "parameters": {...}' in complaint["content"]
    assert run.loop.hidden == []


def test_the_third_malformed_answer_in_a_row_ends_the_run() -> None:
    """Two extra questions, then the reason."""
    run = Run()
    for _ in range(2):
        assert isinstance(run.loop.handle_answer("", BAD, finish_reason="stop"), AskAction)
    error = refused("agent_malformed_tool_call", lambda: run.loop.handle_answer("", BAD, finish_reason="stop"))
    assert "3 times" in error.message and BAD.reason in error.message


def test_valid_call_resets_the_malformed_count() -> None:
    """The count begins anew, and the complaints are gone."""
    run = Run()
    for _ in range(3):
        for _ in range(2):
            assert isinstance(run.loop.handle_answer("", BAD, finish_reason="stop"), AskAction)
        asked = run.round(found("a"))
        assert isinstance(asked, AskAction)
        assert not any(message["role"] == "user" for message in asked.messages)
        assert run.loop.malformed == 0


def test_malformed_complaints_follow_results_and_vanish_on_success() -> None:
    """And disappear when the model answers in text."""
    run = Run()
    run.round(found("a"))
    asked = run.loop.handle_answer("", BAD, finish_reason="stop")
    assert isinstance(asked, AskAction)
    assert [message["role"] for message in asked.messages] == ["assistant", "tool", "user"]
    run.loop.handle_answer("Fine.", Prose(), finish_reason="stop")
    assert [message["role"] for message in run.loop.messages] == ["assistant", "tool"]


@pytest.mark.parametrize(("role", "roles"), [("tool", "user assistant tool user"), ("user", "user assistant user")])
def test_correction_is_merged_into_a_trailing_user_message(role: str, roles: str) -> None:
    """Templates that want roles to alternate refuse two."""
    run = Run(result_role=role)
    wish: Json = {"role": "user", "content": "Look."}
    for _ in range(2):
        run.loop.handle_answer("", BAD, finish_reason="stop")
    (asked,) = run.loop.build_request({}, [wish])["messages"]
    assert asked["role"] == "user" and asked["content"].startswith("Look.\n\nYour last answer")
    assert asked["content"].count(BAD.reason) == 2
    run.round(found())
    run.loop.handle_answer("", BAD, finish_reason="stop")
    assert " ".join(one["role"] for one in run.loop.build_request({}, [wish])["messages"]) == roles


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_malformed_answer_limit_is_configurable(limit: int) -> None:
    """`max_malformed`."""
    run = Run(max_malformed=limit)
    for _ in range(limit - 1):
        run.loop.handle_answer("", BAD, finish_reason="stop")
    refused("agent_malformed_tool_call", lambda: run.loop.handle_answer("", BAD, finish_reason="stop"))


# The limit of calls.


def test_call_limit_allows_one_more_answer_then_fails() -> None:
    """For its text; if it calls again, the run ends."""
    run = Run(max_tool_calls=3)
    for i in range(3):
        assert isinstance(run.round(found(i=i)), AskAction)
    error = refused("agent_iteration_limit", lambda: run.called(found(i=3)))
    assert "3 tools" in error.message


@pytest.mark.parametrize("most", [0, 1])
def test_client_call_limit_is_reported_once_then_ends_the_turn(most: int) -> None:
    """The model may answer then; if it calls again, the turn ends. The client asked for that, and nothing fails."""
    run = Run(is_lowered=True, max_tool_calls=most)
    for i in range(most):
        assert isinstance(run.round(found(i=i)), AskAction)
    action = run.called(found(i=most))
    assert isinstance(action, Execute) and "limit" in (action.planned[0].refusal or "")
    assert isinstance(run.outcome(action), AskAction)
    ended = run.called(found(i=9))
    assert isinstance(ended, Finish) and f"'max_tool_calls' ({most})" in ended.text and ended.reason == "stop"


def test_client_limit_runs_only_the_first_calls_of_a_group() -> None:
    """As many as it allows; the model is told of the others, and its next call ends the turn."""
    run = Run(is_lowered=True, max_tool_calls=2)
    run.round(found("a"))
    action = run.called(found("b"), found("c"), found("d"))
    assert isinstance(action, Execute)
    assert [p.refusal is None for p in action.planned] == [True, False, False]
    assert isinstance(run.outcome(action), AskAction)
    assert isinstance(run.called(found("e")), Finish)


def test_client_tools_are_callable_beyond_the_client_limit() -> None:
    """The limit is one of the gateway's tools; a call of one beside them is dropped."""
    run = Run(is_lowered=True, max_tool_calls=0)
    run.round(found())
    ended = run.called(found(), found("theirs"))
    assert isinstance(ended, Finish) and (ended.text, ended.reason, len(ended.tool_calls)) == ("", "tool_calls", 1)


def test_text_after_the_last_allowed_call_ends_normally() -> None:
    """The limit itself is no failure."""
    run = Run(max_tool_calls=1)
    run.round(found())
    assert run.loop.handle_answer("Done.", Prose(), finish_reason="stop") == Finish("", "stop")


def test_client_tool_call_is_allowed_after_the_last_call() -> None:
    """It is none of ours."""
    run = Run(max_tool_calls=1)
    run.round(found())
    assert isinstance(run.called(found("theirs")), Finish)


def test_group_of_tool_calls_beyond_the_limit_is_refused_whole() -> None:
    """None of its calls runs; the model is told, and the next call ends the run."""
    run = Run(max_tool_calls=3)
    run.round(found("a"), found("b"))
    action = run.called(found("c"), found("d", terminate=True))
    assert isinstance(action, Execute)
    assert all(p.refusal and "limit" in p.refusal for p in action.planned)
    asked = run.outcome(action)
    assert isinstance(asked, AskAction)
    assert [m["content"] for m in asked.messages[-2:]] == [p.refusal for p in action.planned]
    refused("agent_iteration_limit", lambda: run.called(found("e")))


def test_refused_calls_count_toward_the_limit() -> None:
    """What the model asks for, executed or answered with an error."""
    run = Run(max_tool_calls=2)
    run.round(found("forbidden", i=1))
    run.round(found("forbidden", i=2))
    refused("agent_iteration_limit", lambda: run.called(found("forbidden", i=3)))


def test_malformed_answers_do_not_count_as_calls() -> None:
    """They have a limit of their own."""
    run = Run(max_tool_calls=1, max_malformed=5)
    for _ in range(3):
        run.loop.handle_answer("", BAD, finish_reason="stop")
    assert isinstance(run.round(found()), AskAction)


# The same call again.


def test_third_identical_call_is_flagged_and_fifth_ends_the_run() -> None:
    """Whatever the order of its arguments."""
    run = Run()
    notes = []
    for i in range(4):
        arguments = {"x": 1, "y": 2} if i % 2 else {"y": 2, "x": 1}
        asked = run.round(FoundCall("look", arguments, terminate=False))
        assert isinstance(asked, AskAction)
        notes.append("same arguments" in asked.messages[-1]["content"])
    assert notes == [False, False, True, True]
    assert "number 4" in run.loop.messages[-1]["content"]
    error = refused("agent_iteration_limit", lambda: run.called(found(x=1, y=2)))
    assert "'look'" in error.message and "5 times" in error.message


def test_different_call_resets_the_repetition_count() -> None:
    """Other arguments are another call, and so is another tool."""
    run = Run(max_tool_calls=100)
    for _ in range(10):
        run.round(found(x=1))
        run.round(found(x=1))
        run.round(found(x=2))
        run.round(found("other", x=2))
    assert not any("same arguments" in str(message["content"]) for message in run.loop.messages)


def test_repetition_within_a_group_counts() -> None:
    """Five at once are five in a row: none of them runs."""
    refused("agent_iteration_limit", lambda: Run().called(*[found(x=1)] * 5))
    assert isinstance(Run().called(*[found(x=1)] * 4), Execute)


# An answer that must be a call.


def test_text_answer_is_retried_once_when_a_call_is_required() -> None:
    """With a wish that goes once there is a call; the next answer may be a text."""
    run = Run()
    run.loop.must_call = True
    assert run.loop.hides_text
    asked = run.loop.handle_answer("I would.", Prose(), finish_reason="stop")
    assert asked == AskAction(({"role": "user", "content": CALL_WISH},))
    run.round(found())
    assert not run.loop.hides_text and [message["role"] for message in run.loop.messages] == ["assistant", "tool"]
    assert run.loop.handle_answer("Done.", Prose(), finish_reason="stop") == Finish("", "stop")


def test_second_text_in_place_of_a_required_call_ends_the_run() -> None:
    """A cut one is the answer, as it was held back."""
    run = Run()
    run.loop.must_call = True
    assert run.loop.handle_answer("I wou", Prose(), finish_reason="length") == Finish("I wou", "length")
    run.loop.handle_answer("I would.", Prose(), finish_reason="stop")
    refused("agent_malformed_tool_call", lambda: run.loop.handle_answer("I would.", Prose(), finish_reason=None))
