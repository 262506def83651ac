"""What the access log and the metrics say of context requests: who asked for what, where it went, what became of it."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from gateways import samples, until

from .models import Answer, Json, calls, refuses, says
from .talking import CHAT, World, desk, stages, talking

KEY = {"X-Gateway-Key": "secret of ci"}
SETTINGS: Json = {
    "keys": [{"name": "ci", "sha256": hashlib.sha256(b"secret of ci").hexdigest(), "scopes": ["context", "admin"]}],
    "logging": {"access": True},
}
READ = calls("file_operations", operation="read", path="notes.txt")


def lines(world: World, path: str = CHAT) -> list[Json]:
    """The access log's lines of this path."""
    logged: list[Json] = [json.loads(line) for line in world.gateway.get_log().splitlines()]
    return [line for line in logged if line["event"] == "request" and line["path"] == path]


async def counted(world: World, name: str) -> dict[str, float]:
    async with world.session.get("/metrics", headers=KEY) as page:
        found = samples(await page.read())
    return {labels: value for labels, value in found.items() if labels.startswith(f"gateway_{name}")}


@pytest.mark.parametrize("stream", [False, True])
async def test_access_log_has_one_complete_line_per_answer(tmp_path: Path, stream: bool) -> None:
    """Also where tools ran; the tokens are those of all calls, and are counted by key."""
    async with talking(READ, says("Behind the mirror."), tools=desk(tmp_path), **SETTINGS) as world:
        body = {"model": "m", "messages": [{"role": "user", "content": "Where is it?"}], "stream": stream}
        body["stream_options"] = {"include_usage": True}
        async with world.session.post(CHAT, json=body, headers=KEY) as response:
            assert response.status == 200, await response.read()
            await response.read()
            run, request_id = response.headers["X-Context-Run-Id"], response.headers["x-request-id"]
        await until(lambda: lines(world))
        (line,) = lines(world)
        tokens = {"prompt": line.pop("prompt_tokens"), "completion": line.pop("completion_tokens")}
        assert line.pop("duration_ms") > 0 and line.pop("ts") and min(tokens.values()) > 0
        assert line == {
            "level": "info",
            "event": "request",
            "mode": "context",
            "route": "chat",
            "method": "POST",
            "path": CHAT,
            "status": 200,
            "client": "127.0.0.1",
            "key": "ci",
            "upstream": "up",
            "endpoint": world.model.upstream.base_url.removeprefix("http://"),
            "model": "m",
            "run": run,
            "request_id": request_id,
        }
        of_key = await counted(world, "tokens_total")
        assert of_key == {f'gateway_tokens_total{{key="ci",type="{kind}"}}': n for kind, n in tokens.items()}
        duration = f'gateway_http_request_duration_seconds_count{{mode="context",route="chat",stream="{stream}"}}'
        assert (await counted(world, "http_request_duration_seconds_count"))[duration.lower()] == 1


@pytest.mark.parametrize(
    ("answer", "body", "code"),
    [
        (says("Hi."), {"model": "m"}, "missing_field"),
        (refuses(429), {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, "upstream_limited"),
    ],
)
async def test_access_log_contains_the_request_id_of_an_error(answer: Answer, body: Json, code: str) -> None:
    """As its client has it, with the code."""
    async with talking(answer, **SETTINGS) as world:
        refused = await world.post(body, headers=KEY)
        assert refused.error["code"] == code
        await until(lambda: lines(world))
        (line,) = lines(world)
        assert (line["request_id"], line["error_code"]) == (refused.headers["x-request-id"], code)
        assert (line["status"], line["key"], line["client"]) == (refused.status, "ci", "127.0.0.1")


async def test_access_log_records_a_disconnected_client_as_499() -> None:
    """499, with its address and the run."""
    async with talking(says("Ne", asyncio.Event(), "ver"), **SETTINGS) as world:
        async with world.session.post(
            CHAT, json={"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}, headers=KEY
        ) as response:
            await response.content.readuntil(b"\n\n")
            run = response.headers["X-Context-Run-Id"]
            response.close()
        await until(lambda: lines(world))
        (line,) = lines(world)
        assert (line["status"], line["run"], line["client"], line["key"]) == (499, run, "127.0.0.1", "ci")


async def test_polling_and_health_requests_are_counted_separately() -> None:
    """Health checks and those who look after a run do not hide what clients of the lane get."""
    async with talking(says("Hi."), **SETTINGS) as world:
        assert (await world.chat(headers=KEY)).status == 200
        for path in ("/health/live", "/health/ready", "/context/runs", "/context/approvals", "/workflows", "/v1/none"):
            await world.get(path, **KEY)
        found = await counted(world, "http_requests_total")
        assert {
            (route, mode): sum(n for name, n in found.items() if f'mode="{mode}",route="{route}"' in name)
            for mode, route in (("context", "chat"), ("own", "health"), ("own", "polling"), ("own", "pages"))
        } == {("chat", "context"): 1, ("health", "own"): 2, ("polling", "own"): 2, ("pages", "own"): 1}
        await until(lambda: lines(world, "/context/runs"))
        (line,) = lines(world, "/context/runs")
        assert (line["route"], line["key"], line["client"]) == ("polling", "ci", "127.0.0.1")


async def test_tokens_are_counted_without_an_agent_loop() -> None:
    """And estimated where the model does not say."""
    chains = {"plain": stages()["assistant"][:-1]}
    async with talking(says("Hi there."), **{**SETTINGS, "chains": chains}) as world:
        assert (await world.chat(headers={**KEY, "X-Context-Chain": "plain"})).status == 200
        of_key = await counted(world, "tokens_total")
        assert len(of_key) == 2 and min(of_key.values()) > 0
