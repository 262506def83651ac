"""One bad night, which a real Prometheus watches: the ten questions of docs/operations.md have the right answers.

Two gateways share a store. Endpoints answer 503, or nothing at all; a model is retired; limits fill; an approval waits;
a reload is refused; a webhook is gone, an MCP server cannot start, and no collector takes the traces.
"""

import asyncio
import json
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from crash.effects import ASKS, settings
from crash.talk import CHAT, told
from gateways import all_workers, key, until_read

from gateway.testing.messages import Request
from gateway.testing.ports import free_port
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

from .prometheus import Prometheus, scraping
from .promql import alert_expressions, answers, dashboards

#: Requests of this minute that the key `greedy` may make.
FEW = 5
PRICES = "currency: EUR\nprices: [{model: '*', input: 100000, output: 200000}]\n"
JSON = [("Content-Type", "application/json")]
Found = list[tuple[Mapping[str, str], float]]


def body(model: str, **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello?"}], **more}


class Retiring:
    """An upstream whose model answers, until it is retired."""

    def __init__(self) -> None:
        self.is_retired = False

    def __call__(self, _: Request) -> bytes:
        if self.is_retired:
            return build_answer(404, b'{"error": {"message": "no such model"}}', JSON)
        message = {"role": "assistant", "content": "Hi"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return build_answer(200, json.dumps({"model": "old-1", "choices": choices, "usage": usage}).encode(), JSON)


def configuration(folder: Path, *, demo: str, broken: str, retiring: str) -> dict[str, object]:
    folder.joinpath("prices.yaml").write_text(PRICES)
    dead = f"http://127.0.0.1:{free_port()}"
    shaky = [{"name": "broken", "url": f"{broken}/v1"}, {"name": "dead", "url": f"{dead}/v1"}]
    greedy = {"tenant": "core", "limits": {"requests_per_minute": FEW, "cost_per_day": 1000}}
    return settings(
        folder,
        workers=2,
        keys=[
            {**key("ci", "context", "passthrough"), "name": "ci", "tenant": "team"},
            {**key("greedy", "passthrough"), "name": "greedy", **greedy},
        ],
        upstreams=[
            {"name": "up", "base_url": f"{demo}/v1", "api_key": "none"},
            {"name": "shaky", "endpoints": shaky, "api_key": "none", "paths": ["/shaky/"]},
            {"name": "old", "base_url": f"{retiring}/v1", "api_key": "none", "paths": ["/old/"], "models": ["old-*"]},
        ],
        chains={"assistant": [{"use": "agent_loop"}, {"use": "response_cache", "with": {"ttl": "10m"}}]},
        approvals={"notify": [{"webhook": f"{dead}/notices"}]},
        mcp={"servers": {"files": {"command": str(folder / "is-not-there")}}},
        tracing={"endpoint": dead},
        usage={"enabled": True, "prices": str(folder / "prices.yaml")},
        metrics={"public": True},
    )


@asynccontextmanager
async def asking(*gateways: GatewayProcess) -> AsyncIterator[None]:
    """While clients of each gateway ask again and again, four times a second."""

    async def ask(gateway: GatewayProcess) -> None:
        async with aiohttp.ClientSession(gateway.base_url) as session:
            while True:
                for who, path, asked in (
                    ("ci", "/v1/chat/completions", body("demo", stream=True, stream_options={"include_usage": True})),
                    ("ci", CHAT, body("demo", temperature=0)),
                    ("ci", CHAT, body("old-1")),
                    ("ci", "/shaky/v1/chat/completions", body("demo")),
                    ("greedy", "/v1/chat/completions", body("demo")),
                ):
                    async with session.post(path, json=asked, headers={"X-Gateway-Key": who}) as response:
                        await response.read()
                await asyncio.sleep(0.25)  # the rate of the load

    tasks = {asyncio.create_task(ask(gateway)) for gateway in gateways}
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks), [task.exception() for task in tasks]


class Operator:
    """A person on call, who copies queries out of the table."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._queries = answers()

    async def sees(self, number: int, place: int, accepts: Callable[[Found], object]) -> Found:
        """The answer to a query of a question, as soon as it is accepted."""
        query = self._queries[number][place]
        return await until_read(lambda: self._prometheus.found(query), accepts)


def has(*values: str, above: float = 0.0) -> Callable[[Found], bool]:
    """Return what accepts a series with these values of labels, and more than so much."""
    return lambda found: any({*values} <= {*labels.values()} and value > above for labels, value in found)


def is_zero(*values: str) -> Callable[[Found], bool]:
    """Return what accepts a series with these values of labels that is 0."""
    return lambda found: any({*values} <= {*labels.values()} and value == 0 for labels, value in found)


@pytest.mark.prometheus
async def test_operations_queries_find_the_causes_of_an_outage(tmp_path: Path) -> None:
    """Each query of the table has an answer, and what went wrong is in it."""
    program = shutil.which("prometheus")
    assert program is not None, "no prometheus here: apt-get install prometheus"
    retiring = Retiring()
    async with (
        GatewayProcess(json.dumps({"keys": [], "upstreams": []})) as demo,
        FakeUpstream(serve(build_answer(503, b"{}", JSON))) as broken,
        FakeUpstream(serve(retiring)) as old,
    ):
        config = configuration(tmp_path, demo=demo.base_url, broken=broken.base_url, retiring=old.base_url)
        async with (
            GatewayProcess(json.dumps(config)) as gateway,
            GatewayProcess(json.dumps({**config, "workers": 1})) as replica,
            scraping(program, gateway, replica) as prometheus,
        ):
            await all_workers(gateway)
            async with asking(gateway, replica):
                operator = Operator(prometheus)
                await operator.sees(4, 1, has("old-1"))
                retiring.is_retired = True
                async with aiohttp.ClientSession(gateway.base_url, headers={"X-Gateway-Key": "ci"}) as session:
                    await told(session, f'tool ledger {{"run": "q", "n": {ASKS}}}')
                gateway.folder.joinpath("gateway.yaml").write_text(json.dumps({**config, "workers": "many"}))
                gateway.signal(signal.SIGHUP)
                await see_the_night(operator)
                await see_the_store_once(operator)
                await see_every_panel(prometheus)


async def see_the_store_once(operator: Operator) -> None:
    """One approval waits in the store of two gateways: one, and not two."""
    for place, labels in ((1, {"state": "awaiting_approval"}), (2, {})):
        found = await operator.sees(8, place, lambda found: len(found) > 0)
        assert [value for own, value in found if labels.items() <= own.items()] == [1.0 if labels else 0.0]


async def see_every_panel(prometheus: Prometheus) -> None:
    """Prometheus can evaluate every alert and panel, and shows a panel empty only where it has no series to show."""
    for expression in alert_expressions().values():
        await prometheus.found(expression)
    for queries in dashboards().values():
        for query in queries:
            selectors = re.findall(r"\b(?:up|(?:gateway|process)_\w+)\{[^}]*\}", query)
            shown = await prometheus.found(query)
            assert shown or not all([await prometheus.found(selector) for selector in selectors]), query


async def see_the_night(operator: Operator) -> None:
    sees = operator.sees
    # 1: it is up, and not overloaded.
    await sees(1, 0, lambda found: [value for _, value in found] == [1.0, 1.0])
    await sees(1, 1, lambda found: found and found[0][1] < 1.0)
    await sees(1, 2, has("passthrough", above=-1))
    # 2 and 3: one upstream fails, at both of its endpoints.
    failing = await sees(2, 0, has("shaky"))
    assert not any(has("up", outcome)(failing) for outcome in ("error", "connect", "unavailable"))
    await sees(2, 1, has("up"))
    for endpoint in ("broken", "dead"):
        await sees(3, 0, has("shaky", endpoint, "failed"))
        await sees(3, 1, is_zero("shaky", endpoint))
    # 4: a model is retired, another one is not.
    fails = await sees(4, 0, has("old-1", "rejected"))
    assert not has("demo", "rejected")(fails)
    await sees(4, 1, has("demo"))
    # 5 and 6: a key makes more requests than it may, and its budget fills.
    await sees(5, 0, has("team", "ci"))
    await sees(5, 1, has("team", "ci"))
    await sees(5, 2, has("key", "requests_per_minute"))
    await sees(6, 0, has("key", "requests_per_minute", above=0.99))
    await sees(6, 0, has("key", "cost_per_day"))
    # 7: money.
    await sees(7, 0, has("EUR"))
    await sees(7, 1, has("EUR", "demo"))
    # 8: an approval waits, no run is stuck.
    await sees(8, 0, has())
    await sees(8, 1, has("awaiting_approval"))
    await sees(8, 2, lambda found: [value for _, value in found] == [0.0])
    # 9: a reload was refused, an MCP server is not there, no collector takes traces; the store is well.
    await sees(9, 0, has())
    await sees(9, 1, has())
    await sees(9, 2, lambda found: True)  # a notice has ten minutes until it has failed
    await sees(9, 3, is_zero("files"))
    await sees(9, 4, has("failed"))
    # 10: tokens flow, and the cache answers.
    await sees(10, 0, has("demo"))
    await sees(10, 1, has("demo", "output"))
    await sees(10, 2, has("hit"))
