"""The page of upstreams over the wire: endpoints that fail, and one that takes their requests."""

from typing import Any

import aiohttp
from functional.several import chat, several
from functional.through import HOSTS, ask
from gateways import key

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.scripts import build_answer, build_ok_answer, serve

PATH = "/context/upstreams"


async def seen(gateway: LocalGateway) -> Any:
    async with aiohttp.ClientSession(gateway.base_url) as session, session.get(PATH) as response:
        assert response.status == 200
        return (await response.json())["data"]


async def test_upstream_page_shows_endpoint_breaker_state_failures_and_retries() -> None:
    """An open breaker with its time, failures beside requests, and those that were sent again."""
    async with several(
        serve(build_answer(502)), serve(build_ok_answer()), breaker={"failures": 2, "open": "1h", "longest": "1h"}
    ) as up:
        for _ in range(8):
            assert (await ask(up.gateway, chat())).status == 200
        (found,) = await seen(up.gateway)
        assert (found["name"], found["balance"], found["fallback"], found["queued"]) == ("up", "weighted", [], 0)
        failing, well = found["endpoints"]
        assert (failing["name"], failing["url"], failing["state"]) == ("a", up.endpoints[0].base_url, "open")
        assert 3590 < failing["retry_in_s"] <= 3600
        assert (failing["tries"], failing["ejections"]) == ({"failed": 2}, {"breaker": 1})
        assert (well["state"], well["retry_in_s"], well["under_way"]) == ("up", None, 0)
        assert (well["tries"], well["ejections"]) == ({"ok": 8}, {})
        assert found["retries"] == {"502": 2}
        assert (found["requests"]["ok"], found["sent"], found["failed"], found["not_sent"]) == (8, 10, 2, 0)


async def test_an_upstream_without_rules_has_one_endpoint_and_its_own_counts() -> None:
    upstream = {"name": "up", "base_url": "http://127.0.0.1:9/v1"}
    async with LocalGateway({"upstreams": [upstream], "allowed_hosts": HOSTS}) as made:
        (before,) = await seen(made)
        assert (await ask(made, chat())).status == 502
        (after,) = await seen(made)
    (endpoint,) = before["endpoints"]
    assert (endpoint["name"], endpoint["state"], endpoint["tries"]) == ("127.0.0.1:9", "up", None)
    assert (after["endpoints"][0]["state"], after["requests"]) == ("unreachable", {"connect": 1})


async def test_requests_refused_by_a_limit_count_as_not_sent() -> None:
    """It is no failure of the upstream."""
    async with several(serve(build_ok_answer()), limits={"requests_per_minute": 2}) as up:
        assert [(await ask(up.gateway, chat())).status for _ in range(3)] == [200, 200, 429]
        (found,) = await seen(up.gateway)
    assert (found["sent"], found["failed"], found["not_sent"]) == (2, 0, 1)


async def test_the_demo_model_is_an_upstream() -> None:
    async with LocalGateway({"upstreams": []}) as made:
        (found,) = await seen(made)
    assert found["name"] == "demo"
    assert [one["state"] for one in found["endpoints"]] == ["up"]


async def test_upstream_list_requires_admin_scope() -> None:
    """Addresses of servers are no business of those who chat."""
    keys = [key("user", "context", "approve", "passthrough"), key("root", "admin")]
    async with LocalGateway({"upstreams": [], "keys": keys}) as made, aiohttp.ClientSession(made.base_url) as session:
        for caller, status in (("user", 403), ("root", 200)):
            async with session.get(PATH, headers={"X-Gateway-Key": caller}) as response:
                assert response.status == status
