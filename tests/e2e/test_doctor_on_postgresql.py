"""`gateway doctor` on a PostgreSQL server: it reads the store there, and leaves it as it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.plugins.stores.postgresql.migrations import migrate
from tests.cli.doctor.test_store import examined
from tests.plugins.stores.postgresql.next_schema import NEXT_SCHEMA
from tests.postgres import postgres_server

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server("CREATE DATABASE upgraded") as place:
        yield f"postgresql://owner@{place.partition('/')[0]}"


async def test_doctor_reads_a_database_without_a_store(server: str, tmp_path: Path) -> None:
    """And makes none."""
    for _ in range(2):
        found = await examined(f"{server}/postgres?pool=3", tmp_path, more="workers: 2")
        assert [finding.level for finding in found.values()] == ["ok"] * 4
        assert found["store"].text.endswith("/postgres: not made yet, the first start makes it")
        assert found["store connections"].text == "a gateway takes 6, of 97 that the server has: up to 16 gateways"
        assert found["shared limits"].text.endswith("on this store; 0 do now")


async def test_doctor_names_a_schema_that_a_newer_gateway_made(server: str, tmp_path: Path) -> None:
    await migrate(f"{server}/upgraded", schema=NEXT_SCHEMA)
    finding = (await examined(f"{server}/upgraded", tmp_path))["store"]
    assert finding.level == "warn" and "which a newer gateway made" in finding.text
