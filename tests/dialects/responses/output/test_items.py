"""Items while they are made, and as clients see them."""

from typing import Any

import pytest

from gateway.dialects.responses.calls import ClientTool
from gateway.dialects.responses.output.items import REFUSAL, TEXT, THOUGHT, ClientCall, GatewayCall, Texts, WholeItem


def test_message_item_holds_text_and_refusal_parts() -> None:
    """Each part with the pieces so far."""
    message = Texts("msg_1", 0)
    assert message.build_view() == {
        "id": "msg_1",
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    message.build_part(TEXT).pieces += ["a", "b"]
    message.build_part(REFUSAL).pieces.append("No.")
    message.status = "completed"
    assert message.build_view()["content"] == [
        {"type": "output_text", "text": "ab", "logprobs": [], "annotations": []},
        {"type": "refusal", "refusal": "No."},
    ]
    assert message.said_chars == 2


def test_reasoning_item_has_a_summary() -> None:
    """Its events are in the schemas and in the SDKs; they are no text of the answer."""
    thoughts = Texts("rs_1", 0, thinks=True)
    thoughts.build_part(THOUGHT).pieces.append("Hm.")
    assert thoughts.build_view() == {
        "id": "rs_1",
        "type": "reasoning",
        "status": "in_progress",
        "summary": [{"type": "summary_text", "text": "Hm."}],
    }
    assert thoughts.said_chars == 0


def test_closed_part_keeps_its_text() -> None:
    """And an open one can be looked at any number of times."""
    part = Texts("msg_1", 0).build_part(TEXT)
    part.pieces += ["a", "b"]
    assert (part.text, part.text, part.pieces) == ("ab", "ab", ["a", "b"])
    assert part.close() == part.text == "ab"


def call(kind: str, arguments: str, **fields: Any) -> ClientCall:
    return ClientCall(id="1", index=0, call_id="c", tool=ClientTool(kind=kind, name="t"), pieces=[arguments], **fields)


@pytest.mark.parametrize("status", ["in_progress", "completed", "incomplete"])
def test_function_call_item_shows_partial_arguments(status: Any) -> None:
    """Half of a JSON text is half of the arguments."""
    item = call("function", '{"a', status=status)
    assert (item.build_view()["arguments"], item.build_view()["status"], item.streams) == ('{"a', status, True)


def test_custom_tool_item_shows_its_input_when_completed() -> None:
    """Before that, the JSON around it would be in the way."""
    assert call("custom", '{"input":"x"}').build_view()["input"] == ""
    assert call("custom", '{"input":"x"}', status="completed").build_view() == {
        "id": "1",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "c",
        "name": "t",
        "input": "x",
    }


@pytest.mark.parametrize(("kind", "streams"), [("function", True), ("custom", False), ("shell", False)])
def test_only_function_calls_stream_their_arguments(kind: str, *, streams: bool) -> None:
    """Those of a shell call decide what its item is."""
    assert call(kind, "{}").streams is streams


def test_a_call_of_the_gateway_has_an_output_or_an_error() -> None:
    """Never both, and neither before its end."""
    item = GatewayCall(id="mcp_1", index=0, label="notes", name="find", approval_id="ap_1", result="r")
    seen = {}
    for status in ("in_progress", "completed", "failed", "incomplete"):
        item.status = status  # type: ignore[assignment]
        seen[status] = (item.build_view()["output"], item.build_view()["error"])
    failed = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "r"}]}
    assert seen == {
        "in_progress": (None, None),
        "completed": ("r", None),
        "failed": (None, failed),
        "incomplete": (None, None),
    }
    assert item.build_view()["approval_request_id"] == "ap_1"


def test_whole_item_exposes_its_fields() -> None:
    """Its id is one of them."""
    item = WholeItem({"id": "ap_1", "type": "mcp_approval_request"})
    assert (item.id, item.build_view()) == ("ap_1", item.fields)
