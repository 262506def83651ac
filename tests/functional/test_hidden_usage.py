"""Words that a client has repeated in an answer, which do not hide its usage."""

import json

import pytest
from functional.through import ask, get, post, through
from gateways import until_read

from gateway.testing.scripts import build_answer, build_event_stream, serve

PATH = b"/v1/responses"
ASK = post(b'{"model": "o3", "input": "hi"}', PATH)
USAGE = {"input_tokens": 20_000, "output_tokens": 90_000, "output_tokens_details": {"reasoning_tokens": 80_000}}
BEHIND = {
    "values": {f"a{number}": "usage" for number in range(16)},
    "ends of values": {f"a{number}": '\\"usage": {}, "usage' for number in range(16)},
    "keys": [{"usage": {"input_tokens": number}} for number in range(300)],
    "models": [{"model": f"other{number}"} for number in range(300)],
    "strings": [["usage", "model", '"usage":', "{}[]"] for number in range(300)],
    "text": '{"usage": {"input_tokens": 1}},' * 300,
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
async def test_usage_is_found_despite_client_text_repeated_in_the_answer(behind: object, *, streamed: bool) -> None:
    """In an answer whose beginning is too long to be kept."""
    response = {"model": "o3", "instructions": "x" * 70_000, "model_": 1, "usage": USAGE, "metadata": behind}
    if streamed:
        event = {"type": "response.completed", "response": {"id": "r", **response}}
        created = {"type": "response.created", "response": {"id": "r", "model": "o3"}}
        body = build_event_stream([b"data: %b\n\n" % json.dumps(one).encode() for one in (created, event)])
        headers = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]
    else:
        body, headers = json.dumps(response).encode(), [("Content-Type", "application/json")]
    async with through(serve(build_answer(200, body, headers)), usage={"enabled": True}) as (gateway, _):

        async def counted() -> list[tuple[object, ...]]:
            told = await ask(gateway, get(b"/context/usage?by=model"))
            rows = json.loads(told.payload)["data"]
            return [(row["model"], row["input"], row["output"], row["estimated"]) for row in rows]

        assert (await ask(gateway, ASK)).status == 200
        assert await until_read(counted, lambda rows: bool(rows)) == [("o3", 20_000, 90_000, 0)]
