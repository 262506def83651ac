"""Events of one message."""

import orjson

from gateway.dialects.messages.events import DELTA_END, BlockEvents, NoBlockEvents, encode_delta_head, encode_event


def test_piece_is_written_between_the_bytes_of_its_block() -> None:
    """As one event of its type."""
    events = BlockEvents()
    events.add_piece(encode_delta_head(2, "input_json_delta"), '{"a"')
    raw = events.take_frames()
    assert raw == encode_delta_head(2, "input_json_delta") + orjson.dumps('{"a"') + DELTA_END
    name, data = raw.decode().strip().split("\n")
    assert name == "event: content_block_delta"
    assert orjson.loads(data.removeprefix("data: ")) == {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '{"a"'},
    }
    assert events.take_frames() == b""


def test_event_has_its_type_twice() -> None:
    """As its name, and in its data."""
    assert encode_event("ping", {}) == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_message_that_is_not_streamed_has_no_events() -> None:
    """Whatever happens to its blocks."""
    events = NoBlockEvents()
    events.start(0, {})
    events.add_piece(b"", "x")
    events.add_citation(0, {})
    events.stop(0)
    assert events.take_frames() == b""
