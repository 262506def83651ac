"""A reply on the wire: one clean chat completion, as a stream or whole, whatever the pieces it comes in."""

import orjson
import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.chat.reply import DONE, Completion, CompletionFacts, Frames

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
META = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}


def turn() -> CompletionFacts:
    return CompletionFacts.from_request("run_7", {"model": "m"}, created_s=1_700_000_000.9)


def delta(index: int = 0, finish: str | None = None, **content: object) -> Json:
    return {"id": "upstream's", "choices": [{"index": index, "delta": content, "finish_reason": finish}]}


def streamed(*chunks: Json, include_usage: bool = False) -> list[Json]:
    """The frames between the first and [DONE]; each is a whole event of one JSON object."""
    frames = Frames(turn(), include_usage=include_usage)
    raw = b"".join([frames.build_first_frame(), *map(frames.build_frames, chunks), frames.finish()])
    assert raw.endswith(DONE) and raw.count(DONE) == 1
    first, *rest = [orjson.loads(line.removeprefix(b"data: ")) for line in raw.removesuffix(DONE).split(b"\n\n")[:-1]]
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    for frame in (first, *rest):
        assert {key: frame[key] for key in META} == META
    return rest


def whole(*chunks: Json) -> Json:
    completion = Completion(turn())
    for chunk in chunks:
        completion.add(chunk)
    answer: Json = orjson.loads(completion.build_body())
    return answer


HELLO = (delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta(finish="stop"))


# Streams.


def test_a_stream_has_one_role_one_finish_reason_and_one_end() -> None:
    """One id, created and model for the turn, whatever the upstream's chunks say."""
    *texts, last = streamed(*HELLO, delta(finish="length"))
    assert [frame["choices"][0]["delta"] for frame in texts] == [{"content": ""}, {"content": "Hel"}, {"content": "lo"}]
    assert all(frame["choices"][0]["finish_reason"] is None for frame in texts)
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
        ("function_call", "function_call"),
        (None, "stop"),
    ],
)
def test_unknown_finish_reason_is_sent_as_stop(told: str | None, shown: str) -> None:
    """Others break some of them."""
    assert streamed(delta(content="x"), delta(finish=told))[-1]["choices"][0]["finish_reason"] == shown
    assert whole(delta(content="x"), delta(finish=told))["choices"][0]["finish_reason"] == shown


@pytest.mark.parametrize("include_usage", [False, True])
def test_usage_frame_comes_last_and_only_when_requested(include_usage: bool) -> None:
    """In a frame without choices; nothing was said: zeros."""
    for usage in (USAGE, None):
        *_, last = streamed(*HELLO, {"choices": [], "usage": usage}, include_usage=include_usage)
        assert ("usage" in last) is include_usage
        if include_usage:
            assert last["choices"] == []
            assert last["usage"] == (usage or dict.fromkeys(USAGE, 0))


def test_empty_deltas_produce_no_frame() -> None:
    """An empty delta, usage, other choices than the first, null fields."""
    nothing: list[Json] = [delta(), delta(index=1, content="other"), delta(content=None), {}, {"object": "x"}]
    nothing += [{"choices": choices} for choices in ([], None, [{"index": 1, "delta": {"content": "other"}}])]
    nothing += [
        {"choices": [{"index": 0, "delta": one}]} for one in (None, {}, {"role": "assistant"}, {"content": None})
    ]
    assert len(streamed(*nothing)) == 1


def test_other_delta_fields_are_forwarded() -> None:
    """Reasoning, refusals and tool calls, as they are."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    frames = streamed(delta(reasoning_content="Hm."), delta(refusal="No."), delta(tool_calls=[call]))
    assert [frame["choices"][0]["delta"] for frame in frames[:-1]] == [
        {"reasoning_content": "Hm."},
        {"refusal": "No."},
        {"tool_calls": [call]},
    ]


def test_context_event_is_sent_as_a_whole_chunk() -> None:
    """And an empty delta: safe for clients that know nothing of it."""
    told = {"type": "tool.started", "tool": "look"}
    event, last = streamed({**delta(), "context": told})
    assert event["context"] == told
    assert event["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert "context" not in last


def test_turn_fact_is_sent_on_the_last_chunk() -> None:
    """What is no event is told once, at the end."""
    frames = streamed(delta(content="x"), {"choices": [], "usage": USAGE, "context": {"usage_estimated": True}})
    assert [frame.get("context") for frame in frames] == [None, {"usage_estimated": True}]


def test_keep_alive_is_an_empty_chunk() -> None:
    """No comment, no `event:`: those break clients."""
    raw = Frames(turn(), include_usage=False).build_keepalive()
    assert raw.startswith(b"data: {") and raw.endswith(b"}\n\n") and raw.count(b"\n") == 2
    assert orjson.loads(raw[6:]) == {**META, "choices": [{"index": 0, "delta": {}, "finish_reason": None}]}


def test_sparse_chunk_is_read_like_a_full_one() -> None:
    """Some upstreams leave out what clients can guess."""
    frames = streamed(
        {"choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"choices": [{"delta": {"content": "b"}}]},
        {"choices": [{"delta": {"role": "assistant", "content": "c"}, "index": 0}]},
        {"choices": [{"delta": {}, "finish_reason": "length"}]},
    )
    assert [frame["choices"][0]["delta"] for frame in frames] == [
        {"content": "a"},
        {"content": "b"},
        {"content": "c"},
        {},
    ]
    assert frames[-1]["choices"][0]["finish_reason"] == "length"


# Whole answers.


def test_a_whole_answer_is_the_sum_of_its_chunks() -> None:
    """With usage always: some clients crash without."""
    answer = whole(*HELLO, {"choices": [], "usage": USAGE})
    assert answer == {
        "id": "chatcmpl-7",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": USAGE,
    }
    assert whole(*HELLO)["usage"] == dict.fromkeys(USAGE, 0)


def test_an_empty_answer_has_empty_content() -> None:
    """Not null: that means tool calls."""
    assert whole(delta(finish="stop"))["choices"][0]["message"] == {"role": "assistant", "content": ""}


def test_tool_call_pieces_are_joined_by_index() -> None:
    """By index; content is null where there was none."""
    pieces = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g"}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]
    answer = whole(*(delta(tool_calls=[piece]) for piece in pieces), delta(finish="tool_calls"))
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_reasoning_and_facts_are_in_a_whole_answer() -> None:
    """Events are not: nobody waits for them there."""
    event = {**delta(), "context": {"type": "run.started"}}
    fact = {"choices": [], "usage": USAGE, "context": {"usage_estimated": True}}
    answer = whole(event, delta(reasoning_content="Hm"), delta(reasoning_content="."), *HELLO, fact)
    assert answer["context"] == {"usage_estimated": True}
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello", "reasoning_content": "Hm."}
