"""Answers of the Responses API: events in order, the same as the whole response, and again behind any of them."""

from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.contracts.errors import CODES, GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.responses.response_metadata import ResponseFacts
from tests.dialects.responses.accumulator import Accumulated
from tests.dialects.responses.schema import check_event, check_frames, check_response, events_of
from tests.dialects.responses.scripts import (
    CREATED_S,
    ENDED_S,
    FAILURE,
    FIELDS,
    HEX,
    REQUEST_ID,
    RESPONSE_ID,
    SCRIPTS,
    STOP,
    USAGE,
    Script,
    begun,
    call,
    done,
    listed,
    piece,
    question,
    resumed,
    thought,
)

scripted = pytest.mark.parametrize("name", SCRIPTS)
HOSTILE = (
    "\u2028\u2029",
    "\x00\x1b\x7f",
    '"}\n\ndata: [DONE]\n\n',
    "event: response.failed\r\n",
    "\U0001f600",
    "\ufeff",
)


def told(name: str) -> list[str]:
    """Return the types of the events of a script."""
    return [event["type"].removeprefix("response.") for event in SCRIPTS[name].events()]


# All answers.


@scripted
def test_every_event_is_valid_and_in_order(name: str) -> None:
    """Against the schemas, numbered from 0; the pieces of each text are the text that its item has at last."""
    Accumulated(SCRIPTS[name].events())


@scripted
def test_whole_response_equals_its_accumulated_events(name: str) -> None:
    """Whatever it was read for."""
    script = SCRIPTS[name]
    response = Accumulated(script.events()).response
    answer = script.ended()
    check_response(response)
    assert answer.build_resource() == response and answer.output == response["output"]
    if script.error is None:
        assert orjson.loads(script.answer().build_whole(script.chunks)) == response


@scripted
def test_response_stream_resumes_behind_any_event(name: str) -> None:
    """With the same bytes: of no event there are two, and none is missing."""
    script = SCRIPTS[name]
    whole = [frame for frame in b"".join(script.frames()).split(b"\n\n") if frame.startswith(b"event: ")]
    for after in range(-1, len(whole) + 1):
        rest = b"".join(script.frames(after=after))
        assert [frame for frame in rest.split(b"\n\n") if frame.startswith(b"event: ")] == whole[after + 1 :]
        assert rest.endswith(b"data: [DONE]\n\n")


@scripted
def test_response_snapshot_is_valid_after_each_chunk(name: str) -> None:
    """It is valid at any moment, and nothing of it changes by being looked at."""
    script = SCRIPTS[name]
    answer, plain = script.answer(), script.frames()
    stream = answer.build_stream_writer()
    frames = [stream.build_first_frame()]
    for chunk in script.chunks:
        frames.append(stream.build_frames(chunk))
        response = answer.build_resource()
        check_response(response)
        assert response["status"] == "in_progress" and response["completed_at"] is None
    assert frames == plain[:-1]


# The order of events.


def test_text_response_sends_the_openai_event_sequence() -> None:
    """As OpenAI sends them."""
    assert told("text") == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_failed_mcp_call_sends_its_event_sequence() -> None:
    """An item of its own, between the messages before and behind it."""
    assert told("failed call")[2:10] == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.failed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
    ]


def test_a_background_response_is_queued_until_its_run_begins() -> None:
    """The first chunk shows that it has begun, or its end."""
    assert told("background")[:3] == told("background, nothing")[:3] == ["created", "queued", "in_progress"]
    script = SCRIPTS["background"]
    answer = script.answer()
    assert answer.build_resource()["status"] == "queued"
    stream = answer.build_stream_writer()
    first = events_of(stream.build_first_frame())
    assert [event["response"]["status"] for event in first] == ["queued", "queued"]
    (begun_event, *_) = events_of(stream.build_frames("One"))
    assert (begun_event["type"], begun_event["response"]["status"]) == ("response.in_progress", "in_progress")
    assert answer.build_resource()["status"] == "in_progress" and answer.build_resource()["background"] is True


