"""Budgets hold from the first request on: after a start, a reload, and while they cannot be counted."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_cases import told
from functional.through import FINE, ask, client_of, get, post, through
from gateways import until_read

from gateway.cli.operator.remote import Remote
from gateway.contracts.storage.usage import StoredUsage
from gateway.features.limits.command import list_limits
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.messages import Request
from gateway.testing.scripts import build_answer, serve
from gateway.usage.ledger import MODELS_OF_TENANT, format_day
from tests.auth.keyring import ROOT, START_S, Ahead, Keyring, keyring

USAGE = {"usage": {"enabled": True}}
BY_MODEL = {"passthrough": {"by_model": True}}
#: So many rows take longer to read than a first request takes.
MANY = 20_000
SPENT = StoredUsage(
    format_day(START_S), "acme", "root", "m", "up", "passthrough", "USD", requests=1, input=500, cost=7 * 10**9
)


async def put(place: Path, *rows: StoredUsage) -> None:
    """Store usage, as a gateway that has ended."""
    store = SqliteStore(str(place))
    await store.open()
    await store.add_usage(rows, writer="ended", number=1, now_s=START_S)
    await store.end_usage("ended")
    await store.close()


def prices_in(folder: Path, currency: str) -> dict[str, object]:
    """Usage with prices in a currency."""
    file = folder / f"{currency}.yaml"
    file.write_text(f"currency: {currency}\nprices: [{{model: '*', input: 1, output: 1}}]")
    return {"usage": {"enabled": True, "prices": str(file)}}


async def chat(ring: Keyring, model: str = "m", *, by: str = ROOT) -> tuple[int, Any]:
    return await ring.ask("POST", "/v1/chat/completions", {"model": model, "messages": []}, by=by)


async def test_exhausted_budget_refuses_requests_after_a_restart(tmp_path: Path) -> None:
    """However much usage there is to read."""
    place = tmp_path / "gateway.db"
    await put(place, SPENT, *(replace(SPENT, tenant="other", key=f"k{number}") for number in range(MANY)))
    async with keyring(place, root={"limits": {"tokens_per_day": 500}}, **USAGE) as ring:
        status, refused = await chat(ring)
        assert (status, refused["error"]["code"]) == (429, "insufficient_quota")
        assert not ring.upstream.requests


async def test_budget_of_runtime_key_is_enforced_after_a_restart(tmp_path: Path) -> None:
    place = tmp_path / "gateway.db"
    async with keyring(place, **USAGE) as ring:
        made = await ring.made(limits={"tokens_per_day": 500})
    await put(place, *(replace(SPENT, key=name) for name in ("ci", *map(str, range(MANY)))))
    async with keyring(place, **USAGE) as ring:
        assert (await chat(ring, by=made["key"]))[0] == 429


async def test_unreadable_usage_at_start_refuses_budgeted_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests without one go on, and so do the others once the store can be read."""
    place = tmp_path / "gateway.db"
    await put(place, SPENT)
    with closing(sqlite3.connect(place)) as broken, broken:
        broken.execute("ALTER TABLE usage RENAME TO away")
    limits = {"models": {"m": {"tokens_per_day": 600}}}
    async with keyring(place, limits=limits, **USAGE, **BY_MODEL) as ring:
        sent = {"json": {"model": "m"}, "headers": {"X-Gateway-Key": ROOT}}
        async with ring.session.post("/v1/chat/completions", **sent) as response:  # type: ignore[arg-type]
            error = (await response.json())["error"]
            assert (response.status, error["code"], response.headers["Retry-After"]) == (503, "overloaded", "1")
        assert error["message"].startswith("The model 'm' has a budget, and what is used of it is not read from the ")
        assert (await chat(ring, "n"))[0] == 200
        assert "budgets cannot be read" in caplog.text
        with closing(sqlite3.connect(place)) as mended, mended:
            mended.execute("ALTER TABLE away RENAME TO usage")
        await until_read(lambda: chat(ring), lambda answer: answer[0] == 200)
        assert len(ring.upstream.requests) == 2


async def test_budget_added_by_a_reload_counts_earlier_usage(tmp_path: Path) -> None:
    """From the first request after it on."""
    place = tmp_path / "gateway.db"
    await put(place, SPENT)
    async with keyring(place, **USAGE, **BY_MODEL) as ring:
        assert (await chat(ring))[0] == 200
        await ring.gateway.reload({**ring.config, "limits": {"models": {"m": {"tokens_per_day": 500}}}})
        assert (await chat(ring))[0] == 429
        assert len(ring.upstream.requests) == 1


