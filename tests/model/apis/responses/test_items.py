"""The items of a response as they stream, as deltas of chat completions."""

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import FieldAccumulator
from gateway.model.apis.responses.items import AnswerItems
from gateway.model.apis.responses.thoughts import ENCRYPTED, MESSAGE, PROVIDER_TOOL, SUMMARY, TEXT, extract_items
from tests.responses_server import calls, reasons, says

SUMMARY_DELTA = "response.reasoning_summary_text.delta"


def deltas(*chunks: Chunk | None) -> list[Json]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if isinstance(chunk, dict)]


def details(*chunks: Chunk | None) -> list[Json]:
    joined = FieldAccumulator()
    for delta in deltas(*chunks):
        joined.add("reasoning_details", delta.get("reasoning_details"))
    return joined.get_whole()["reasoning_details"]  # type: ignore[no-any-return]


def test_summary_in_pieces_and_its_parts_come_back_as_they_were() -> None:
    item, items = reasons("One.", "Two."), AnswerItems()
    items.answer_id = "resp_1"
    chunks = [items.begin({**item, "summary": []}, 0)]
    for part, piece in ((0, "On"), (0, "e."), (1, "Two.")):
        chunks.append(items.add(SUMMARY_DELTA, {"delta": piece, "summary_index": part}, 0))
    chunks += items.end(item, 0)
    shown = [delta["reasoning_content"] for delta in deltas(*chunks) if "reasoning_content" in delta]
    assert "".join(shown) == "One.\n\nTwo."
    assert [entry["type"] for entry in details(*chunks)] == [SUMMARY, ENCRYPTED]
    assert [one.block for one in extract_items(details(*chunks), set())] == [item]


def test_item_that_comes_at_its_end_alone_is_whole() -> None:
    items = AnswerItems()
    made = [reasons("One.", "Two."), says("Yes.", phase="final_answer"), calls("look", {"x": 1})]
    chunks = [chunk for index, item in enumerate(made) for chunk in items.end(item, index)]
    assert "Yes." in chunks and items.has_calls
    call = [delta["tool_calls"][0] for delta in deltas(*chunks) if "tool_calls" in delta]
    assert call[0]["id"] == made[2]["call_id"] and call[1]["function"]["arguments"] == '{"x": 1}'
    first, phase = extract_items(details(*chunks), set())
    assert first.block == made[0] and phase.block == {"type": MESSAGE, "phase": "final_answer"}


def test_open_reasoning_is_shown_once() -> None:
    items, item = AnswerItems(), {"type": "reasoning", "id": "rs_1", "summary": []}
    chunks = [items.begin(item, 0), items.add("response.reasoning_text.delta", {"delta": "Hm."}, 0)]
    chunks.append(items.add(SUMMARY_DELTA, {"delta": "Short.", "summary_index": 0}, 0))
    assert [delta.get("reasoning_content") for delta in deltas(*chunks)] == ["Hm.", None]
    assert [entry["type"] for entry in details(*chunks)] == [TEXT, SUMMARY]


def test_places_count_the_text_and_the_calls_in_front() -> None:
    items = AnswerItems()
    items.begin(says(""), 0)
    items.add_text("Hello", 0)
    items.begin(calls("look", {}), 1)
    (entry,) = details(*items.end(reasons(), 2))
    assert (entry["after_text"], entry["after_calls"], entry["index"]) == (5, 1, 2)


def test_refusal_and_arguments_come_in_pieces() -> None:
    items = AnswerItems()
    refused = items.add("response.refusal.delta", {"delta": "No."}, 0)
    items.begin(calls("look", {}), 1)
    piece = items.add("response.function_call_arguments.delta", {"delta": "{"}, 1)
    assert deltas(refused, piece) == [
        {"refusal": "No."},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ]
    assert list(items.end({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}, 0)) == []
    assert items.add("response.function_call_arguments.delta", {"delta": 7}, 1) is None
    (told,) = items.end({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}, 2)
    assert deltas(told) == [{"refusal": "No."}]


def test_tools_of_the_provider_are_named_and_go_back() -> None:
    search: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    (chunk,) = AnswerItems().end(search, 0)
    (delta,) = deltas(chunk)
    assert delta["executed_tools"] == [{"type": "web_search_call", "name": None}]
    assert delta["reasoning_details"][0]["type"] == PROVIDER_TOOL
    assert [one.block for one in extract_items(delta["reasoning_details"], set())] == [search]
