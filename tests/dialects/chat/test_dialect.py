"""Chat completions behind the seam: parsed, written as a stream or whole, and refused."""

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.chat.dialect import DIALECT
from gateway.dialects.chat.reply import DONE
from gateway.http.error_response import build_error_body

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
TOLD: list[Chunk] = ["Hello", chunks.build_finish("stop"), {"choices": [], "usage": USAGE}]
ERROR = GatewayError("invalid_field", "It is wrong.", param="model")


def content(**fields: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields})


@pytest.mark.parametrize("streams", [True, False])
def test_parsed_request_keeps_the_body_for_the_model(*, streams: bool) -> None:
    """Its last message may decide; chat completions have no field for that."""
    asked = DIALECT.parse(content(stream=streams), needs_model=True)
    assert (asked.body, asked.text, asked.streams) == (orjson.loads(content(stream=streams)), "Hi", streams)
    assert asked.decisions == ()


def test_chat_request_without_messages_is_refused() -> None:
    """As the check of the body says."""
    with pytest.raises(GatewayError) as caught:
        DIALECT.parse(b"{}", needs_model=True)
    assert (caught.value.code, caught.value.param) == ("missing_field", "messages")


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
def test_stream_contains_usage_only_when_the_client_requests_it(options: Json | None) -> None:
    """The turn's usage is known in any case."""
    asked = DIALECT.parse(content(stream=True, stream_options=options), needs_model=True)
    answer = DIALECT.build_writer(asked, run_id="run_7", created_s=1.5)
    stream = answer.build_stream_writer()
    raw = b"".join(
        [stream.build_first_frame(), *map(stream.build_frames, TOLD), stream.build_keepalive(), stream.finish()]
    )
    assert raw.endswith(DONE) and b'"id":"chatcmpl-7"' in raw and b'"created":1,' in raw
    assert (b'"usage"' in raw) == (options == {"include_usage": True})
    assert answer.usage == USAGE


def test_chat_answer_is_written_as_one_object() -> None:
    """The same turn as one object."""
    answer = DIALECT.build_writer(DIALECT.parse(content(), needs_model=True), run_id="run_7", created_s=1.5)
    told = orjson.loads(answer.build_whole(TOLD))
    assert (told["id"], told["model"], told["usage"]) == ("chatcmpl-7", "m", USAGE)
    assert told["choices"][0]["message"]["content"] == "Hello"
    assert answer.usage == USAGE


def test_errors_have_the_shape_of_the_api() -> None:
    """In a stream, as an event without an end."""
    body = build_error_body(ERROR, request_id="run_7")
    stream = DIALECT.build_writer(
        DIALECT.parse(content(), needs_model=True), run_id="run_7", created_s=1.5
    ).build_stream_writer()
    assert stream.build_error_frames(ERROR, request_id="run_7") == b"data: " + body + b"\n\n"
