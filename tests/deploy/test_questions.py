"""The questions that an operator has on call, as docs/operations.md answers them, asked of a real Prometheus."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from running import all_workers, fetch

from gateway.counters import CONTEXT_FACTS
from gateway.metrics import HTTP_FACTS
from gateway.testing.run import GatewayProcess

from .prometheus import scraping

OPERATIONS = Path(__file__).parent.parent.parent / "docs" / "operations.md"
QUERIES = re.findall(r"^```promql\n(.*?)\n```$", OPERATIONS.read_text(), re.MULTILINE | re.DOTALL)
ASK = {"model": "demo", "messages": [{"role": "user", "content": "Hello?"}]}


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
            async with asyncio.timeout(60):
                while not await prometheus.value('sum(gateway_tokens_total{type="completion"}) > 0'):
                    await asyncio.sleep(0.2)
                slow, _, oldest, stuck, _ = QUERIES
                while not await prometheus.value(slow):
                    await asyncio.sleep(0.2)
            assert await prometheus.value(oldest) == {"": 0.0}
            assert await prometheus.value(stuck) == {}
            for query in QUERIES:
                await prometheus.value(query)


@asynccontextmanager
async def asked(gateway: GatewayProcess) -> AsyncIterator[None]:
    """While both lanes are asked again and again."""

    async def ask() -> None:
        async with aiohttp.ClientSession(f"http://{gateway.host}:{gateway.port}") as session:
            while True:
                for path in ("/v1/chat/completions", "/context/v1/chat/completions"):
                    async with session.post(path, json=ASK) as response:
                        assert response.status == 200, await response.read()
                await asyncio.sleep(0.05)

    task = asyncio.create_task(ask())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()
