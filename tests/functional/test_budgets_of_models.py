"""Budgets of models count every model that their globs fit, however many names clients and upstreams make up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from functional.through import through
from gateways import key, until_read

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.messages import Request
from gateway.testing.scripts import build_ok_answer, serve
from gateway.usage.ledger import MODELS, MODELS_OF_TENANT

ROOT = "gw-root-names"
LANES = ("/v1/chat/completions", "/context/v1/chat/completions")
TENANTS = MODELS // MODELS_OF_TENANT
#: One answer uses more.
BUDGET = {"tokens_per_day": 50}


def echo(request: Request) -> bytes:
    """Answer as whatever model is asked."""
    usage = {"prompt_tokens": 60, "completion_tokens": 40, "total_tokens": 100}
    message = {"role": "assistant", "content": "hi"}
    said: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 1, "usage": usage}
    said["model"] = json.loads(request.payload)["model"]
    said["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return build_ok_answer(json.dumps(said).encode())


class Named:
    """A gateway whose upstream has every model, with a key of each tenant."""

    def __init__(self, gateway: LocalGateway, session: aiohttp.ClientSession, config: dict[str, Any]) -> None:
        self.gateway, self.session, self.config = gateway, session, config

    async def chat(self, model: str, *, tenant: int = 0, path: str = LANES[0]) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        async with self.session.post(path, json=body, headers={"X-Gateway-Key": f"k{tenant}"}) as answer:
            await answer.read()
            return answer.status

    async def use_up_names(self, *, tenants: int, path: str = LANES[0]) -> None:
        for tenant in range(tenants):
            made_up = [f"made-up-{tenant}-{number}" for number in range(MODELS_OF_TENANT)]
            for first in range(0, len(made_up), 20):
                some = made_up[first : first + 20]
                assert {*await asyncio.gather(*(self.chat(one, tenant=tenant, path=path) for one in some))} == {200}

    async def used(self) -> dict[str, int]:
        """Return what is used of each budget."""
        async with self.session.get("/context/limits", headers={"X-Gateway-Key": ROOT}) as answer:
            return {one["name"]: int(one["used"]) for one in (await answer.json())["data"]}


@asynccontextmanager
async def named(place: Path, *globs: str) -> AsyncIterator[Named]:
    keys = [{**key(ROOT, "admin"), "name": "root"}]
    for tenant in range(TENANTS + 1):
        one = key(f"k{tenant}", "passthrough", "context")
        keys.append({**one, "name": f"k{tenant}", "tenant": f"t{tenant}"})
    sections: dict[str, Any] = {
        "keys": keys,
        "store": f"sqlite:///{place}",
        "passthrough": {"by_model": True},
        "usage": {"enabled": True},
        "limits": {"models": dict.fromkeys(globs, BUDGET)},
    }
    async with (
        through(serve(echo), upstream={"api_key": "k"}, **sections) as (gateway, fake),
        aiohttp.ClientSession(gateway.base_url) as session,
    ):
        config = {"upstreams": [{"name": "up", "base_url": fake.base_url, "api_key": "k"}], **sections}
        yield Named(gateway, session, config)


@pytest.mark.parametrize("path", LANES)
async def test_budget_counts_models_of_a_tenant_without_names_left(path: str, tmp_path: Path) -> None:
    """For each glob that fits, and for no other; also after a restart, and by what a reload brings."""
    place, globs = tmp_path / "gateway.db", ("gpt-4.1*", "*mini", "gpt-4.1-mini", "o*", "[g]pt-*", "*")
    async with named(place, *globs[:-1]) as made:
        await made.use_up_names(tenants=1, path=path)
        assert await made.chat("a-further-one", path=path) == 200
        assert await made.chat("GPT-4.1-Mini", path=path) == 200
        used = await until_read(made.used, lambda used: used["*mini"] > 0)
        assert used == {**dict.fromkeys(globs[:-1], 100), "o*": 0}
        assert await made.chat("gpt-4.1-mini", path=path) == 429
    async with named(place, *globs) as made:
        assert await made.chat("gpt-4.1-mini", path=path) == 429
        assert await made.used() == {**used, "*": 100 * (MODELS_OF_TENANT + 2)}
        await made.gateway.reload({**made.config, "limits": {"models": {"gpt*": BUDGET}}})
        assert await made.chat("gpt-4.1-mini", path=path) == 429
        assert await made.chat("made-up", path=path) == 200


async def test_tenants_that_exhaust_names_do_not_affect_budgets_of_others(tmp_path: Path) -> None:
    async with named(tmp_path / "gateway.db", "gpt-4.1*") as made:
        await made.use_up_names(tenants=TENANTS)
        for tenant in (TENANTS, 0):
            assert await made.chat("gpt-4.1", tenant=tenant) == (200 if tenant else 429)
            await until_read(made.used, lambda used: used["gpt-4.1*"] == 100)
        assert await made.chat("gpt-4.1", tenant=TENANTS) == 429
