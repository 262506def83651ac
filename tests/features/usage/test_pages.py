"""The page of usage: what is summed, for whom, and in which form."""

import csv
from typing import Any

import aiohttp
import pytest
from gateways import key

from gateway.contracts.storage.usage import StoredUsage
from gateway.features.usage.pages import USAGE
from gateway.testing.clock import ManualClock
from gateway.testing.local_gateway import LocalGateway

#: 2026-11-26 12:00 UTC.
NOW_S = 1795694400.0
KEYS = [
    {**key(name, scope), "name": name}
    for name, scope in (("root", "admin"), ("ann", "approve"), ("eve", "context"), ("pat", "passthrough"))
]
FIRST = StoredUsage(
    "2026-11-26", "ann", "ann", "gpt-4.1", "openai", "passthrough", "USD", 3, 1, 1, 1, 30, 4, 9, 2, 1_234_500_000
)
OLD = StoredUsage("2026-10-27", "ann", "ann", "gpt-4.1", "openai", "context", "", 1, input=7)
WIDE = StoredUsage("2026-09-01", "eve", "eve", " \uff1dcmd()", "local", "passthrough", "", 2, input=5)
THEIRS = StoredUsage("2026-11-25", "eve", "eve", "=cmd()", "local", "passthrough", "", 2, input=5)


async def asked(query: str, *, caller: str = "root", status: int = 200) -> Any:
    """The answer to a query, of a gateway with the usage above."""
    clock = ManualClock(NOW_S)
    async with LocalGateway({"upstreams": [], "keys": KEYS, "usage": {"enabled": True}}, clock=clock) as made:  # type: ignore[arg-type]
        await made.gateway._shared.store.add_usage([FIRST, OLD, THEIRS, WIDE], writer="w", number=1, now_s=NOW_S)
        async with (
            aiohttp.ClientSession(made.base_url) as session,
            session.get(USAGE + query, headers={"X-Gateway-Key": caller}) as response,
        ):
            assert response.status == status, await response.text()
            return await (response.json() if response.content_type == "application/json" else response.text())


async def test_usage_defaults_to_the_last_30_days_by_day() -> None:
    """Thirty days, today included."""
    answer = await asked("")
    sums = {"rejected": 0, "cut": 0, "estimated": 0, "cached": 0, "output": 0, "reasoning": 0}
    theirs = {**sums, "day": "2026-11-25", "requests": 2, "input": 5, "cost": None, "currency": None}
    assert answer["data"][0] == theirs
    assert answer["data"][1]["cost"] == 1.2345 and answer["data"][1]["currency"] == "USD"
    del answer["data"]
    told = {"object": "usage", "enabled": True, "from": "2026-10-28", "to": "2026-11-26", "by": ["day"]}
    assert answer == told


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("?by=key", [("ann", 3), ("eve", 2)]),
        ("?by=model&from=2026-10-01", [("=cmd()", 2), ("gpt-4.1", 1), ("gpt-4.1", 3)]),
        ("?by=lane&to=2026-11-25&from=2026-10-27", [("context", 1), ("passthrough", 2)]),
        ("?by=upstream&from=2026-11-26", [("openai", 3)]),
        ("?by=tenant&to=2026-10-27", [("ann", 1)]),
    ],
)
async def test_usage_sums_requests_by_one_dimension(query: str, rows: list[tuple[str, int]]) -> None:
    """By one dimension, over days that are both included; what has a price and what has none stay apart."""
    answer = await asked(query)
    (name,) = answer["by"]
    assert [(row[name], row["requests"]) for row in answer["data"]] == rows


async def test_usage_groups_by_dimensions_in_fixed_order() -> None:
    """However they are asked for."""
    answer = await asked("?by=model,day,key")
    assert answer["by"] == ["day", "key", "model"]
    assert [(row["day"], row["key"], row["model"]) for row in answer["data"]] == [
        ("2026-11-25", "eve", "=cmd()"),
        ("2026-11-26", "ann", "gpt-4.1"),
    ]


@pytest.mark.parametrize("caller", ["ann", "eve"])
async def test_usage_shows_only_the_tenant_of_the_key(caller: str) -> None:
    """Whatever it asks for."""
    answer = await asked("?by=tenant,key&from=2026-01-01", caller=caller)
    assert {row["tenant"] for row in answer["data"]} == {caller}


async def test_usage_csv_escapes_formula_cells() -> None:
    """With a line of names; no cell of it is a formula, whatever width its characters have."""
    found = list(csv.reader((await asked("?format=csv&by=model")).splitlines()))
    assert found[0][:3] == ["model", "requests", "rejected"] and found[0][-2:] == ["cost", "currency"]
    assert found[1] == ["'=cmd()", "2", "0", "0", "0", "5", "0", "0", "0", "", ""]
    assert found[2][-2:] == ["1.234500000", "USD"]
    assert "\n' \uff1dcmd()," in await asked("?format=csv&by=model&from=2026-09-01&to=2026-09-02")


@pytest.mark.parametrize(
    "query",
    [
        "?by=caller",
        "?by=day,day",
        "?by=",
        "?from=yesterday",
        "?to=2026-02-30",
        "?from=2026-11-02&to=2026-11-01",
        "?format=xml",
        "?limit=3",
    ],
)
async def test_invalid_usage_query_is_refused_naming_the_parameter(query: str) -> None:
    """With the name of the parameter."""
    answer = await asked(query, status=400)
    assert answer["error"]["param"] in ("by", "from", "to", "format", "limit")


async def test_usage_page_requires_a_key() -> None:
    """It names keys and models."""
    await asked("", caller="nobody", status=401)


async def test_usage_refuses_a_passthrough_only_key() -> None:
    """Here as everywhere."""
    await asked("", caller="pat", status=403)
