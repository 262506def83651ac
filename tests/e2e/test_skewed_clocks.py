"""Gateways on one PostgreSQL whose machines disagree about the time by five minutes."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from crash.effects import ASKS, effects, settings
from crash.talk import APPROVAL, CHAT, asking, post
from gateways import until

from gateway.server.store_gauges import STUCK_S
from gateway.testing.local_gateway import LocalGateway
from tests.postgres import postgres_server

pytestmark = pytest.mark.postgres

SKEW_S, EXPIRES_S = 300.0, 60.0


class SkewedClock:
    """The system's clock, with a Unix time that is off."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, skew_s: float) -> None:
        self._skew_s = skew_s

    def time(self) -> float:
        return time.time() + self._skew_s


@pytest.fixture
async def gateways(tmp_path: Path) -> AsyncIterator[list[LocalGateway]]:
    """Gateways that are right, ahead and behind."""
    own = {**settings(tmp_path), "upstreams": [], "approvals": {"expires": EXPIRES_S}}
    with postgres_server("SELECT 1") as place:
        async with AsyncExitStack() as stack:
            config = {**own, "store": f"postgresql://owner@{place}?pool=2"}
            skews = (0.0, SKEW_S, -SKEW_S)
            yield [await stack.enter_async_context(LocalGateway(config, clock=SkewedClock(s))) for s in skews]


async def test_gateway_with_a_wrong_clock_ends_nothing_of_the_others(
    gateways: list[LocalGateway], tmp_path: Path
) -> None:
    """No question expires early or late, none is decided by a wrong time, and no run counts as stuck."""
    for asker in gateways:
        async with aiohttp.ClientSession(asker.base_url) as person:
            _, answer = await post(person, CHAT, asking(f'tool ledger {{"run": "{asker.port}", "n": {ASKS}}}'))
        found = APPROVAL.search(answer["choices"][0]["message"]["content"])
        assert found is not None, answer
        for other in gateways:
            await other.gateway._get_current().lane.approvals.expire()
            async with (
                aiohttp.ClientSession(other.base_url) as session,
                session.get(f"/context/approvals/{found[0]}") as response,
            ):
                shown = await response.json()
            assert shown["state"] == "pending"
            assert EXPIRES_S - 30 < shown["expires_at"] - time.time() < EXPIRES_S + 1
            shared = other.gateway._shared
            backlog = await shared.store.count_backlog(stuck_before_s=shared.clock.time() - STUCK_S)
            assert (backlog.pending, backlog.stuck) == (1, 0)
        decider = gateways[gateways.index(asker) - 1]
        async with aiohttp.ClientSession(decider.base_url) as person:
            status, decided = await post(person, f"/context/approvals/{found[0]}", {"decision": "approve"})
        assert status == 200, decided
        await until(lambda: len(effects(tmp_path, str(asker.port))) == 1)  # noqa: B023 - it is awaited here
