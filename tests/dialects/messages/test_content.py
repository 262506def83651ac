"""Chunks of a run as blocks."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.messages.content import AnswerContent
from gateway.dialects.messages.events import NoBlockEvents
from gateway.dialects.messages.thoughts import FORMAT
from gateway.dialects.packed_reasoning import unpack_reasoning


def blocks_of(*told: Chunk, shows_calls: bool = False) -> list[Json]:
    content = AnswerContent(NoBlockEvents(), shows_calls=shows_calls, message_id="7")
    for chunk in told:
        content.take(chunk)
    content.end()
    return content.blocks


def call(index: int, **fields: object) -> Json:
    """A piece of a call; `name` and `arguments` are those of its function."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return chunks.build_delta({"tool_calls": [{"index": index, **fields, "function": function}]})


def detail(index: int = 0, kind: str = "text", **fields: object) -> Json:
    return {"type": f"reasoning.{kind}", "format": FORMAT, "index": index, **fields}


def test_texts_in_a_row_are_one_block() -> None:
    """Also those in parts, and behind empty ones; a refusal is a text."""
    parts = chunks.build_delta({"content": [{"type": "text", "text": "b"}, {"type": "image_url"}]})
    assert blocks_of("", "a", parts, chunks.build_delta({"refusal": "c"})) == [{"type": "text", "text": "abc"}]
    assert blocks_of() == []


def test_each_signed_thought_is_a_block() -> None:
    """With its own signature; the text beside it is not shown twice."""
    told = [
        chunks.build_delta({"reasoning_content": "A", "reasoning_details": [detail(text="A")]}),
        chunks.build_delta({"reasoning_details": [detail(signature="c2"), detail(signature="ln")]}),
        chunks.build_delta({"reasoning_details": [detail(1, "encrypted", data="eA==")]}),
        chunks.build_delta({"reasoning": "B", "reasoning_details": [detail(2, text="B")]}),
        "x",
    ]
    assert blocks_of(*told) == [
        {"type": "thinking", "thinking": "A", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eA=="},
        {"type": "thinking", "thinking": "B", "signature": ""},
        {"type": "text", "text": "x"},
    ]


def test_thought_without_a_signature_says_so() -> None:
    """By either name, once."""
    told = [
        chunks.build_delta({"reasoning": "A", "reasoning_content": "A"}),
        chunks.build_delta({"reasoning": "B"}),
        "x",
    ]
    assert blocks_of(*told)[0] == {"type": "thinking", "thinking": "AB", "signature": "unsigned"}


def test_details_of_another_provider_are_packed() -> None:
    """In front of what follows; behind the last text they are left out."""
    foreign = {"type": "reasoning.encrypted", "format": "openai-responses-v1", "data": "eA==", "index": 0}
    packed, text = blocks_of(chunks.build_delta({"reasoning_details": [foreign]}), "x")
    found = unpack_reasoning(packed["data"])
    assert found is not None and found.message == {"reasoning_details": [foreign]}
    assert text == {"type": "text", "text": "x"}
    assert blocks_of("x", chunks.build_delta({"reasoning_details": [foreign]})) == [{"type": "text", "text": "x"}]
    odd = detail(kind="provider_tool", block={"type": "server_tool_use"})
    assert blocks_of(chunks.build_delta({"reasoning_details": [odd]}), "x")[0]["type"] == "redacted_thinking"


def test_calls_come_in_pieces() -> None:
    """One behind the other, each with an object as input; one without an id gets one."""
    told = [
        call(0, id="a", name="look", arguments='{"x"'),
        call(0, arguments=":1}"),
        call(1, id="b", name="look"),
        call(2, name="look", arguments=" "),
        call(0, id="a", name="look", arguments="{}"),
    ]
    use = {"type": "tool_use", "name": "look"}
    assert blocks_of(*told) == [
        {**use, "id": "a", "input": {"x": 1}},
        {**use, "id": "b", "input": {}},
        {**use, "id": "toolu_72", "input": {}},
    ]


@pytest.mark.parametrize("arguments", ['{"x":', "[1]", "5", '{"x":1,"x":2}', "NaN"])
def test_call_whose_arguments_are_no_object_fails(arguments: str) -> None:
    """But for one that a limit cut."""
    piece = call(0, id="a", name="look", arguments=arguments)
    with pytest.raises(GatewayError, match="'look'"):
        blocks_of(piece, chunks.build_finish("tool_calls"))
    assert blocks_of(piece, chunks.build_finish("length"))[0]["input"] == {}


def test_calls_of_the_gateway_are_shown_once() -> None:
    """With their results; a run that goes on tells them again. Where they are not shown, there is nothing."""
    fields = {"tool": "box.read", "service": "box", "call_id": "c", "arguments": '{"a":1}'}
    started = chunks.build_event({"type": "tool.started", **fields})
    finished = chunks.build_event({"type": "tool.finished", **fields, "ok": False, "result": "No."})
    resumed = chunks.build_event({"type": "run.resumed", "said": "Hm."})
    told = (started, started, finished, resumed, started, finished)
    assert blocks_of(*told, shows_calls=True) == [
        {"type": "mcp_tool_use", "id": "c", "name": "read", "server_name": "box", "input": {"a": 1}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "c",
            "is_error": True,
            "content": [{"type": "text", "text": "No."}],
        },
        {"type": "text", "text": "Hm."},
    ]
    assert blocks_of(*told) == [{"type": "text", "text": "Hm."}]


def test_citations_stand_at_their_text() -> None:
    """Without an open text, they are left out."""
    cited = {"type": "char_location", "cited_text": "x"}
    told = chunks.build_delta({"citations": [cited]})
    assert blocks_of(told, "x", told) == [{"type": "text", "text": "x", "citations": [cited]}]
