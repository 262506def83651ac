"""The blocks of an answer as deltas of chats."""

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.blocks import AnswerBlocks

FORMAT = {"format": "anthropic-claude-v1", "id": "msg_1"}


def blocks() -> AnswerBlocks:
    found = AnswerBlocks()
    found.answer_id = "msg_1"
    return found


def delta(chunk: Chunk | None) -> Json:
    assert isinstance(chunk, dict)
    (choice,) = chunk["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, None)
    found: Json = choice["delta"]
    return found


def test_text_is_a_plain_text() -> None:
    one = blocks()
    assert one.begin({"type": "text", "text": ""}, 0) is None
    assert one.add({"type": "text_delta", "text": "Hi"}) == "Hi"
    assert one.add({"type": "text_delta", "text": ""}) is None
    assert one.end() is None


def test_thought_comes_to_be_shown_and_to_be_sent_back() -> None:
    one = blocks()
    assert one.begin({"type": "thinking", "thinking": "", "signature": ""}, 0) is None
    first = {"type": "reasoning.text", "text": "Hm", "index": 0, **FORMAT}
    piece = {"type": "reasoning.text", "format": FORMAT["format"], "index": 0}
    assert delta(one.add({"type": "thinking_delta", "thinking": "Hm"})) == {
        "reasoning_content": "Hm",
        "reasoning_details": [first],
    }
    assert delta(one.add({"type": "thinking_delta", "thinking": "."})) == {
        "reasoning_content": ".",
        "reasoning_details": [{**piece, "text": "."}],
    }
    assert delta(one.add({"type": "signature_delta", "signature": "c2ln"})) == {
        "reasoning_details": [{**piece, "signature": "c2ln"}]
    }
    assert one.end() is None


def test_hidden_thought_and_redacted_one_keep_what_proves_them_and_their_place() -> None:
    one = blocks()
    one.begin({"type": "text", "text": "One"}, 0)
    one.add_text(" two")
    one.begin({"type": "tool_use", "id": "a", "name": "look", "input": {}}, 1)
    hidden = {"type": "reasoning.text", "text": "", "signature": "c2ln", "index": 2, **FORMAT}
    place = {"after_text": 7, "after_calls": 1}
    begun = one.begin({"type": "thinking", "thinking": "", "signature": "c2ln"}, 2)
    assert delta(begun) == {"reasoning_details": [{**hidden, **place}]}
    redacted = {"type": "reasoning.encrypted", "data": "eHg=", "index": 3, **FORMAT, **place}
    assert delta(one.begin({"type": "redacted_thinking", "data": "eHg="}, 3)) == {"reasoning_details": [redacted]}


def test_thought_that_begins_whole_is_one_chunk() -> None:
    one = blocks()
    found = delta(one.begin({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, 0))
    assert found["reasoning_content"] == "Hm." and [entry["index"] for entry in found["reasoning_details"]] == [0, 0]


def test_calls_are_numbered_and_their_arguments_come_in_pieces() -> None:
    one = blocks()
    caller = {"type": "code_execution_20250825", "tool_id": "s"}
    assert delta(one.begin({"type": "tool_use", "id": "a", "name": "look", "input": {}, "caller": caller}, 0)) == {
        "tool_calls": [
            {"index": 0, "id": "a", "type": "function", "caller": caller, "function": {"name": "look", "arguments": ""}}
        ]
    }
    assert one.add({"type": "input_json_delta", "partial_json": ""}) is None
    assert delta(one.add({"type": "input_json_delta", "partial_json": '{"x'})) == {
        "tool_calls": [{"index": 0, "function": {"arguments": '{"x'}}]
    }
    assert one.end() is None
    one.begin({"type": "tool_use", "id": "b", "name": "look", "input": {"y": 2}}, 1)
    assert delta(one.end()) == {"tool_calls": [{"index": 1, "function": {"arguments": '{"y":2}'}}]}
    one.begin({"type": "tool_use", "id": "c", "name": "look"}, 2)
    assert delta(one.end()) == {"tool_calls": [{"index": 2, "function": {"arguments": "{}"}}]}


def test_tool_that_the_provider_runs_is_kept_and_taints_the_run() -> None:
    """Its result is text of others; the call and its result go back to the model."""
    one = blocks()
    assert one.begin({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, 0) is None
    assert one.add({"type": "input_json_delta", "partial_json": '{"query": "x"}'}) is None
    called = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    assert delta(one.end()) == {
        "reasoning_details": [{"type": "reasoning.provider_tool", "block": called, "index": 0, **FORMAT}],
        "executed_tools": [{"type": "server_tool_use", "name": "web_search"}],
    }
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    one.begin(result, 1)
    assert delta(one.end())["reasoning_details"][0]["block"] == result


def test_citations_are_passed_on_and_stray_pieces_are_not() -> None:
    one = blocks()
    one.begin({"type": "text", "text": ""}, 0)
    cited = {"type": "char_location", "cited_text": "x"}
    assert delta(one.add({"type": "citations_delta", "citation": cited})) == {"citations": [cited]}
    for stray in ({"type": "thinking_delta", "thinking": "x"}, {"type": "of_the_future"}, {}, {"type": "text_delta"}):
        assert one.add(stray) is None
