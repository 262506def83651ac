"""The pages of the context lane: on every path, for whoever may, up to their limits."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from agent.models import HELLO

from gateway.api.chat import MODEL_PATHS
from gateway.contracts.storage.store import Json
from gateway.dialects.chat import ENDPOINT
from gateway.dialects.registry import build_paths
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.messages import Request, Response
from gateway.testing.raw_connection import connect
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream

ASKED: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
MODELS = b'{"object": "list", "data": [{"id": "m"}]}'


def model(request: Request) -> bytes:
    return build_answer(200, MODELS, [("Content-Type", "application/json")]) if request.method == b"GET" else HELLO


@asynccontextmanager
async def gateway(**config: object) -> AsyncIterator[tuple[LocalGateway, FakeUpstream]]:
    """In front of a model that says "Hello"."""
    async with FakeUpstream(serve(model)) as upstream:
        entry = {"name": "up", "base_url": upstream.base_url}
        if "keys" in config:
            entry["api_key"] = "sk-upstream"
        content = {"upstreams": [entry], "store": "sqlite:///:memory:", **config}
        async with LocalGateway(content) as made:
            yield made, upstream


async def ask(
    to: LocalGateway, path: str, *lines: bytes, method: bytes = b"POST", body: Json | None = None
) -> Response:
    content = json.dumps(body or ASKED).encode() if method == b"POST" else b""
    head = [b"%b %b HTTP/1.1" % (method, path.encode()), b"Host: localhost", b"Content-Length: %d" % len(content)]
    head.append(b"Content-Type: application/json")
    async with connect(to.host, to.port) as client:
        await client.send(b"\r\n".join([*head, *lines, b"", b""]) + content)
        return await client.read_response()


def code(response: Response) -> tuple[int, str]:
    return response.status, json.loads(response.payload)["error"]["code"]


async def test_every_context_chat_path_answers() -> None:
    """With and without `v1`, so that both base URLs work; a context header makes the plain path ours, too."""
    async with gateway() as (made, upstream):
        for path in build_paths(ENDPOINT):
            told = await ask(made, path, b"X-Context-Mode: context")
            assert told.status == 200, path
            assert json.loads(told.payload)["choices"][0]["message"]["content"] == "Hello"
            assert told.list_values(b"x-context-run-id") == told.list_values(b"x-request-id")
        assert {request.target for request in upstream.requests} == {b"/v1/chat/completions"}


async def test_model_list_is_relayed_from_the_upstream() -> None:
    """For clients that list them first."""
    async with gateway() as (made, upstream):
        for path in MODEL_PATHS:
            told = await ask(made, path, b"X-Mine: 1", method=b"GET")
            assert (told.status, told.payload) == (200, MODELS)
        assert all(request.list_values(b"x-mine") == [b"1"] for request in upstream.requests)


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"", (401, "missing_api_key")), (b"nope", (401, "invalid_api_key")), (b"low", (403, "scope_missing"))],
)
async def test_chat_and_models_require_the_context_scope(key: bytes, expected: tuple[int, str]) -> None:
    """Chat and models need the scope `context`; nothing reaches the upstream."""
    keys = [
        {"name": "low", "sha256": sha256(b"low").hexdigest(), "scopes": ["passthrough"]},
        {"name": "high", "sha256": sha256(b"high").hexdigest(), "scopes": ["context"]},
    ]
    async with gateway(keys=keys) as (made, upstream):
        lines = [b"Authorization: Bearer " + key] if key else []
        assert code(await ask(made, "/context/v1/chat/completions", *lines)) == expected
        assert code(await ask(made, "/context/v1/models", *lines, method=b"GET")) == expected
        assert not upstream.requests
        assert (await ask(made, "/context/v1/chat/completions", b"Authorization: Bearer high")).status == 200
        (request,) = upstream.requests
        assert request.list_values(b"authorization") == [b"Bearer sk-upstream"]


async def test_chat_body_over_the_limit_returns_413() -> None:
    """`limits.context_body`; up to it everything is read."""
    async with gateway(limits={"context_body": "10KiB"}) as (made, upstream):
        large = {**ASKED, "x": "y" * 10240}
        assert code(await ask(made, "/context/v1/chat/completions", body=large)) == (413, "request_too_large")
        assert not upstream.requests
        fitting = {**ASKED, "x": "y" * 9000}
        assert (await ask(made, "/context/v1/chat/completions", body=fitting)).status == 200


async def test_chat_error_request_id_is_the_run_id() -> None:
    """The request id of an error is the run's, once there is one."""
    async with gateway() as (made, _):
        told = await ask(made, "/context/v1/chat/completions", b"X-Context-Chain: nope")
        assert code(told) == (400, "invalid_header")
        (request_id,) = told.list_values(b"x-request-id")
        assert request_id.decode() in json.loads(told.payload)["error"]["message"]


def flows(folder: Path) -> Json:
    """A folder with the workflow `echo`, which says its text again, and asks the model nothing."""
    echo = {
        "name": "echo",
        "description": "x",
        "parameters": {"text": {"required": True}},
        "steps": [{"name": "said", "prompt": "[{{params.text}}]"}],
    }
    folder.chmod(0o700)
    file = folder / "echo.yaml"
    file.write_text(json.dumps(echo))
    file.chmod(0o600)
    return {"folder": str(folder)}


def saying(*messages: str) -> Json:
    return {"model": "m", "messages": [{"role": "user", "content": message} for message in messages]}


async def test_a_message_calls_a_workflow_on_every_path(tmp_path: Path) -> None:
    """`/name` as the first word of the last message: its answer is the workflow's."""
    async with gateway(workflows=flows(tmp_path)) as (made, upstream):
        for path in build_paths(ENDPOINT):
            told = await ask(made, path, b"X-Context-Mode: context", body=saying("Hi", "/echo  two words "))
            assert json.loads(told.payload)["choices"][0]["message"]["content"] == "[two words]", path
            assert told.list_values(b"x-context-run-id") == told.list_values(b"x-request-id")
        assert not upstream.requests


async def test_a_workflow_is_called_in_context_mode_only(tmp_path: Path) -> None:
    """The passthrough lane changes nothing of what it relays."""
    async with gateway(workflows=flows(tmp_path)) as (made, upstream):
        told = await ask(made, "/v1/chat/completions", body=saying("/echo x"))
        assert told.status == 200 and not told.list_values(b"x-context-run-id")
        assert json.loads(upstream.requests[0].payload) == saying("/echo x")


async def test_invalid_workflow_parameters_return_422_and_start_nothing(tmp_path: Path) -> None:
    """The error names the parameter, and the run that there would have been."""
    async with gateway(workflows=flows(tmp_path)) as (made, upstream):
        for message in ("/echo", "/echo text=a text=b"):
            told = await ask(made, "/context/v1/chat/completions", body=saying(message))
            assert code(told) == (422, "invalid_parameters")
            assert json.loads(told.payload)["error"]["param"] == "text"
        assert not upstream.requests


async def test_decision_takes_precedence_over_a_workflow_of_its_name(tmp_path: Path) -> None:
    """And an unknown `/name` is the model's business."""
    async with gateway(workflows=flows(tmp_path)) as (made, upstream):
        unknown = "approve ap_" + "a" * 26
        assert code(await ask(made, "/context/v1/chat/completions", body=saying(unknown))) == (
            404,
            "approval_not_found",
        )
        assert not upstream.requests
        assert (await ask(made, "/context/v1/chat/completions", body=saying("/help me"))).status == 200
        assert json.loads(upstream.requests[0].payload)["messages"][-1]["content"] == "/help me"
