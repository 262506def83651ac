"""The questions that an operator has on call, as docs/operations.md answers them."""

import json
import re
from collections import Counter
from pathlib import Path

import aiohttp
from crash.effects import ASKS, settings
from crash.talk import CHAT, told
from gateways import all_workers, key, scrape, until_read

from tests.support.gateway_process import GatewayProcess

from .promql import OF_THE_STORE, OPERATIONS, alert_expressions, answers, counted_twice_in, dashboards, wrong_in

ASK = {"model": "demo", "messages": [{"role": "user", "content": "Hello?"}]}
TOKENS = 'gateway_tokens_total{key="ci",type="%s"}'


def test_operations_page_has_valid_queries_for_each_question() -> None:
    """Of metrics, labels and values that there are."""
    found = answers()
    assert found.keys() == {*range(1, 11)}
    for number, queries in found.items():
        assert queries, number
        for query in queries:
            assert [*wrong_in(query)] == [], query


def test_query_check_finds_unknown_metrics_labels_and_values() -> None:
    """A metric, a label, a value, a label to sum by."""
    for query, wrong in (
        ("rate(gateway_nothing_total[5m])", "gateway_nothing_total"),
        ('gateway_runs{color="red"}', "gateway_runs: color"),
        ('gateway_runs{state="asleep"}', "gateway_runs: asleep"),
        ("sum by (tool) (gateway_runs)", "tool"),
    ):
        assert [*wrong_in(query)] == [wrong]


def test_no_query_counts_the_store_once_for_each_gateway() -> None:
    """Of the table, the dashboards and the alerts."""
    shipped = [query for queries in (*answers().values(), *dashboards().values()) for query in queries]
    for query in (*shipped, *alert_expressions().values()):
        assert [*counted_twice_in(query)] == [], query
    assert {"gateway_approvals_pending", "gateway_runs", "gateway_runs_stuck", "gateway_store_bytes"} <= OF_THE_STORE


def test_check_of_double_counts_finds_sums_and_single_gateways() -> None:
    for query in ("sum(gateway_runs_stuck)", "gateway_runs_stuck > 0", "max by (instance) (gateway_runs_stuck)"):
        assert [*counted_twice_in(query)] == ["gateway_runs_stuck"]
    for query in ("max(gateway_runs_stuck)", "max by (state) (gateway_runs)", "min(gateway_store_bytes)"):
        assert [*counted_twice_in(query)] == []


def test_commands_named_in_operations_page_exist() -> None:
    """What a row names to go on with is in the table of commands."""
    page = OPERATIONS.read_text()
    commands = OPERATIONS.with_name("commands.md").read_text()
    night = page[page.index("## At night") : page.index("What happened to request X")]
    named = set(re.findall(r"`gateway ([a-z-]+)", night))
    assert {"approvals", "healthcheck", "limits", "mcp", "runs", "upstreams", "usage"} <= named
    for word in named:
        assert f"| `gateway {word}" in commands, word


async def test_metrics_page_matches_the_traffic_of_clients(tmp_path: Path) -> None:
    """Of a key's tokens, an approval and an upstream that ended, with two workers."""
    async with GatewayProcess(json.dumps({"keys": [], "upstreams": []})) as upstream:
        up = {"name": "up", "base_url": f"{upstream.base_url}/v1", "api_key": "none"}
        keys = [{**key("secret", "context"), "name": "ci"}]
        text = json.dumps(settings(tmp_path, workers=2, keys=keys, upstreams=[up], metrics={"public": True}))
        async with (
            GatewayProcess(text) as gateway,
            aiohttp.ClientSession(gateway.base_url, headers={"X-Gateway-Key": "secret"}) as session,
        ):
            await all_workers(gateway)
            spent = await used(session, 20)
            await until_read(lambda: by_type(gateway), lambda found: found == spent)
            await told(session, f'tool ledger {{"run": "q", "n": {ASKS}}}')
            await until_read(lambda: scrape(gateway), lambda found: found["gateway_approvals_oldest_seconds"])
            await upstream.stop()
            async with session.post(CHAT, json=ASK) as response:
                assert response.status == 502
            found = await scrape(gateway)
            assert found['gateway_upstream_requests_total{outcome="connect",upstream="up"}'] == 1


async def by_type(gateway: GatewayProcess) -> Counter[str]:
    """The tokens of the key `ci` that were counted."""
    found = await scrape(gateway)
    return Counter({kind: int(found.get(TOKENS % kind, 0)) for kind in ("prompt", "completion")})


async def used(session: aiohttp.ClientSession, requests: int) -> Counter[str]:
    """The tokens of so many requests, as their answers say, by type."""
    total = Counter[str]()
    for _ in range(requests):
        async with session.post(CHAT, json=ASK) as response:
            usage = (await response.json())["usage"]
        total.update(prompt=usage["prompt_tokens"], completion=usage["completion_tokens"])
    return total