# How answers end.


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("too long", "max_output_tokens"),
        ("filtered", "content_filter"),
        ("too long before the first word", "max_output_tokens"),
        ("too long in a call", "max_output_tokens"),
        ("too long in a patch", "max_output_tokens"),
    ],
)
def test_stopped_model_makes_an_incomplete_response(name: str, reason: str) -> None:
    """The item that it was making is incomplete, too."""
    event = SCRIPTS[name].events()[-1]
    response = event["response"]
    assert (event["type"], response["status"]) == ("response.incomplete", "incomplete")
    assert response["incomplete_details"] == {"reason": reason}
    assert response["completed_at"] is None and response["error"] is None
    assert [item["status"] for item in response["output"]] == ["incomplete"] * (name != "too long in a patch")


def test_a_failure_is_an_error_and_then_a_failed_response() -> None:
    """The error names the gateway's code, where clients of either description look; open items are incomplete."""
    *_, error, failed = SCRIPTS["failure"].events()
    message = f"The model took too long. (request id: {REQUEST_ID})"
    told = {"code": "upstream_timeout", "message": message, "param": None}
    assert error == {
        "type": "error",
        **told,
        "error": {"type": "server_error", **told},
        "sequence_number": error["sequence_number"],
    }
    response = failed["response"]
    assert failed["type"] == "response.failed" and response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": message, "type": "upstream_timeout", "param": None}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


def test_a_failure_before_the_first_chunk_has_no_items() -> None:
    """Only the response."""
    assert told("failure at once") == ["created", "in_progress", "error", "failed"]


@pytest.mark.parametrize("code", CODES)
def test_error_code_maps_to_an_openai_code(code: str) -> None:
    """Others are no values of the SDKs' types."""
    error = Script(chunks=[], error=GatewayError(code, "It failed."))
    if code == "run_cancelled":
        return
    found = error.events()[-1]["response"]["error"]
    named = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
    assert found["code"] == named.get(CODES[code].status, "server_error")
    assert found["type"] == code


def test_failure_of_an_unknown_request_omits_its_id() -> None:
    """The store does not keep the id of each request."""
    answer = Script(chunks=[]).answer()
    answer.fail(FAILURE, request_id="")
    assert answer.build_resource()["error"]["message"] == "The model took too long."


def test_cancelled_response_has_no_error() -> None:
    """The client knows who cancelled it. No event is named so: the SDKs know none."""
    *_, last = SCRIPTS["cancelled"].events()
    assert last["type"] == "response.failed"
    assert (last["response"]["status"], last["response"]["error"]) == ("cancelled", None)
    assert "error" not in told("cancelled")
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_a_complete_response_has_times_and_tokens() -> None:
    """In whole seconds, as OpenAI has them, and with the details of its tokens."""
    answer = SCRIPTS["text"].ended()
    response = answer.build_resource()
    assert (response["id"], response["created_at"], response["completed_at"]) == (
        RESPONSE_ID,
        int(CREATED_S),
        int(ENDED_S),
    )
    assert response["usage"] == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": 50,
    }
    assert answer.usage == USAGE["usage"]


def test_response_metadata_lists_left_out_tools_and_estimated_usage() -> None:
    """Beside what the client put there: its own keys and its 16 pairs stay, and a value has 512 characters."""
    estimated: list[Chunk] = ["x", {**USAGE, "context": {"usage_estimated": True, "memory": "added"}}]

    def told(metadata: Json, *left_out: str) -> list[Json]:
        facts = ResponseFacts(fields={**FIELDS, "metadata": metadata}, left_out=left_out)
        first, *_, last = Script(chunks=estimated, facts=facts).events()
        return [first["response"]["metadata"], last["response"]["metadata"]]

    first = {"a": "b", "left_out_tools": "web_search, computer"}
    assert told({"a": "b"}, "web_search", "computer", "web_search") == [first, {**first, "usage_estimated": "true"}]
    own = {"left_out_tools": "mine", **{str(i): "x" * 512 for i in range(14)}}
    assert told(own, "web_search") == [own, {**own, "usage_estimated": "true"}]
    full = {str(i): "" for i in range(16)}
    assert told(full, "web_search") == [full, full]
    assert len(told({}, *(f"tool_{i}" for i in range(200)))[0]["left_out_tools"]) == 512


