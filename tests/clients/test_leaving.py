"""openai-python leaves at `[DONE]`, before the body has ended: its answers are whole, and their connection is kept."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest
from aiohttp import web
from gateways import scrape, until_read

from gateway.testing.raw_connection import PATIENCE_S
from tests.clients.in_thread import InThread
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.clients

ANSWERS = 60
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


class Late(InThread):
    """A model that ends the body of a stream `late_s` after its last event."""

    def __init__(self) -> None:
        super().__init__()
        self.late_s = 0.0
        self.connections: set[object] = set()
        self.ended = threading.Semaphore(0)

    def _app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._answer)])
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        await request.read()  # else the server closes a connection on which the body comes late
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choice = {"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
        common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for facts in ({"choices": [choice]}, {"choices": [], "usage": USAGE}):
            await response.write(f"data: {json.dumps({**common, **facts})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        if self.late_s:
            await asyncio.sleep(self.late_s)
        await response.write_eof()
        self.ended.release()
        return response


@pytest.fixture(scope="module")
def model() -> Iterator[Late]:
    with Late() as model:
        yield model


@pytest.mark.parametrize("late_ms", [0, 2, 50])
async def test_answers_stay_whole_when_client_leaves_after_done(late_ms: int, model: Late) -> None:
    """With its tokens, over at most two connections."""
    model.late_s = late_ms / 1000
    model.connections.clear()
    entry = {"name": "up", "base_url": f"{model.base_url}/v1"}
    config = {"upstreams": [entry], "usage": {"enabled": True}, "store": "sqlite:///:memory:"}
    async with GatewayProcess(json.dumps(config)) as gateway:
        with openai.OpenAI(base_url=f"{gateway.base_url}/v1", api_key="k", max_retries=0) as client:
            for _ in range(ANSWERS):
                assert _text(client) == "Hello"
                assert model.ended.acquire(timeout=PATIENCE_S)  # a rest that is under way needs its connection
        told = await until_read(lambda: scrape(gateway), lambda found: _counted(found) == ANSWERS)
    assert told['gateway_upstream_requests_total{outcome="ok",upstream="up"}'] == ANSWERS
    assert told['gateway_usage_requests_total{lane="passthrough",model="m",outcome="ok"}'] == ANSWERS
    assert told["gateway_client_disconnects_total"] == 0
    assert len(model.connections) <= 2


def _text(client: openai.OpenAI) -> str:
    messages: Any = [{"role": "user", "content": "Hi"}]
    chunks = client.chat.completions.create(model="m", messages=messages, stream=True)
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def _counted(found: Mapping[str, float]) -> float:
    """Return the answers whose usage is stored, which follows their end."""
    return sum(value for name, value in found.items() if name.startswith("gateway_usage_requests_total{"))
