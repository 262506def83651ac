"""Three gateways on one store, with ten times the load that a limit allows: it is kept, and nearly all is given."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from gateways import until, until_read

from tests.support.fleet import GATEWAYS, TOKENS, fleet
from tests.valkey_servers import valkey_server


@pytest.mark.parametrize(
    ("lane", "workers", "shares"),
    [("passthrough", 1, (1, 1, 1)), ("passthrough", 2, (8, 1, 1)), ("context", 1, (1, 1, 1))],
)
async def test_requests_of_a_minute_are_shared(lane: str, workers: int, shares: Sequence[int], tmp_path: Path) -> None:
    """However the load is spread."""
    async with fleet(tmp_path, workers=workers, requests_per_minute=60) as made:
        statuses = await made.exhaust(lane, 60, shares=shares)
        assert made.upstream.count <= 60 and statuses.keys() == {200, 429}, statuses


async def test_tokens_of_a_minute_are_shared(tmp_path: Path) -> None:
    """They are reserved by what requests before used, which all of them do here."""
    async with fleet(tmp_path, tokens_per_minute=60 * TOKENS) as made:
        statuses = await made.exhaust("passthrough", 60)
        assert made.upstream.count <= 60 and statuses.keys() == {200, 429}, statuses


async def test_requests_under_way_are_shared(tmp_path: Path) -> None:
    """Never more at the upstream at once, and as many while there are enough. Others wait a moment, or are refused."""
    async with fleet(tmp_path, concurrent=9) as made:
        made.upstream.may_answer.clear()
        overload = asyncio.create_task(made.overload("passthrough", 600))
        await until(lambda: made.upstream.now >= 9)
        made.upstream.may_answer.set()
        statuses = await overload
        assert made.upstream.most == 9 and statuses.keys() <= {200, 429} and statuses[200] >= 9, statuses


@pytest.mark.parametrize(("budget", "lane"), [("tokens_per_day", "passthrough"), ("cost_per_month", "context")])
async def test_budget_is_shared(budget: str, lane: str, tmp_path: Path) -> None:
    """Each gateway may let in one more request than fits. What is stored counts twice until all have read it."""
    figure = 60 * TOKENS
    async with fleet(tmp_path, **{budget: figure if budget.startswith("tokens") else figure / 1e6}) as made:
        statuses = await made.exhaust(lane, 60)
        assert made.upstream.count <= 60 + GATEWAYS and statuses.keys() == {200, 429}, statuses


async def test_limit_is_kept_while_a_gateway_is_killed(tmp_path: Path) -> None:
    """Its share is free only after a while. The other gateways go on with the rest."""
    async with fleet(tmp_path, requests_per_minute=60) as made:
        killed, *_ = made.gateways
        overload = asyncio.create_task(made.overload("passthrough", 600))
        await until(lambda: made.upstream.count >= 20)
        await killed.kill()
        statuses = await overload
        assert 20 <= made.upstream.count <= 60 and statuses.keys() == {0, 200, 429}, statuses


@pytest.mark.valkey
@pytest.mark.parametrize(("lane", "shares"), [("passthrough", (8, 1, 1)), ("context", (1, 1, 1))])
async def test_limits_are_shared_in_valkey(lane: str, shares: Sequence[int], tmp_path: Path) -> None:
    """As in a store, of which each gateway has its own here."""
    with valkey_server() as server:
        server.empty()
        async with fleet(tmp_path, valkey=server.url, requests_per_minute=60) as made:
            statuses = await made.exhaust(lane, 60, shares=shares)
            assert made.upstream.count <= 60 and statuses.keys() == {200, 429}, statuses


@pytest.mark.valkey
async def test_limits_are_kept_while_valkey_is_away(tmp_path: Path) -> None:
    """Gateways use their shares, then refuse. A server that comes back empty gives none of the rest at once."""
    with valkey_server() as server:
        server.empty()
        async with fleet(tmp_path, valkey=server.url, requests_per_minute=60) as made:
            await made.overload("passthrough", 15)
            server.kill()
            await until_read(lambda: made.overload("passthrough", 30), lambda statuses: statuses[503] > 0)
            counted = made.upstream.count
            assert counted <= 60
            server.start()
            statuses = await until_read(lambda: made.overload("passthrough", 30), lambda statuses: not statuses[503])
            assert made.upstream.count <= 60 and statuses.keys() <= {200, 429}, statuses
