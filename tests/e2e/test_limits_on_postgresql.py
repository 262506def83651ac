"""Three gateways on one PostgreSQL database share their limits by themselves, also behind PgBouncer."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.postgres import pooler, postgres_server
from tests.support.fleet import GATEWAYS, TOKENS, fleet

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server("SELECT 1") as place:
        yield place.partition("/")[0]


@pytest.fixture
async def database(server: str) -> str:
    """The name of an empty one: what was used of a limit stays used for a minute."""
    name = f"limits_{next(_numbers)}"
    connection = await asyncpg.connect(f"postgresql://owner@{server}/postgres")
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return name


_numbers = itertools.count(1)


@pytest.mark.parametrize("pooled", [False, True])
async def test_limits_are_shared(server: str, database: str, pooled: bool, tmp_path: Path) -> None:
    """Ten times the load, most of it at one gateway: no more than the limit is sent, and nearly all of it."""
    with pooler(f"{server}/{database}") as place:
        store = f"postgresql://owner@{place.partition('/')[0] if pooled else server}/{database}"
        async with fleet(tmp_path, store=store, requests_per_minute=60) as made:
            statuses = await made.overload("passthrough", 600, shares=(8, 1, 1))
            assert 59 <= made.upstream.count <= 60 and statuses.keys() == {200, 429}, statuses


async def test_budget_is_shared(server: str, database: str, tmp_path: Path) -> None:
    """Each gateway may let in one more request than fits."""
    store = f"postgresql://owner@{server}/{database}"
    async with fleet(tmp_path, store=store, tokens_per_day=60 * TOKENS) as made:
        statuses = await made.overload("context", 600)
        assert 59 <= made.upstream.count <= 60 + GATEWAYS and statuses.keys() == {200, 429}, statuses