# The stream.


def test_response_keep_alive_is_an_unnumbered_comment() -> None:
    """It has no number, so a stream that goes on elsewhere needs none."""
    stream = SCRIPTS["text"].answer().build_stream_writer()
    stream.build_first_frame()
    assert stream.build_keepalive() == b": keep-alive\n\n"
    assert events_of(stream.build_frames("Hi"))[0]["sequence_number"] == 2


@pytest.mark.parametrize("n", [1, 509, 510, 511, 512, 513, 1100, 20_000])
def test_long_stream_events_are_numbered_consecutively(n: int) -> None:
    """Beyond the numbers that are kept for all streams."""
    script = Script(chunks=[str(i) for i in range(n)])
    events = check_frames(b"".join(script.frames())) if n < 2000 else events_of(b"".join(script.frames()))
    assert [event["sequence_number"] for event in events] == [*range(n + 8)]
    assert [event["delta"] for event in events if "delta" in event] == [str(i) for i in range(n)]
    behind = events_of(b"".join(script.frames(after=n // 2)))
    assert behind == events[n // 2 + 1 :]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_cannot_forge_events(text: str) -> None:
    """No text ends an event, or begins one."""
    script = Script(chunks=["a", text, thought(text), thought(text), call("f", text), begun(0), done(0, text)])
    response = Accumulated(script.events()).response
    message, thinking, own, of_gateway = response["output"]
    assert message["content"][0]["text"] == "a" + text
    assert thinking["summary"][0]["text"] == text + text
    assert (own["arguments"], of_gateway["output"]) == (text, text)


def test_long_text_is_assembled_from_any_pieces() -> None:
    """Of 1 MB in one piece, and of as much in a hundred thousand."""
    for pieces in (["x" * 1_000_000], ["0123456789"] * 100_000):
        response = Script(chunks=pieces).ended().build_resource()
        assert response["output"][0]["content"][0]["text"] == "".join(pieces)
        assert events_of(b"".join(Script(chunks=pieces).frames()))[-1]["response"] == response


@pytest.mark.parametrize("before", [[], ["a"], ["a", "b"]])
def test_unserializable_text_ends_the_stream_with_a_failure(before: Sequence[Chunk]) -> None:
    """What was told before it stays, and the numbers go on."""
    stream = Script(chunks=[]).answer().build_stream_writer()
    frames = [stream.build_first_frame(), *map(stream.build_frames, before)]
    with pytest.raises(TypeError):
        stream.build_frames("\ud800")
    frames.append(stream.build_error_frames(FAILURE, request_id=REQUEST_ID))
    events = check_frames(b"".join(frames))
    assert _shown_texts(Accumulated(events).response) == ["".join(map(str, before))]


# Any chunks.

TEXTS = st.one_of(st.text(st.characters(codec="utf-8"), max_size=8), st.sampled_from(("\n", "\n\nx", "", *HOSTILE)))
NUMBERS = st.integers(0, 3)
PIECES = st.one_of(
    TEXTS,
    TEXTS.map(thought),
    TEXTS.map(lambda text: thought(text, "reasoning")),
    TEXTS.map(lambda text: chunks.build_delta({"refusal": text})),
    TEXTS.map(lambda text: chunks.build_delta({"content": text})),
    TEXTS.map(lambda text: chunks.build_delta({"content": [{"type": "text", "text": text}, {"type": "x"}]})),
    st.builds(
        lambda name, text, number: call(name, text, call_id=f"call_{number}", index=number),
        st.sampled_from(("f", "patch", "shell", "apply_patch", "files__read")),
        TEXTS,
        NUMBERS,
    ),
    st.builds(lambda text, number: piece(text, index=number), TEXTS, NUMBERS),
    st.builds(lambda number: begun(number), NUMBERS),
    st.builds(lambda number, text, ok: done(number, text, ok=ok), NUMBERS, TEXTS, st.booleans()),
    st.builds(lambda number: question(f"ap_{number}", f"ap_{number + 1}"), NUMBERS),
    st.just(listed(("notes", "notes.find"), (None, "clock"))),
    st.sampled_from(("stop", "length", "tool_calls", "content_filter")).map(chunks.build_finish),
    st.just(USAGE),
)


@given(told=st.lists(PIECES, max_size=25), fails=st.booleans(), background=st.booleans(), data=st.data())
@settings(max_examples=400, deadline=None)
def test_any_chunks_make_a_valid_response(
    told: Sequence[Chunk], *, fails: bool, background: bool, data: st.DataObject
) -> None:
    """In order, consistent, and the same behind any event."""
    script = Script(chunks=told, error=FAILURE if fails else None, background=background)
    events = script.events()
    response = Accumulated(events).response
    check_response(response)
    assert script.ended().build_resource() == response
    after = data.draw(st.integers(-1, len(events) - 1))
    assert events_of(b"".join(script.frames(after=after))) == events[after + 1 :]
    said = "".join(text for chunk in told for text in _texts_of(chunk))
    shown = "".join(_shown_texts(response))
    assert shown.replace("\n", "") == said.replace("\n", "")


@given(texts=st.lists(TEXTS, max_size=12), data=st.data())
@settings(max_examples=300, deadline=None)
def test_resumed_answer_keeps_recorded_text_once(texts: Sequence[str], data: st.DataObject) -> None:
    """Wherever it came: recorded texts are shown once, what follows comes behind them, and cut texts stay."""
    n_shown = data.draw(st.integers(0, len(texts)))
    n_recorded = data.draw(st.integers(0, len(texts)))
    recorded, cut = "".join(texts[:n_recorded]), "".join(texts[n_recorded:n_shown])
    script = Script(chunks=[*texts[:n_shown], resumed(recorded), resumed(recorded), "END", STOP])
    response = Accumulated(script.events()).response
    shown = "".join(_shown_texts(response))
    assert shown.replace("\n", "") == f"{recorded}{cut}END".replace("\n", "")
    whole = [item for item in response["output"] if item["status"] == "completed"]
    assert whole[-1]["content"][-1]["text"].endswith("END")


def _texts_of(chunk: Chunk) -> list[str]:
    if isinstance(chunk, str):
        return [chunk]
    content = [choice["delta"].get("content") for choice in chunk["choices"]]
    return [
        text
        for value in content
        for text in ([value] if isinstance(value, str) else [part.get("text", "") for part in value or ()])
    ]


def _shown_texts(response: Json) -> list[str]:
    return [
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    ]


def test_response_output_ids_contain_the_response_id() -> None:
    """Each is made of its id and of the place in the output."""
    output = SCRIPTS["calls"].ended().output
    assert [item["id"] for item in output] == [
        f"mcpl_{HEX}0000",
        f"msg_{HEX}0001",
        f"mcp_{HEX}0002",
        f"msg_{HEX}0003",
    ]


def test_checks_find_wrong_events() -> None:
    """Else they would show nothing."""
    (event, *_) = SCRIPTS["text"].events()
    del event["response"]["tools"]
    with pytest.raises(KeyError):
        check_event(event)
    with pytest.raises(AssertionError):
        check_event({"type": "response.output_text.delta", "sequence_number": "1"})
    with pytest.raises(AssertionError):
        check_event({"type": "response.unheard_of", "sequence_number": 1})
