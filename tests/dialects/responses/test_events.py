"""Events on the wire: numbered, as server-sent events, and as the JSON that a WebSocket sends."""

import orjson
import pytest

from gateway.dialects.responses.events import (
    DONE,
    KEEPALIVE,
    NoEvents,
    ResponseEvents,
    encode_delta_head,
    extract_payloads,
)
from tests.dialects.responses.schema import events_of

HEAD = encode_delta_head("response.output_text.delta", {"item_id": "i"})


def three(*, after: int) -> bytes:
    """Return the frames of an event of each kind, as far as they stand behind `after`."""
    events = ResponseEvents(after=after)
    events.add_response("response.created", b'{"id":"r"}')
    events.add("response.x", {"a": "\u2028\n"})
    events.add_delta(HEAD, "\n\n")
    assert events.number == 3
    frames = events.take_frames()
    assert events.take_frames() == b""
    return frames


def test_event_has_its_type_and_a_final_sequence_number() -> None:
    """And is one line of JSON, whatever it holds."""
    assert events_of(three(after=-1)) == [
        {"type": "response.created", "response": {"id": "r"}, "sequence_number": 0},
        {"type": "response.x", "a": "\u2028\n", "sequence_number": 1},
        {"type": "response.output_text.delta", "item_id": "i", "delta": "\n\n", "sequence_number": 2},
    ]


@pytest.mark.parametrize("after", [-1, 0, 1, 2, 3, 10**9])
def test_events_before_the_resume_point_are_counted_and_not_sent(after: int) -> None:
    """Those behind have the same bytes."""
    numbers = [event["sequence_number"] for event in events_of(three(after=after))]
    assert numbers == [n for n in range(3) if n > after]
    assert three(after=-1).endswith(three(after=after))


@pytest.mark.parametrize("number", [0, 1, 511, 512, 16_384, 10**6])
def test_event_ends_have_consecutive_sequence_numbers(number: int) -> None:
    """One of them at least."""
    events = ResponseEvents()
    events.number = number
    ends = list(events.iterate_ends())
    assert len(ends) >= 1
    for further, end in enumerate(ends):
        assert orjson.loads(b"{" + end.strip().removeprefix(b",")) == {"sequence_number": number + further}


def test_unstreamed_response_writes_no_events() -> None:
    """They would cost, and nobody would read them."""
    events = NoEvents()
    events.add("response.x", {})
    events.add_response("response.created", b"{}")
    events.add_delta(HEAD, "a")
    assert events.take_frames() == b""


def test_a_websocket_gets_the_json_of_each_event() -> None:
    """No comments, and no end: it has frames of its own."""
    frames = three(after=-1)
    assert [orjson.loads(payload) for payload in extract_payloads(KEEPALIVE + frames + DONE)] == events_of(frames)
    assert extract_payloads(b"") == extract_payloads(DONE) == extract_payloads(KEEPALIVE) == []
