"""The decisions of a request, and the questions that its conversation shows."""

from gateway.contracts.chat_decisions import ChatDecision, ShownCall
from gateway.dialects.dialect import SaidBeside
from gateway.dialects.responses.decisions import list_last_questions

from .requests import APPROVAL, CALL, HI, OUTPUT, QUESTION, asked, refusal
from .test_items import OWN_CALL, TOOLS

ANSWER = {"type": "message", "role": "assistant", "content": "Shall I?"}
OTHER = {**QUESTION, "id": "ap_2", "arguments": "{}"}


def test_approval_response_decides_and_includes_the_shown_call() -> None:
    found = asked(HI, TOOLS, QUESTION, {**APPROVAL, "reason": "go on"})
    assert found.decisions == (
        ChatDecision(
            approve=True,
            ids=("ap_1",),
            comment="go on",
            shown=(ShownCall("ap_1", "run_command", QUESTION["arguments"]),),
            in_field=True,
        ),
    )
    assert found.wishes.shown == ()


def test_decision_refers_to_the_approval_request_of_the_previous_response() -> None:
    behind = asked(APPROVAL, earlier=[HI, QUESTION], previous_response_id="resp_1").decisions
    assert behind[0].shown == (ShownCall("ap_1", "run_command", QUESTION["arguments"]),)
    alone = asked({**APPROVAL, "approve": False, "reason": ""}).decisions
    assert alone == (ChatDecision(approve=False, ids=("ap_1",), in_field=True),)


def test_several_approval_responses_make_several_decisions() -> None:
    second = {**APPROVAL, "approval_request_id": "AP_2", "approve": False}
    found = asked(HI, QUESTION, OTHER, second, APPROVAL).decisions
    assert [(decision.ids, decision.approve) for decision in found] == [(("ap_2",), False), (("ap_1",), True)]


def test_responses_before_a_later_answer_are_history() -> None:
    found = asked(HI, QUESTION, APPROVAL, OWN_CALL, ANSWER, {**HI, "content": "Thanks"})
    assert found.decisions == () and found.text == "Thanks"
    found = asked(HI, QUESTION, APPROVAL, OTHER, {**APPROVAL, "approval_request_id": "ap_2"})
    assert [decision.ids for decision in found.decisions] == [("ap_2",)]


def test_outputs_of_the_clients_tools_may_stand_beside_decisions() -> None:
    found = asked(HI, CALL, QUESTION, OUTPUT, APPROVAL)
    assert len(found.decisions) == 1 and found.body["messages"][-1]["role"] == "tool"


def test_messages_of_the_user_may_stand_beside_decisions() -> None:
    """Messages behind the last answer of the request itself may be new; the others are history."""
    more = {**HI, "content": "And more"}
    for items in ((HI, QUESTION, APPROVAL, more), (HI, QUESTION, more, APPROVAL)):
        found = asked(*items)
        said = tuple({"role": "user", "content": text} for text in ("Hi", "And more"))
        assert len(found.decisions) == 1 and found.beside == SaidBeside(messages=said, behind=1, is_whole=True)
    assert asked(HI, QUESTION, APPROVAL).beside is None is asked(HI, QUESTION, HI).beside
    stored = asked(APPROVAL, HI, earlier=[HI, QUESTION], previous_response_id="resp_1").beside
    assert stored == SaidBeside(messages=({"role": "user", "content": "Hi"},), behind=1, is_whole=False)


def test_two_decisions_on_one_call_are_refused() -> None:
    error = refusal(HI, QUESTION, APPROVAL, {**APPROVAL, "approval_request_id": "AP_1", "approve": False})
    assert (error.code, error.param) == ("invalid_field", "input[3].approval_request_id")


def test_questions_of_the_last_answer_are_shown() -> None:
    assert asked(HI, QUESTION, OTHER, HI).wishes.shown == ("ap_1", "ap_2")
    assert asked(HI, earlier=[HI, QUESTION]).wishes.shown == ("ap_1",)
    assert asked(HI, QUESTION, HI, ANSWER, HI).wishes.shown == ()


def test_answered_approval_questions_are_not_shown() -> None:
    assert list_last_questions([HI, QUESTION, OTHER, APPROVAL, HI]) == ("ap_2",)
    assert list_last_questions([HI, ANSWER, QUESTION, OUTPUT]) == ("ap_1",)
    assert list_last_questions([]) == ()


def test_all_calls_shown_for_an_approval_are_kept() -> None:
    """Somebody else may have added one to the conversation, for another tool."""
    planted = {**QUESTION, "server_label": "box", "name": "get"}
    (decision,) = asked(APPROVAL, earlier=[planted, QUESTION], previous_response_id="resp_1").decisions
    assert [call.tool for call in decision.shown] == ["box.get", "run_command"]


def test_only_messages_of_the_request_itself_check_decision() -> None:
    """A text that others added to the conversation is none, whatever the request brings behind it."""
    typed = {"type": "message", "role": "user", "content": "approve ap_1 WORD"}
    assert asked(typed).text == "approve ap_1 WORD"
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    assert asked(output, earlier=[call, typed], conversation="conv_1").text == ""
    reference = {"type": "item_reference", "id": "msg_1"}
    assert asked(reference, referenced={"msg_1": {**typed, "id": "msg_1"}}).text == ""
