"""Usage of many mixed requests: the gateway's sums are those of the upstream, to the token; and what a kill loses."""

import asyncio
import gzip
import json
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from functional.through import HOSTS, NO_WORKFLOWS, ask, client_of, get, meanwhile, post, through
from gateways import config, exchange, until_read
from usage.shapes import CHAT, EMBEDDINGS, MESSAGE, RESPONSE, chat_stream, message_stream, response_stream, text

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_head, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

TOKENS = ("input", "cached", "output", "reasoning")
COUNTS = ("requests", "rejected", "cut", "estimated")
PATHS = {
    "chat": b"/v1/chat/completions",
    "response": b"/v1/responses",
    "message": b"/v1/messages",
    "embeddings": b"/v1/embeddings",
}
SSE = ("Content-Type", "text/event-stream")
CHUNKED = ("Transfer-Encoding", "chunked")


@dataclass
class Said:
    """An answer of the upstream: its payload, how it is sent, and its tokens."""

    body: bytes
    stream: bool = False
    coding: bool = False
    status: int = 200
    cut: bool = False
    counted: Counter[str] = field(default_factory=Counter)


def said_to(number: int) -> tuple[str, Said]:
    """The API of request `number`, and the answer to it, the same each time."""
    dice = random.Random(number)
    api = dice.choice(list(PATHS))
    asked, answered = dice.randrange(1, 100_000), 0 if api == "embeddings" else dice.randrange(1, 10_000)
    cached, reasoning = dice.randrange(asked + 1), dice.randrange(answered + 1)
    words = [dice.choice(("word ", '"usage":{"prompt_tokens":7}', "\n\ndata: x", "中文 "))] * dice.choice((1, 5, 400))
    kind = dice.choices(("whole", "stream", "cut", "rejected"), (45, 40, 10, 5))[0]
    if kind == "rejected":
        return api, Said(text(CHAT), status=dice.choice((400, 429, 503)), counted=Counter(requests=1, rejected=1))
    if kind == "cut":
        said = Said(chat_stream(*words, always=True)[:-14], stream=True, cut=True)
        said.counted = Counter(requests=1, cut=1, input=19, output=len(words))
        return "chat", said
    coding = dice.random() < 0.3
    counted = Counter(requests=1, input=asked, cached=cached, output=answered, reasoning=reasoning)
    if api == "message":
        counted["reasoning"] = 0
    if api == "embeddings":
        filling = [{"embedding": [0.5] * dice.choice((1, 20_000))}]
        body = text({**EMBEDDINGS, "data": filling, "usage": {"prompt_tokens": asked, "total_tokens": asked}})
        counted["cached"] = 0
    else:
        body = _written(api, words, kind == "stream", (asked, cached, answered, reasoning))
    return api, Said(body, kind == "stream" and api != "embeddings", coding, counted=counted)


