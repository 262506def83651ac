"""Calls and outputs: each output is of an earlier call, and each call has one."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.responses.call_outputs import pair_items

from .requests import CALL, HI, OUTPUT, asked, refusal
from .test_items import CUSTOM, CUSTOM_OUTPUT, LOCAL_SHELL, LOCAL_SHELL_OUTPUT, PATCH, PATCH_OUTPUT, SHELL, SHELL_OUTPUT


def place(index: int, field: str = "") -> str:
    return f"{index}.{field}"


def test_outputs_are_paired_with_calls_regardless_of_position() -> None:
    second = {**CALL, "id": "fc_2", "call_id": "call_2"}
    late = {**OUTPUT, "call_id": "call_2"}
    pairs = pair_items([CALL, second, HI, late, OUTPUT], place=place)
    assert pairs.outputs == {0: OUTPUT, 1: late} and not pairs.alone


@pytest.mark.parametrize(
    ("call", "output"),
    [
        (CALL, OUTPUT),
        (CUSTOM, CUSTOM_OUTPUT),
        (LOCAL_SHELL, LOCAL_SHELL_OUTPUT),
        (LOCAL_SHELL, {**LOCAL_SHELL_OUTPUT, "id": "lsh_1", "call_id": "call_3"}),
        (SHELL, SHELL_OUTPUT),
        (PATCH, PATCH_OUTPUT),
    ],
)
def test_call_kind_requires_its_output_kind(call: Json, output: Json) -> None:
    assert pair_items([call, output], place=place).outputs == {0: output}
    wrong = OUTPUT if call is not CALL else CUSTOM_OUTPUT
    error = refusal(call, {**wrong, "call_id": call["call_id"]})
    assert (error.code, error.param) == ("invalid_field", "input[1].call_id")


def test_an_output_without_its_call_is_refused_as_openai_does() -> None:
    error = refusal(HI, OUTPUT)
    assert (error.code, error.param) == ("invalid_field", "input[1].call_id")
    assert error.message.startswith("No tool call found for function call output with call_id call_1")
    assert refusal(OUTPUT, CALL).param == "input[0].call_id"
    assert refusal(CALL, OUTPUT, {**OUTPUT, "id": "fco_1"}).param == "input[2].call_id"


def test_a_call_without_its_output_is_refused_as_openai_does() -> None:
    error = refusal(CALL, HI)
    assert (error.code, error.param) == ("invalid_field", "input[0].call_id")
    assert error.message.startswith("No tool output found for function call call_1")
    assert refusal(CALL, {**CALL, "id": "fc_2"}, OUTPUT).param == "input[0].call_id"


def test_an_earlier_call_needs_its_output_too() -> None:
    assert asked(OUTPUT, earlier=[HI, CALL]).body["messages"][-1]["content"] == "blue"
    assert refusal(HI, earlier=[HI, CALL], previous_response_id="resp_1").param == "previous_response_id"
    assert refusal(HI, earlier=[HI, CALL], conversation="conv_1").param == "conversation"


def test_incomplete_call_needs_no_output() -> None:
    assert asked({**CALL, "status": "incomplete"}, HI).body == asked(HI).body


def test_repeated_call_ids_are_accepted() -> None:
    """Some model servers count calls anew in each answer."""
    again, other = {**CALL, "id": "fc_2"}, {**OUTPUT, "output": "grey"}
    assert pair_items([CALL, OUTPUT, again, other], place=place).outputs == {0: OUTPUT, 2: other}


def test_duplicate_item_ids_are_refused() -> None:
    error = refusal({**HI, "id": "msg_1"}, {**HI, "id": "msg_1"})
    assert (error.code, error.param) == ("invalid_field", "input[1].id")
    assert error.message.startswith("Duplicate item found with id msg_1. Remove duplicate items")
    assert refusal({**HI, "id": "msg_1"}, earlier=[{**HI, "id": "msg_1"}]).param == "input[0].id"
    assert asked({**HI, "id": ""}, {**HI, "id": ""}, {**HI, "id": None}).body["messages"]


def test_output_that_names_its_tool_needs_no_call() -> None:
    alone = {"type": "function_call_output", "name": "tick", "output": "1"}
    assert pair_items([HI, alone], place=place).alone == {1}
