"""Items put together from chunks: texts, thoughts, refusals, calls of the client's tools, and what a crash cuts."""

import pytest

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.responses.output.assembly import find_thought
from tests.dialects.responses.accumulator import Accumulated
from tests.dialects.responses.scripts import HEX, SCRIPTS, USAGE, Script, begun, call, done, piece, resumed, thought


def output(*told: Chunk) -> list[Json]:
    """Return the output that chunks make, as its events tell it."""
    items: list[Json] = Accumulated(Script(chunks=told).events()).response["output"]
    return items


def brief(*told: Chunk) -> list[tuple[str, str]]:
    """Return each item as its kind or status, and its text."""
    return [
        (
            item["type"] if item["status"] == "completed" else item["status"],
            "".join(part.get("text", part.get("refusal")) for part in item.get("content") or item.get("summary") or ()),
        )
        for item in output(*told)
    ]


# Texts.


def test_text_pieces_form_one_message() -> None:
    """With one part."""
    (message,) = output("Hel", "lo", chunks.build_delta({"content": "!"}))
    assert message["content"] == [{"type": "output_text", "text": "Hello!", "annotations": [], "logprobs": []}]


def test_leading_empty_lines_are_removed_from_a_message() -> None:
    """Empty lines before it come from the rounds of the run. Those within it stay."""
    assert brief("\n", "\n\n", begun(0), done(0), "\n", "\nHi\n", "\n") == [("mcp_call", ""), ("message", "Hi\n\n")]
    assert output("\n\n")[0]["content"] == [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]


def test_empty_answer_has_a_message_without_text() -> None:
    """Clients expect an item."""
    assert brief() == brief("", chunks.build_finish("stop"), USAGE) == [("message", "")]


def test_reasoning_item_precedes_the_message() -> None:
    """Under either name that model servers have, and once where they send both."""
    found = [("reasoning", "Hmm."), ("message", "Yes.")]
    assert brief(thought("Hm"), thought("m."), "Yes.") == found
    assert brief(thought("Hm", "reasoning"), thought("m.", "reasoning"), "Yes.") == found
    both = chunks.build_delta({"reasoning": "Hmm.", "reasoning_content": "Hmm."})
    assert brief(both, "Yes.") == found


def test_chunk_with_several_fields_yields_them_in_order() -> None:
    """In the order in which it has them."""
    found = brief(chunks.build_delta({"reasoning_content": "Hm.", "content": "Yes.", "role": "assistant"}), "!")
    assert found == [("reasoning", "Hm."), ("message", "Yes.!")]


def test_a_refusal_is_a_part_of_the_message() -> None:
    """Beside its text."""
    (message,) = output("Sure", chunks.build_delta({"refusal": "N"}), chunks.build_delta({"refusal": "o."}), "\n!")
    assert [part["type"] for part in message["content"]] == ["output_text", "refusal", "output_text"]
    assert message["content"][1] == {"type": "refusal", "refusal": "No."}
    assert message["content"][2]["text"] == "\n!"


def test_citations_are_annotations_of_the_text() -> None:
    """Those that name an address; the fields of others are not known."""
    cited = {
        "type": "url_citation",
        "url_citation": {"url": "http://a", "title": None, "start_index": 1, "end_index": -1},
    }
    wrong = [{"type": "url_citation"}, {"url_citation": {"url": 7}}, "x", None]
    (message,) = output("A b", chunks.build_delta({"annotations": [cited, *wrong, cited]}), " c")
    shown = {"type": "url_citation", "url": "http://a", "title": "", "start_index": 1, "end_index": 0}
    assert message["content"][0]["annotations"] == [shown, shown]
    assert brief(chunks.build_delta({"annotations": [cited]}), "Hi.") == [("message", "Hi.")]


def test_inline_images_become_image_generation_items() -> None:
    """Those in the answer itself; an address elsewhere is not read by the gateway."""
    shown, elsewhere = (
        {"type": "image_url", "image_url": {"url": url}} for url in ("data:image/png;base64,AA", "http://a")
    )
    before, image, behind = output("See:", chunks.build_delta({"images": [elsewhere, shown]}), "There.")
    assert image == {"id": f"ig_{HEX}0001", "type": "image_generation_call", "status": "completed", "result": "AA"}
    assert (before["type"], behind["type"]) == ("message", "message")


@pytest.mark.parametrize(
    "odd",
    [
        {"content": 7},
        {"content": [7, {"type": "text"}, {"type": "text", "text": 7}, {"type": "image_url", "image_url": 7}]},
        {"reasoning_content": [1], "refusal": {}, "annotations": {}, "images": "x"},
        {"tool_calls": "x", "function_call": "x"},
        {"tool_calls": [7, {}, {"function": 7}, {"function": {"name": 7}}, {"function": {}, "id": []}]},
        {"unheard_of": "x", "audio": {"data": "x"}},
    ],
)
def test_unknown_delta_fields_are_ignored(odd: Json) -> None:
    """A model server may send anything."""
    assert brief(chunks.build_delta(odd), "Hi.") == [("message", "Hi.")]


# Thoughts in the fast way.


def test_reasoning_only_chunk_is_recognized() -> None:
    """And nothing else, in the form that runs have."""
    assert find_thought(thought("Hm")) == find_thought(thought("Hm", "reasoning")) == "Hm"


