"""The questions that an operator has on call, as docs/operations.md answers them, asked of a real Prometheus."""

import asyncio
import json
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from crash.effects import ASKS, settings
from crash.talk import CHAT, told
from gateways import all_workers, fetch, key, scrape, until_read

from gateway.telemetry.counters import CONTEXT_FACTS
from gateway.telemetry.metrics import HTTP_FACTS
from gateway.testing.run import GatewayProcess

from .prometheus import scraping

OPERATIONS = Path(__file__).parent.parent.parent / "docs" / "operations.md"
QUERIES = re.findall(r"^```promql\n(.*?)\n```$", OPERATIONS.read_text(), re.MULTILINE | re.DOTALL)
ASK = {"model": "demo", "messages": [{"role": "user", "content": "Hello?"}]}
TOKENS = 'gateway_tokens_total{key="ci",type="%s"}'
SPENT = 'sum by (type) (gateway_tokens_total{key="ci"})'


def test_each_query_names_what_there_is() -> None:
    """Metrics by their names, and labels that they have."""
    described = OPERATIONS.read_text()
    facts = {**HTTP_FACTS, **CONTEXT_FACTS}
    assert len(QUERIES) == 5
    for query in QUERIES:
        for name, labels in re.findall(r"(gateway_\w+)(?:\{(\w+))?", query):
            assert f"`{re.sub('_bucket$', '', name)}" in described
            family = facts.get(re.sub("_(total|bucket)$", "", name))
            assert family is None or not labels or labels in family.labels


async def test_a_prometheus_answers() -> None:
    """Where one is installed: of two workers, after requests to both lanes."""
    program = shutil.which("prometheus")
    text = json.dumps({"workers": 2, "keys": [], "upstreams": []})
    async with GatewayProcess(text) as gateway:
        await all_workers(gateway)
        if program is None:
            assert (await fetch(gateway, b"/metrics")).status == 200
            return
        async with asked(gateway), scraping(program, gateway) as prometheus:
            slow, _, oldest, stuck, _ = QUERIES
            for query in ('sum(gateway_tokens_total{type="completion"}) > 0', slow):
                await until_read(partial(prometheus.value, query))
            assert await prometheus.value(oldest) == {"": 0.0}
            assert await prometheus.value(stuck) == {}
            for query in QUERIES:
                await prometheus.value(query)


async def test_the_answers_are_right(tmp_path: Path) -> None:
    """Of a key's tokens, an approval and an upstream that ended, with two workers: as their client saw them."""
    program = shutil.which("prometheus")
    async with GatewayProcess(json.dumps({"keys": [], "upstreams": []})) as upstream:
        up = {"name": "up", "base_url": f"{upstream.base_url}/v1", "api_key": "none"}
        keys = [{**key("secret", "context"), "name": "ci"}]
        text = json.dumps(settings(tmp_path, workers=2, keys=keys, upstreams=[up], metrics={"public": True}))
        async with (
            GatewayProcess(text) as gateway,
            aiohttp.ClientSession(gateway.base_url, headers={"X-Gateway-Key": "secret"}) as session,
            asyncio.timeout(60),
        ):
            await all_workers(gateway)
            begun = await used(session, 1)
            async with scraping(program, gateway) if program else nullcontext() as prometheus:
                slow, failing, oldest, stuck, tokens = QUERIES
                if prometheus is not None:
                    await until_read(lambda: prometheus.value(tokens))
                spent = await used(session, 20)
                await until_read(lambda: by_type(gateway), lambda found: found == begun + spent)
                if prometheus is not None:
                    await until_read(lambda: prometheus.value(SPENT), lambda found: found == begun + spent)
                    assert await prometheus.value(tokens) == pytest.approx(
                        spent, rel=0.3
                    )  # it extrapolates to its window
                await told(session, f'tool ledger {{"run": "q", "n": {ASKS}}}')
                await until_read(lambda: scrape(gateway), lambda found: found["gateway_approvals_oldest_seconds"])
                await upstream.stop()
                async with session.post(CHAT, json=ASK) as response:
                    assert response.status == 502
                found = await scrape(gateway)
                assert found['gateway_upstream_requests_total{outcome="connect",upstream="up"}'] == 1
                if prometheus is None:
                    return
                while not await prometheus.value(failing):
                    async with session.post(CHAT, json=ASK) as response:
                        assert response.status == 502
                assert set(await prometheus.value(failing)) == {"connect"}
                assert set(await prometheus.value(slow)) == {"up"}
                assert (await prometheus.value(oldest))[""] > 0
                assert await prometheus.value(stuck) == {}


async def by_type(gateway: GatewayProcess) -> Counter[str]:
    """The tokens of the key `ci` that were counted."""
    found = await scrape(gateway)
    return Counter({kind: int(found[TOKENS % kind]) for kind in ("prompt", "completion")})


async def used(session: aiohttp.ClientSession, requests: int) -> Counter[str]:
    """The tokens of so many requests, as their answers say, by type."""
    total = Counter[str]()
    for _ in range(requests):
        async with session.post(CHAT, json=ASK) as response:
            usage = (await response.json())["usage"]
        total.update(prompt=usage["prompt_tokens"], completion=usage["completion_tokens"])
    return total


@asynccontextmanager
async def asked(gateway: GatewayProcess) -> AsyncIterator[None]:
    """While both lanes are asked again and again."""

    async def ask() -> None:
        async with aiohttp.ClientSession(f"http://{gateway.host}:{gateway.port}") as session:
            while True:
                for path in ("/v1/chat/completions", "/context/v1/chat/completions"):
                    async with session.post(path, json=ASK) as response:
                        assert response.status == 200, await response.read()
                await asyncio.sleep(0.05)  # the rate of the load

    task = asyncio.create_task(ask())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()