@pytest.mark.parametrize("prices", [{}, {"gpt-*": 1}, {"*": 1}])
async def test_model_budget_counts_every_matching_model(prices: dict[str, float], tmp_path: Path) -> None:
    """Models without a row of their own share one. Each budget that they count for finds it, and no other does."""
    globs = ("gpt-4.1*", "GPT-4.[12]*", "gpt-5*", "gpt-*", "llama*", "m[0-9]*")
    limits = {"models": {glob: {"tokens_per_day": 10_000} for glob in globs}}
    file = tmp_path / "prices.yaml"
    file.write_text(json.dumps({"currency": "USD", "prices": [{"model": one, "input": 1} for one in prices or ["x"]]}))
    usage = {"enabled": True, "prices": str(file)}

    def echo(request: Request) -> bytes:
        model = json.loads(request.payload)["model"]
        return build_answer(200, json.dumps({"model": model, "usage": {"prompt_tokens": 100}}).encode())

    async with through(serve(echo), usage=usage, limits=limits, **BY_MODEL) as (gateway, _):

        async def used() -> dict[str, float]:
            told = await ask(gateway, get(b"/context/limits"))
            return {row["name"]: row["used"] for row in json.loads(told.payload)["data"]}

        models = [f"x{number}" for number in range(MODELS_OF_TENANT)]
        async with client_of(gateway) as client:
            for model in (*models, *["gpt-4.1", "gpt-4.1-mini", "gpt-5", "m7", "llama"] * 2):
                await client.send(post(json.dumps({"model": model}).encode(), b"/v1/chat/completions"))
                assert (await client.read_response()).status == 200
        whole = {"gpt-4.1*": 400, "GPT-4.[12]*": 400, "gpt-5*": 200, "gpt-*": 600, "llama*": 200, "m[0-9]*": 200}
        assert await until_read(used, lambda found: found == whole)


async def test_cost_budget_counts_only_usage_in_the_price_currency(tmp_path: Path) -> None:
    """Usage in the currency before a reload is no part of the budget."""
    place = tmp_path / "gateway.db"
    await put(place, SPENT)
    async with keyring(place, root={"limits": {"cost_per_day": 7}}, **prices_in(tmp_path, "USD")) as ring:
        assert (await chat(ring))[0] == 429
        await ring.gateway.reload({**ring.config, **prices_in(tmp_path, "EUR")})
        assert (await chat(ring))[0] == 200
        await ring.gateway.reload(ring.config)
        assert (await chat(ring))[0] == 429


async def test_cost_budget_refuses_requests_once_prices_are_removed(tmp_path: Path) -> None:
    """A reload that takes them away does not see the keys of the store: these refuse, until there are prices again."""
    async with keyring(**prices_in(tmp_path, "USD")) as ring:
        made = await ring.made(limits={"cost_per_month": 5})
        other = await ring.made("second", limits={"tokens_per_day": 10_000})
        await until_read(lambda: chat(ring, by=made["key"]), lambda answer: answer[0] == 200)
        await ring.gateway.reload({**ring.config, **USAGE})
        status, refused = await chat(ring, by=made["key"])
        assert (status, refused["error"]["code"]) == (503, "overloaded")
        assert "The key 'ci' has a budget, and this gateway has no prices" in refused["error"]["message"]
        assert (await chat(ring, by=other["key"]))[0] == 200
        async with ring.session.get("/context/limits", headers={"X-Gateway-Key": ROOT}) as response:
            limits = {one["name"]: one["obstacle"] for one in (await response.json())["data"]}
        assert "set 'usage.prices', or take the budget away" in limits["ci"] and limits["second"] is None
        lines = await told(lambda: list_limits(Remote(ring.gateway.base_url, ROOT), as_json=False))
        assert [line.partition("; ")[2] for line in lines] == [f"it cannot be counted: {limits['ci']}", ""]
        await ring.gateway.reload(ring.config)
        assert (await chat(ring, by=made["key"]))[0] == 200


async def test_budget_of_new_key_counts_from_its_first_request(tmp_path: Path) -> None:
    """With what an earlier key of its name had used."""
    place = tmp_path / "gateway.db"
    await put(place, replace(SPENT, key="old"))
    async with keyring(place, **USAGE) as ring:
        made = {name: (await ring.made(name, limits={"tokens_per_day": 500}))["key"] for name in ("new", "old")}
        assert [(await chat(ring, by=one))[0] for one in made.values()] == [200, 429]


async def test_no_key_is_made_with_a_budget_that_cannot_be_counted(tmp_path: Path) -> None:
    async with keyring(**USAGE) as ring:
        body = {"name": "ci", "scopes": ["passthrough"], "limits": {"cost_per_day": 0.01}}
        assert await ring.refused("POST", "/context/keys", body) == (400, "invalid_field", "limits.cost_per_day")


async def test_usage_pruning_keeps_the_current_month_for_budgets(tmp_path: Path) -> None:
    """Of the month before, nothing is."""
    place, clock = tmp_path / "gateway.db", Ahead(START_S + 20 * 86400)
    today = date.fromisoformat(format_day(clock.time()))
    first, before = str(today.replace(day=1)), str(today.replace(day=1) - timedelta(1))
    await put(place, *(replace(SPENT, day=day) for day in (before, first, str(today))))
    usage = {"enabled": True, "keep_days": 1}
    async with through(FINE, store=f"sqlite:///{place}", usage=usage, clock=clock) as (gateway, _):

        async def found() -> set[str]:
            told = await ask(gateway, get(b"/context/usage?by=day&from=%b" % before.encode()))
            return {row["day"] for row in json.loads(told.payload)["data"]}

        assert await until_read(found, lambda found: before not in found) == {first, str(today)}