@pytest.mark.parametrize(
    "chunk",
    [
        "Hm",
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [{"index": 0, "delta": {}}]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 1, "delta": {"reasoning": "Hm"}}]},
        {"choices": [{"index": 0, "delta": {"reasoning": "Hm"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"reasoning": "Hm", "content": "x"}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}}]},
        {"choices": [{"index": 0, "delta": {"reasoning": "Hm"}}], "usage": {}},
        {"choices": [{"index": 0, "delta": {"reasoning": "Hm"}}] * 2},
    ],
)
def test_chunk_with_more_than_reasoning_is_read_whole(chunk: Chunk) -> None:
    """Else a finish reason would be lost, or a usage."""
    assert find_thought(chunk) is None


# Calls of the client's tools.


def test_client_tool_call_becomes_a_function_call_item() -> None:
    """With the id that the model gave it."""
    (item,) = output(call("f", '{"a":1}'))
    assert item == {
        "id": f"fc_{HEX}0000",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_1",
        "name": "f",
        "arguments": '{"a":1}',
    }


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("own calls", [("call_1", "f", "{}"), ("call_2", "g", "{}")]),
        ("own calls of one index", [("call_1", "f", "{}"), ("call_2", "g", "{}")]),
        ("own call in pieces", [("call_1", "f", '{"a":1}')]),
        ("own call without an id", [(f"call_{HEX}0000", "f", "{}")]),
        ("function call", [(f"call_{HEX}0000", "f", "{}")]),
        ("cut behind own calls", [("call_1", "f", "{}")]),
        ("namespace", [("call_1", "read", "{}")]),
    ],
)
def test_tool_calls_are_assembled_from_any_server_format(name: str, calls: list[tuple[str, str, str]]) -> None:
    """With indexes or without, whole or in pieces, once more after a crash."""
    found = SCRIPTS[name].ended().output
    assert [(item["call_id"], item["name"], item["arguments"]) for item in found] == calls


def test_namespaced_tool_call_reports_its_namespace() -> None:
    """Models know both names in one."""
    assert SCRIPTS["namespace"].ended().output[0]["namespace"] == "files"


@pytest.mark.parametrize(
    ("name", "text"),
    [("custom tool", "*** a"), ("custom tool in pieces", "x")],
)
def test_custom_tool_input_is_sent_in_one_piece(name: str, text: str) -> None:
    """In one piece: models write it as JSON, so its pieces are none of the text."""
    deltas = [event["delta"] for event in SCRIPTS[name].events() if "delta" in event]
    assert deltas == [text]
    assert SCRIPTS[name].ended().output[0]["input"] == text


def test_invalid_custom_tool_arguments_become_a_function_call() -> None:
    """As the model wrote them: no tool of the client's runs anything else."""
    script = SCRIPTS["custom tool, wrong arguments"]
    events = [event for event in script.events() if "item_id" in event or "item" in event]
    assert [event["type"].removeprefix("response.") for event in events] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert (events[0]["item"]["arguments"], events[0]["item"]["status"]) == ("", "in_progress")
    (item,) = script.ended().output
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "patch", "x")
    assert events[1]["delta"] == events[2]["arguments"] == "x" and events[3]["item"] == item


def test_built_in_client_tools_have_their_own_item_types() -> None:
    """Whose fields are known at once."""
    found = [item["type"] for item in SCRIPTS["tools without a schema"].ended().output]
    assert found == ["shell_call", "local_shell_call", "apply_patch_call", "message"]
    added = next(event for event in SCRIPTS["a patch alone"].events() if event["type"] == "response.output_item.added")
    assert added["item"]["operation"] == {"type": "update_file", "path": "a.py", "diff": "+x"}


def test_call_piece_without_a_call_is_ignored() -> None:
    """Nobody could run it."""
    assert brief(piece("{}"), "Hi.", piece("{}")) == [("message", "Hi.")]


# Runs that a crash cut.


def test_unrecorded_text_stays_as_an_incomplete_message() -> None:
    """Readers have seen it. The model is asked again, and its answer is another message."""
    assert brief("On", resumed(""), "One.") == [("incomplete", "On"), ("message", "One.")]
    assert brief("One. ", "Tw", resumed("One. "), "Two.") == [("incomplete", "One. Tw"), ("message", "Two.")]


def test_recorded_text_continues_without_loss_or_repetition() -> None:
    """Nothing of it is lost, and nothing told twice."""
    assert brief("One.", resumed("One."), " Two.") == [("message", "One. Two.")]
    assert brief(resumed("One."), " Two.") == [("message", "One. Two.")]
    assert brief("\n\nOn", resumed("\n\nOne."), " Two.") == [("message", "One. Two.")]
    assert brief("\n\n", resumed("\n\n"), "One.") == [("message", "One.")]


def test_reasoning_of_a_lost_answer_is_incomplete() -> None:
    """They are on no record."""
    assert brief(thought("Hm"), resumed(""), thought("Hmm."), "Yes.") == [
        ("incomplete", "Hm"),
        ("reasoning", "Hmm."),
        ("message", "Yes."),
    ]


def test_run_may_be_resumed_more_than_once() -> None:
    """Each time by its record."""
    told = ["A", "b", resumed("A"), "c", resumed("A"), "C.", resumed("AC. D"), "E"]
    assert brief(*told) == [("incomplete", "Ab"), ("incomplete", "c"), ("message", "C. DE")]


def test_resumption_counts_text_before_a_call() -> None:
    """The record has the texts of all rounds in one."""
    told = ["One.", begun(0), done(0), "\n\nTw", resumed("One."), begun(0), done(0), "\n\nTwo."]
    assert brief(*told) == [("message", "One."), ("mcp_call", ""), ("incomplete", "Tw"), ("message", "Two.")]
