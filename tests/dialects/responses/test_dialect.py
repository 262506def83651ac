"""The Responses API behind the seam: parsed, written as a stream or whole, and refused."""

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.loader import load_dialect
from gateway.dialects.responses.dialect import DIALECT
from tests.dialects.responses.schema import check_frames, check_response
from tests.dialects.responses.scripts import SCRIPTS

TOLD: list[Chunk] = ["Hello", chunks.build_finish("stop"), {"choices": [], "usage": {"prompt_tokens": 3}}]
RUN = "run_" + "0a" * 12
#: What a client answers to calls of its own tools.
OUTPUTS = {
    "function_call": {"type": "function_call_output", "output": "1"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "1"},
    "local_shell_call": {"type": "local_shell_call_output", "output": "1"},
    "shell_call": {"type": "shell_call_output", "output": []},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed"},
}


def content(**fields: object) -> bytes:
    return orjson.dumps({"model": "m", "input": "Hi", **fields})


def test_responses_dialect_loads_by_its_package_name() -> None:
    """By the name that is its endpoint as well."""
    assert load_dialect("responses") is DIALECT and DIALECT.endpoint == "responses"


@pytest.mark.parametrize("streams", [True, False])
def test_responses_request_is_parsed_and_answered(*, streams: bool) -> None:
    """As a chat completion for the model, and as a response for the client."""
    asked = DIALECT.parse(content(stream=streams), needs_model=True)
    assert asked.body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert (asked.text, asked.streams) == ("Hi", streams)
    answer = DIALECT.build_writer(asked, run_id=RUN, created_s=1.5)
    response = orjson.loads(answer.build_whole(TOLD))
    check_response(response)
    assert (response["id"], response["created_at"], response["status"]) == ("resp_" + "0a" * 12, 1, "completed")
    assert answer.usage == {"prompt_tokens": 3}
    stream = DIALECT.build_writer(asked, run_id=RUN, created_s=1.5).build_stream_writer()
    events = check_frames(b"".join([stream.build_first_frame(), *map(stream.build_frames, TOLD), stream.finish()]))
    assert events[-1]["response"]["output"] == response["output"]


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not name.startswith("compact")])  # a seal needs a store
def test_response_output_is_accepted_as_input(name: str) -> None:
    """Clients that keep nothing at the gateway send all of it back, with the outputs of their tools."""
    output = SCRIPTS[name].ended().output
    calls = [item for item in output if item["type"] in OUTPUTS and item["status"] == "completed"]
    outputs = [{**OUTPUTS[item["type"]], "call_id": item["call_id"]} for item in calls]
    further = {"role": "user", "content": "Go on."}
    asked = DIALECT.parse(content(input=[further, *output, *outputs, further]), needs_model=True)
    messages = asked.body["messages"]
    called = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    own = [item["id"] for item in output if item["type"] == "mcp_call"]  # one that was cut, too
    assert sorted(called) == sorted([*own, *(item["call_id"] for item in calls)])
    assert called == [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def test_a_background_response_is_queued_first() -> None:
    """As its request says."""
    asked = DIALECT.parse(content(background=True), needs_model=True)
    assert asked.wishes.background
    stream = DIALECT.build_writer(asked, run_id=RUN, created_s=1.5).build_stream_writer()
    assert b"event: response.queued\n" in stream.build_first_frame()


def test_response_request_without_a_model_is_refused() -> None:
    """With the field at fault."""
    with pytest.raises(GatewayError) as caught:
        DIALECT.parse(b"{}", needs_model=True)
    assert caught.value.param == "model"


def test_sealed_summary_is_refused_without_the_store() -> None:
    """Only pages with the key of the store can open it."""
    sealed = {"type": "compaction", "encrypted_content": "x"}
    with pytest.raises(GatewayError) as caught:
        DIALECT.parse(content(input=[sealed, {"role": "user", "content": "Hi"}]), needs_model=True)
    assert caught.value.param == "input[0].encrypted_content"
