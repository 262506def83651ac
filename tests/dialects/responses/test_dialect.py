"""The Responses API behind the seam: parsed, written as a stream or whole, and refused."""

import orjson
import pytest

from gateway.contracts.exchange import Chunk
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.responses.dialect import DIALECT
from gateway.dialects.table import DIALECTS
from gateway.errors import GatewayError
from gateway.http.error_response import error_body
from tests.dialects.responses.schema import check_frames, check_response

TOLD: list[Chunk] = ["Hello", chunks.finish("stop"), {"choices": [], "usage": {"prompt_tokens": 3}}]
RUN = "run_" + "0a" * 12


def content(**fields: object) -> bytes:
    return orjson.dumps({"model": "m", "input": "Hi", **fields})


def test_it_has_pages_of_its_own() -> None:
    """A request may go on from earlier ones."""
    assert DIALECT in DIALECTS and DIALECT.stateful
    assert DIALECT.endpoint == "responses"


@pytest.mark.parametrize("streams", [True, False])
def test_a_request_is_read_and_answered(*, streams: bool) -> None:
    """As a chat completion for the model, and as a response for the client."""
    asked = DIALECT.parse(content(stream=streams), needs_model=True)
    assert asked.body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert (asked.text, asked.streams) == ("Hi", streams)
    answer = DIALECT.answer(asked, run_id=RUN, created_s=1.5)
    response = orjson.loads(answer.whole(TOLD))
    check_response(response)
    assert (response["id"], response["created_at"], response["status"]) == ("resp_" + "0a" * 12, 1, "completed")
    assert answer.usage == {"prompt_tokens": 3}
    stream = DIALECT.answer(asked, run_id=RUN, created_s=1.5).stream()
    events = check_frames(b"".join([stream.first(), *map(stream.frames, TOLD), stream.finish()]))
    assert events[-1]["response"]["output"] == response["output"]


def test_a_background_response_is_queued_first() -> None:
    """As its request says."""
    asked = DIALECT.parse(content(background=True), needs_model=True)
    assert asked.wishes.background
    stream = DIALECT.answer(asked, run_id=RUN, created_s=1.5).stream()
    assert b"event: response.queued\n" in stream.first()


def test_a_wrong_request_is_refused() -> None:
    """With the field at fault."""
    with pytest.raises(GatewayError) as caught:
        DIALECT.parse(b"{}", needs_model=True)
    assert caught.value.param == "model"


def test_a_sealed_summary_needs_the_store() -> None:
    """Only pages with the key of the store can open it."""
    sealed = {"type": "compaction", "encrypted_content": "x"}
    with pytest.raises(GatewayError) as caught:
        DIALECT.parse(content(input=[sealed, {"role": "user", "content": "Hi"}]), needs_model=True)
    assert caught.value.param == "input[0].encrypted_content"


def test_errors_have_the_shape_of_the_api() -> None:
    """As all of OpenAI's APIs have it."""
    error = GatewayError("invalid_field", "It is wrong.", param="model")
    assert DIALECT.error(error, request_id="run_7") == error_body(error, request_id="run_7")
