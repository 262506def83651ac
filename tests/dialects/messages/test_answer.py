"""A message as it is written, whole and as a stream."""

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.messages.answer import MessagesAnswer
from gateway.dialects.messages.events import PING, STOP

USAGE: Json = {"prompt_tokens": 3, "completion_tokens": 2}
END = [chunks.build_finish("stop"), {"choices": [], "usage": USAGE}]


def new_answer() -> MessagesAnswer:
    return MessagesAnswer(request_id="run_7", model="m", stops=["END"], shows_calls=False)


def test_stream_begins_and_ends_as_anthropics() -> None:
    """The tokens come with the end; a ping follows the first event, and fills silence."""
    answer = new_answer()
    stream = answer.build_stream_writer()
    first = stream.build_first_frame()
    assert first.startswith(b"event: message_start\n") and first.endswith(PING) and stream.build_keepalive() == PING
    assert b'"id":"msg_7"' in first and b'"input_tokens":0' in first
    told = [stream.build_frames(chunk) for chunk in ("a", "b", "", *END)]
    assert told[0].count(b"event: ") == 2 and told[1].count(b"event: ") == 1 and told[2:] == [b""] * 3
    last = stream.finish()
    assert last.endswith(STOP) and b'"input_tokens":3' in last and b'"stop_reason":"end_turn"' in last
    assert answer.usage == USAGE and answer.headers == {"request-id": "run_7"}


def test_whole_message_has_what_its_server_tells_of_a_refusal_and_a_container() -> None:
    """Where it tells it."""
    about = {"choices": [], "about": {"container": {"id": "c"}}, "about_choice": {"stop_details": {"type": "refusal"}}}
    refused = orjson.loads(new_answer().build_whole(["No.", about, chunks.build_finish("content_filter")]))
    assert refused["stop_details"] == {"type": "refusal"} and refused["container"] == {"id": "c"}
    ended = orjson.loads(new_answer().build_whole(["Yes.", about, *END]))
    assert "stop_details" not in ended and ended["content"] == [{"type": "text", "text": "Yes."}]


def test_error_is_an_event_of_a_stream() -> None:
    """With the id of the request."""
    raw = (
        new_answer()
        .build_stream_writer()
        .build_error_frames(GatewayError("upstream_error", "It broke."), request_id="run_7")
    )
    told = orjson.loads(raw.decode().strip().split("\n")[1].removeprefix("data: "))
    assert raw.startswith(b"event: error\n") and (told["type"], told["request_id"]) == ("error", "run_7")
