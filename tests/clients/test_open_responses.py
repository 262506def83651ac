"""The compliance tests of the Open Responses specification, before models that stream as real ones do."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from aiohttp import web

from tests.clients.conftest import running
from tests.clients.in_thread import InThread
from tests.clients.provider import PROVIDER_KEY, Provider

pytestmark = pytest.mark.clients

Json = dict[str, Any]
#: How a model calls the client's function: in the API's field for it, or as JSON in its text.
Calls = Literal["native", "text"]

NODE: Final = Path(__file__).with_name("node")
CASES: Final = (
    "basic-response",
    "assistant-phase",
    "response-output-phase-schema",
    "streaming-response",
    "websocket-response",
    "websocket-sequential-responses",
    "websocket-continuation",
    "websocket-reconnect-store-false-recovery",
    "websocket-previous-response-not-found",
    "websocket-failed-continuation-evicts-cache",
    "websocket-compact-new-chain",
    "system-prompt",
    "tool-calling",
    "image-input",
    "multi-turn",
    "compact-response",
    "compact-missing-model",
)


class RealModel(InThread):
    """`with RealModel("native") as model` streams as model servers do: thoughts first, then the answer in small pieces.

    It names what it sees in a picture, and calls the first function that a client offers it.
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def _app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._answer)])
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        deltas, reason = self._deltas(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        thoughts: list[Json] = [{"role": "assistant", "content": ""}, *pieces("reasoning_content", "Let me think.")]
        choices: list[Json] = [{"delta": delta, "finish_reason": None} for delta in (*thoughts, *deltas)]
        for choice in (*choices, {"delta": {}, "finish_reason": reason}):
            await write(response, choices=[{"index": 0, **choice}])
            await asyncio.sleep(0)
        usage = {"completion_tokens_details": {"reasoning_tokens": 4}, "prompt_tokens_details": {"cached_tokens": 2}}
        await write(
            response, choices=[], usage={"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16, **usage}
        )
        await response.write(b"data: [DONE]\n\n")
        return response

    def _deltas(self, body: Json) -> tuple[list[Json], str]:
        """Return the deltas behind its thoughts, and why it stops."""
        if tools := body.get("tools"):
            name, arguments = tools[0]["function"]["name"], {"location": "San Francisco, CA"}
            if self._calls == "text":
                return pieces(
                    "content", json.dumps({"tool": name, "parameters": arguments, "terminate": False})
                ), "stop"
            first = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
            further = [{"function": piece} for piece in pieces("arguments", json.dumps(arguments))]
            return [{"tool_calls": [{"index": 0, **part}]} for part in (first, *further)], "tool_calls"
        sees = "image_url" in json.dumps(body["messages"])
        return pieces("content", "A red heart." if sees else "The answer has a few words."), "stop"


def pieces(field: str, text: str) -> list[Json]:
    """A text in deltas of a few letters."""
    return [{field: text[start : start + 5]} for start in range(0, len(text), 5)]


async def write(response: web.StreamResponse, **facts: object) -> None:
    meta = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "real"}
    await response.write(f"data: {json.dumps({**meta, **facts})}\n\n".encode())


@pytest.fixture(scope="module", params=["demo", "native", "text"])
def results(request: pytest.FixtureRequest, provider: Provider) -> Iterator[dict[str, Json]]:
    """What came of each case: the demo model, and real ones that call functions either way."""
    if request.param == "demo":
        with running(json.dumps({"upstreams": provider.keyed})) as gateway:
            yield outcomes(gateway.base_url)
        return
    with (
        RealModel(request.param) as model,
        running(json.dumps({"upstreams": [{"name": "real", "base_url": f"{model.base_url}/v1"}]})) as gateway,
    ):
        yield outcomes(gateway.base_url)


def outcomes(root: str) -> dict[str, Json]:
    """The results of the suite, by its cases."""
    command = ("node", "openresponses.mjs", "--base-url", f"{root}/context/v1", "--api-key", PROVIDER_KEY)
    told = subprocess.run(
        (*command, "--model", "demo", "--json"), cwd=NODE, check=False, capture_output=True, text=True, timeout=300
    )
    return {result["id"]: result for result in json.loads(told.stdout)["results"]}


@pytest.mark.parametrize("case", CASES)
def test_gateway_passes_the_open_responses_suite(results: dict[str, Json], case: str) -> None:
    """Each case of the specification's own tests."""
    assert results[case]["status"] == "passed", results[case]


def test_case_list_matches_the_open_responses_suite(results: dict[str, Json]) -> None:
    """A later version of it may have others."""
    assert tuple(results[case]["id"] for case in CASES) == CASES and len(results) == len(CASES)


def test_suite_models_answer_with_reasoning_and_calls(results: dict[str, Json], request: pytest.FixtureRequest) -> None:
    """Thoughts and a call are items of their own."""
    if request.node.callspec.params["results"] == "demo":
        assert kinds(results, "tool-calling") == ["function_call"]
        return
    assert kinds(results, "basic-response") == ["reasoning", "message"]
    assert kinds(results, "tool-calling") == ["reasoning", "function_call"]
    assert "A red heart." in json.dumps(results["image-input"]["response"]["output"])
    (call,) = (item for item in results["tool-calling"]["response"]["output"] if item["type"] == "function_call")
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"location": "San Francisco, CA"})


def kinds(results: dict[str, Json], case: str) -> list[str]:
    return [item["type"] for item in results[case]["response"]["output"]]
