"""Background responses whose gateway is killed while they are made: what was read stays, and the rest follows."""

import json
import signal
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.support.gateway_process import GatewayProcess

from .effects import Json, settings
from .talk import session_with

RESPONSES = "/context/v1/responses"
#: Slow enough to be killed in the middle, with a call in front that is on record.
WORDS = 40
SAID = f'drip 20 long {WORDS} tool ledger {{"run": "killed", "n": 1}}'


async def frames(response: aiohttp.ClientResponse, *, until: int = 1 << 30) -> list[bytes]:
    """The events up to this number, or to the end, as they came."""
    read: list[bytes] = []
    with suppress(aiohttp.ClientError):
        while frame := await response.content.readuntil(b"\n\n"):
            if not frame.startswith(b":"):
                read.append(frame)
                if len(read) > until:
                    break
    return read


def event(frame: bytes) -> Json:
    found: Json = json.loads(frame.partition(b"\ndata: ")[2])
    return found


@pytest.mark.parametrize("at", [0, 4, pytest.param(12, marks=pytest.mark.crash), 30])
async def test_background_response_stream_resumes_after_a_kill(tmp_path: Path, at: int) -> None:
    """After `kill -9`, in the next process; from the first event on it is the same, and no tool ran twice."""
    async with GatewayProcess(json.dumps(settings(tmp_path))) as gateway:
        body = {"model": "demo", "input": SAID, "background": True, "stream": True}
        body["tools"] = [{"type": "mcp", "server_label": "gateway"}]
        async with session_with(gateway) as session, session.post(RESPONSES, json=body) as response:
            assert response.status == 200, await response.read()
            before = await frames(response, until=at)
            gateway.signal(signal.SIGKILL)
            before += await frames(response)
        await gateway.wait()
        response_id = event(before[0])["response"]["id"]
        await gateway.start()
        async with session_with(gateway) as session:
            last = event(before[-1])["sequence_number"]
            query = f"?stream=true&starting_after={last}"
            async with session.get(f"{RESPONSES}/{response_id}{query}") as response:
                after = await frames(response)
            async with session.get(f"{RESPONSES}/{response_id}?stream=true") as response:
                whole = await frames(response)
            async with session.get(f"{RESPONSES}/{response_id}") as response:
                made = await response.json()
        assert whole == before + after and whole[-1] == b"data: [DONE]\n\n"
        assert event(whole[-2])["response"] == made and made["status"] == "completed"
        numbers = [event(frame)["sequence_number"] for frame in whole[:-1]]
        assert numbers == list(range(len(numbers)))
        assert [item["type"] for item in made["output"]].count("mcp_call") == 1
