"""Thoughts: blocks of Messages, and `reasoning_details`."""

from gateway.contracts.storage.store import Json
from gateway.dialects.messages.conversation import MessagesConversation
from gateway.dialects.messages.thoughts import FORMAT
from gateway.dialects.packed_reasoning import ReasoningContent, pack_reasoning


def answer_of(*blocks: Json) -> tuple[Json, list[str]]:
    conversation = MessagesConversation()
    conversation.add_all([{"role": "assistant", "content": list(blocks)}])
    return conversation.messages[0], conversation.thoughts


def thought(text: str, signature: str | None = None) -> Json:
    return {"type": "thinking", "thinking": text} | ({} if signature is None else {"signature": signature})


def test_signed_thought_keeps_its_place() -> None:
    """Among the blocks, and behind so much text and so many calls."""
    use: Json = {"type": "mcp_tool_use", "id": "c", "name": "n", "server_name": "gateway", "input": {}}
    message, thoughts = answer_of(thought("A", "c2ln"), {"type": "text", "text": "Hello"}, thought("", "c2ln2"), use)
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "text": "A", "signature": "c2ln", "format": FORMAT, "index": 0},
        {"type": "reasoning.text", "text": "", "signature": "c2ln2", "format": FORMAT, "index": 2, "after_text": 5},
    ]
    assert thoughts == ["A"] and "reasoning_content" not in message


def test_unsigned_thought_is_a_text() -> None:
    """As chat models have it; without one, there is nothing."""
    message, thoughts = answer_of(
        thought("A"), thought("B", "unsigned"), thought("", ""), {"type": "text", "text": "x"}
    )
    assert message == {"role": "assistant", "content": "x", "reasoning_content": "AB"} and thoughts == ["A", "B"]


def test_redacted_thought_keeps_its_bytes() -> None:
    """Whatever they are."""
    message, _ = answer_of({"type": "redacted_thinking", "data": "x+/="}, {"type": "text", "text": "x"})
    (detail,) = message["reasoning_details"]
    assert (detail["type"], detail["data"]) == ("reasoning.encrypted", "x+/=")


def test_packed_fields_go_back_to_message_and_calls() -> None:
    """Of another provider, by the ids of the calls."""
    packed = pack_reasoning(
        ReasoningContent(message={"reasoning_details": [{"id": "rs_1"}]}, calls={"c": {"extra": 1}})
    )
    use: Json = {"type": "mcp_tool_use", "id": "c", "name": "n", "server_name": "gateway", "input": {}}
    message, _ = answer_of({"type": "redacted_thinking", "data": packed}, use)
    assert message["reasoning_details"] == [{"id": "rs_1"}] and message["tool_calls"][0]["extra"] == 1