def _written(api: str, words: list[str], stream: bool, tokens: tuple[int, int, int, int]) -> bytes:
    asked, cached, answered, reasoning = tokens
    if api == "chat":
        usage: dict[str, Any] = {
            "prompt_tokens": asked,
            "completion_tokens": answered,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        return chat_stream(*words, usage=usage) if stream else text({**CHAT, "x": words, "usage": usage})
    if api == "response":
        usage = {
            "input_tokens": asked,
            "output_tokens": answered,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens_details": {"reasoning_tokens": reasoning},
        }
        response = {**RESPONSE, "output": words, "usage": usage}
        return response_stream(*words, response=response) if stream else text(response)
    usage = {"input_tokens": asked - cached, "cache_read_input_tokens": cached, "output_tokens": answered}
    zero = {"cache_creation_input_tokens": 0}
    if stream:
        return message_stream(*words, told={**usage, **zero})
    return text({**MESSAGE, "x": words, "usage": usage})


class Counting:
    """An upstream that counts what it says. `counted` are its sums."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.finish_request(await peer.read_head(timeout_s=None), timeout_s=None)
            number = int(json.loads(request.payload)["n"])
            _, said = said_to(number)
            self.counted += said.counted
            await self._answer(peer, said, chunked=said.stream or number % 2 == 0)
            if said.cut:
                return

    async def _answer(self, peer: Peer, said: Said, *, chunked: bool) -> None:
        body = gzip.compress(said.body, 1) if said.coding else said.body
        fields = [SSE if said.stream else ("Content-Type", "application/json")]
        fields += [("Content-Encoding", "gzip")] if said.coding else []
        if not chunked:
            await peer.send(build_answer(said.status, body, fields))
            return
        size = 300 if said.stream else 9000
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        await peer.send(build_head(said.status, [*fields, CHUNKED]) + b"".join(map(build_chunk, pieces)))
        if not said.cut:
            await peer.send(LAST_CHUNK)


async def ask_all(gateway: LocalGateway, numbers: list[int]) -> None:
    """Ask for these, one after the other on one connection, which ends where an answer is cut."""
    client: Peer | None = None
    for number in numbers:
        api, said = said_to(number)
        client = client or await client_of(gateway)
        await client.send(post(b'{"n":%d}' % number, PATHS[api]))
        if said.cut:
            response_head = await client.read_head()
            await client.read_rest()
            assert b" 200 " in response_head
            client.close()
            client = None
            continue
        response = await client.read_response()
        payload = gzip.decompress(response.payload) if said.coding else response.payload
        assert (response.status, payload) == (said.status, said.body), number
    if client is not None:
        client.close()


async def usage_of(gateway: LocalGateway, by: str = "day") -> list[dict[str, Any]]:
    response = await ask(gateway, get(b"/context/usage?by=" + by.encode()))
    data: list[dict[str, Any]] = json.loads(response.payload)["data"]
    return data


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_recorded_usage_sums_match_the_upstream_counts(count: int) -> None:
    """Of mixed requests on eight connections: whole, streamed, compressed, cut, refused, of four APIs."""
    upstream = Counting()
    async with through(upstream, usage={"enabled": True}) as (gateway, _):
        await asyncio.gather(*(ask_all(gateway, list(range(start, count, 8))) for start in range(8)))
        found = await usage_of(gateway, "lane")
        sums = Counter({name: sum(row[name] for row in found) for name in (*TOKENS, *COUNTS)})
        assert +sums == +upstream.counted
        assert sums["requests"] == count
        assert {row["lane"] for row in found} == {"passthrough"}


PLAIN = serve(build_answer(200, text({**CHAT, "usage": {"prompt_tokens": 10, "completion_tokens": 3}})))
MODEL = str(CHAT["model"])
CONTEXT = b"/context/v1/chat/completions"
ASK = post(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}', PATHS["chat"])


async def usage_at(host: str, port: int) -> int:
    """How many requests the usage of a gateway has."""
    async with connect(host, port) as client:
        response = await exchange(client, get(b"/context/usage?by=key"))
    return sum(row["requests"] for row in json.loads(response.payload)["data"])


async def keep_asking(gateway: GatewayProcess) -> None:
    """Asks one request after the other, while the gateway is there."""
    async with connect(gateway.host, gateway.port) as client:
        while True:
            await exchange(client, ASK)


async def test_stored_usage_survives_a_kill(tmp_path: Path) -> None:
    """Of two workers; the next start says that something may be missing, and an orderly end is no such thing."""
    async with FakeUpstream(PLAIN) as upstream:
        store = f"sqlite:///{tmp_path / 'gateway.db'}"
        settings = config(upstream.base_url, usage={"enabled": True}, workers=2, store=store)
        async with GatewayProcess(settings) as gateway:
            for _ in range(20):
                async with connect(gateway.host, gateway.port) as client:
                    assert (await exchange(client, ASK)).status == 200
            async with meanwhile(keep_asking(gateway)):  # a worker that has stored all has nothing to lose
                await until_read(lambda: usage_at(gateway.host, gateway.port), lambda used: used >= 30)
                os.killpg(gateway.pid, signal.SIGKILL)  # all at once: workers that outlive their leader end in order
                await gateway.wait()
            await gateway.start()
            stored = await usage_at(gateway.host, gateway.port)
            assert stored >= 30
            async with asyncio.timeout(60):
                while "did not end in order" not in gateway.read_stderr() + gateway.read_stdout():
                    await asyncio.sleep(0.05)
            async with connect(gateway.host, gateway.port) as client:
                assert (await exchange(client, ASK)).status == 200
            await gateway.stop()
            await gateway.start()
            assert await usage_at(gateway.host, gateway.port) == stored + 1


def settings_of(url: str, **usage: object) -> dict[str, Any]:
    return {
        "upstreams": [{"name": "up", "base_url": url}],
        "allowed_hosts": HOSTS,
        "workflows": NO_WORKFLOWS,
        "usage": usage,
    }


async def test_usage_is_recorded_for_both_lanes_after_a_reload(tmp_path: Path) -> None:
    """The context lane counts its calls of models; what was off is recorded from a reload on, with its prices."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nprices: [{model: 'gpt-4.1*', input: 2, output: 8}]\n")
    inside = post(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode(), CONTEXT)
    async with FakeUpstream(PLAIN) as fake, LocalGateway(settings_of(fake.base_url)) as gateway:
        for request in (ASK, inside):
            assert (await ask(gateway, request)).status == 200
        assert await usage_of(gateway) == []
        await gateway.reload(settings_of(fake.base_url, enabled=True))
        await ask(gateway, ASK)
        await gateway.reload(settings_of(fake.base_url, enabled=True, prices=str(prices)))
        for request in (ASK, inside):
            assert (await ask(gateway, request)).status == 200
        facts = ("lane", "upstream", "model", "requests", "input", "output", "cost", "currency")
        found = [tuple(row.get(fact) for fact in facts) for row in await usage_of(gateway, "lane,upstream,model")]
        assert found == [
            ("context", "up", MODEL, 1, 10, 3, 0.000044, "EUR"),
            ("passthrough", "up", MODEL, 1, 10, 3, None, None),
            ("passthrough", "up", MODEL, 1, 10, 3, 0.000044, "EUR"),
        ]


async def test_request_retried_at_another_endpoint_counts_once() -> None:
    """However often it was tried, it counts once, with the answer that the client got."""
    async with FakeUpstream(serve(build_answer(503, text(CHAT)))) as busy, FakeUpstream(PLAIN) as fine:
        endpoints = [{"url": one.base_url, "name": name} for one, name in ((busy, "a"), (fine, "b"))]
        settings = settings_of("http://127.0.0.1:1", enabled=True)
        settings["upstreams"] = [{"name": "up", "endpoints": endpoints}]
        async with LocalGateway(settings) as gateway:
            for _ in range(4):
                assert (await ask(gateway, ASK)).status == 200
            (row,) = await usage_of(gateway, "upstream")
            assert busy.requests
            assert (row["upstream"], row["requests"], row["rejected"], row["input"]) == ("up", 4, 0, 40)
