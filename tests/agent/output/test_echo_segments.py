"""The texts that a client gets: those that dialects show as items, and the whole."""

from gateway.agent.output.echo_segments import EchoSegments
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks


def thought(text: str) -> Json:
    return chunks.build_delta({"reasoning_content": text})


CALLED = chunks.build_event({"type": "tool.started"})


def told(*given: Chunk, tainted: bool = True) -> EchoSegments:
    made = EchoSegments()
    made.tainted = tainted
    for chunk in given:
        made.add(chunk)
    return made


def contents(messages: list[Json]) -> list[str]:
    return [message["content"] for message in messages]


def test_each_output_item_is_a_separate_text() -> None:
    """Thoughts, calls, images and calls of the gateway's end it; a refusal is a part of the message."""
    image = chunks.build_delta({"content": [{"type": "image_url"}]})
    own = chunks.build_delta({"tool_calls": [{"index": 0}]})
    given = [
        "a",
        "b",
        thought("c"),
        thought("d"),
        "e",
        CALLED,
        "f",
        image,
        "g",
        own,
        "h",
        chunks.build_delta({"refusal": "i"}),
    ]
    made = told(*given)
    assert contents(made.take_ended_texts()) == ["ab", "cd", "e", "f", "g"]
    (last, whole) = made.take_remaining_texts(["said"], [])
    assert last == {"content": "hi"}
    assert whole == {"reasoning_content": "cd", "refusal": "i", "content": "said", "tool_calls": []}
    assert made.take_remaining_texts(["said"], []) == []


def test_consecutive_text_chunks_form_one_text() -> None:
    """Whatever else comes beside it, such as the number of a step."""
    made = told("a", chunks.build_event({"type": "step.started"}), {"choices": []}, "b")
    assert contents(made.take_ended_texts()) == []
    assert contents(made.take_remaining_texts([], [])) == ["ab", ""]


def test_thoughts_that_come_under_two_names_count_once() -> None:
    """Some upstreams send both."""
    made = told(
        chunks.build_delta({"reasoning": "a", "reasoning_content": "a"}), chunks.build_delta({"reasoning": "b"})
    )
    (piece, whole) = made.take_remaining_texts([], [])
    assert piece == {"content": "ab"}
    assert (whole["reasoning_content"], whole["reasoning"]) == ("a", "ab")


def test_only_tainted_texts_are_taken() -> None:
    """A text that a tainted model goes on with is one."""
    made = told(thought("a"), "b", CALLED, "c", tainted=False)
    made.tainted = True
    made.add("d")
    (piece, whole) = made.take_remaining_texts([], [])
    assert piece == {"content": "cd"} and "reasoning_content" not in whole


def test_retried_answer_is_discarded_and_earlier_text_kept() -> None:
    """The text before it stays, and is gone on with if it was open."""
    made = told("a", thought("b"))
    made.begin_call()
    for chunk in (thought("c"), "d", chunks.build_delta({"x": "y"})):
        made.add(chunk)
    made.begin_call(again=True)
    made.add(thought("e"))
    (*pieces, whole) = made.take_remaining_texts([], [])
    assert contents(pieces) == ["a", "be"] and "x" not in whole


def test_continued_text_is_taken_again_as_a_whole() -> None:
    """Also if all was taken before the model is asked again: what strangers wrote must be marked as a whole."""
    made = told("a")
    made.begin_call()
    assert contents(made.take_remaining_texts(["a"], [])) == ["a", "a"]
    made.begin_call(again=True)
    made.add("b")
    assert contents(made.take_remaining_texts(["ab"], []))[-1] == "ab"


def test_wrapped_emit_records_and_emits_each_chunk() -> None:
    """And returns the pause, if any."""
    got: list[Chunk] = []
    made = told()
    assert made.wrap_emit(got.append)("a") is None
    assert got == ["a"] and contents(made.take_remaining_texts([], [])) == ["a", ""]
