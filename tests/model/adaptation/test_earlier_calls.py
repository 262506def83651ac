"""Calls of earlier answers, in the form that some servers demand."""

from typing import Any, Final

import pytest

from gateway.model.adaptation.earlier_calls import (
    add_reasoning,
    add_signatures,
    declare_missing_tool,
    keep_named_tool,
    shorten_call_ids,
)

HI: Final = {"role": "user", "content": "Hi"}


def call(call_id: object, name: str = "f", **further: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}, **further}


def called(*calls: Any, **further: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **further}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "Done."}


def test_tool_call_ids_are_shortened_to_nine_alphanumeric_characters() -> None:
    """A call and its result keep one id, two calls keep two, and an id that fits stays."""
    messages = [HI, called(call("call_1"), call("call_2"), call("a1B2c3D4e")), result("call_1"), result("call_2")]
    sent = shorten_call_ids({"messages": messages})["messages"]
    first, second, third = (one["id"] for one in sent[1]["tool_calls"])
    assert len(first) == len(second) == 9 and (first + second).isalnum() and first != second
    assert (sent[2]["tool_call_id"], sent[3]["tool_call_id"], third) == (first, second, "a1B2c3D4e")
    assert messages[1]["tool_calls"][0]["id"] == "call_1"


def test_the_first_call_of_each_answer_gets_a_signature() -> None:
    """One that has its own keeps it, and so do further fields beside it."""
    own = {"google": {"thought_signature": "c2ln"}}
    other = {"google": {"id": 1}}
    messages = [
        called(call("1"), call("2")),
        called(call("3", extra_content=own)),
        called(call("4", extra_content=other)),
    ]
    first, second, third = add_signatures({"messages": messages})["messages"]
    assert first["tool_calls"][0]["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"
    assert "extra_content" not in first["tool_calls"][1]
    assert second["tool_calls"][0]["extra_content"] == own
    assert third["tool_calls"][0]["extra_content"]["google"]["thought_signature"]


@pytest.mark.parametrize("extra", ["x", ["x"], 3, None])
def test_invalid_extra_content_is_replaced_by_a_signature(extra: object) -> None:
    """It is no object, and no server's."""
    (sent,) = add_signatures({"messages": [called(call("1", extra_content=extra))]})["messages"]
    assert sent["tool_calls"][0]["extra_content"]["google"]["thought_signature"]


def test_each_answer_gets_reasoning_content() -> None:
    """Its thoughts under the other name, or none; thoughts that are there stay."""
    answers = [{"role": "assistant", "content": "a", **further} for further in ({}, {"reasoning": "b"})]
    answers.append({"role": "assistant", "content": "c", "reasoning_content": "d"})
    sent = add_reasoning({"messages": [HI, *answers]})["messages"]
    assert [one.get("reasoning_content") for one in sent] == [None, "", "b", "d"]


def test_a_request_with_calls_declares_a_tool() -> None:
    """One that has tools, or has no calls, stays."""
    body = {"messages": [HI, called(call("1")), result("1")]}
    (tool,) = declare_missing_tool(body)["tools"]
    assert tool["function"]["name"] == "no_tool"
    assert "tools" in declare_missing_tool({"messages": [result("1")], "tools": []})
    for same in ({"messages": [HI]}, {**body, "tools": [tool]}):
        assert declare_missing_tool(same) is same


def test_named_tool_choice_becomes_the_only_tool_and_required() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "fg"]
    choice = {"type": "function", "function": {"name": "g"}}
    sent = keep_named_tool({"tools": tools, "tool_choice": choice})
    assert (sent["tools"], sent["tool_choice"]) == (tools[1:], "required")
    absent = keep_named_tool({"tools": tools[:1], "tool_choice": choice})
    assert (absent["tools"], absent["tool_choice"]) == (tools[:1], "required")


@pytest.mark.parametrize(
    "change", [shorten_call_ids, add_signatures, add_reasoning, declare_missing_tool, keep_named_tool]
)
def test_request_without_earlier_calls_is_returned_unchanged(change: Any) -> None:
    """It is the same object: nothing was refused for it."""
    for body in (
        {"model": "m"},
        {"messages": [HI], "tool_choice": "auto"},
        {"messages": [HI], "tool_choice": {"type": "x"}},
    ):
        assert change(body) is body


def test_malformed_earlier_calls_are_left_unchanged() -> None:
    """A client may send anything."""
    body: dict[str, Any] = {
        "messages": [{"role": "assistant", "tool_calls": ["no call", call(7)], "reasoning_content": ""}]
    }
    assert shorten_call_ids(body) is body and add_signatures(body) is body and add_reasoning(body) is body
