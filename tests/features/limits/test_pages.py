"""The page of limits: a key sees its own and its tenant's, an operator all."""

from typing import Any

import aiohttp
from gateways import key

from gateway.testing.local_gateway import LocalGateway

KEYS = [
    {**key("ann", "context"), "name": "ann", "tenant": "team", "limits": {"requests_per_minute": 5, "concurrent": 2}},
    {**key("eve", "context"), "name": "eve", "limits": {"tokens_per_minute": 100, "soft": True}},
    {**key("root", "admin"), "name": "root"},
    {**key("metrics", "metrics"), "name": "metrics"},
]
CONFIG = {"upstreams": [], "keys": KEYS, "limits": {"tenants": {"team": {"requests_per_minute": 9}}}}
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Say hello"}]}


async def seen(gateway: LocalGateway, caller: str, *, status: int = 200) -> Any:
    headers = {"X-Gateway-Key": caller}
    async with (
        aiohttp.ClientSession(gateway.base_url, headers=headers) as session,
        session.get("/context/limits") as response,
    ):
        assert response.status == status
        return (await response.json()).get("data")


async def test_limits_page_shows_key_its_own_and_operator_all() -> None:
    async with LocalGateway(CONFIG) as gateway:
        async with (
            aiohttp.ClientSession(gateway.base_url, headers={"X-Gateway-Key": "ann"}) as session,
            session.post("/context/v1/chat/completions", json=CHAT) as response,
        ):
            assert response.status == 200
        own = await seen(gateway, "ann")
        assert [(one["scope"], one["limit"], one["used"], one["most"]) for one in own] == [
            ("key", "requests_per_minute", 1, 5),
            ("key", "concurrent", 0, 2),
            ("tenant", "requests_per_minute", 1, 9),
        ]
        assert 0 < own[0]["resets_in_s"] <= 60.25
        assert (own[1]["resets_in_s"], own[1]["over"]) == (None, 0)
        everything = await seen(gateway, "root")
        assert [(one["scope"], one["name"], one["tenant"], one["soft"]) for one in everything] == [
            ("key", "ann", "team", False),
            ("key", "ann", "team", False),
            ("key", "eve", "eve", True),
            ("tenant", "team", None, False),
        ]
        assert await seen(gateway, "metrics", status=403) is None
