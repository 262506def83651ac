"""The URL of a PostgreSQL store."""

import importlib.util
from pathlib import Path

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql.store_url import MOST_POOL, POOL, PostgresqlAddress, redact_url, split_pool


@pytest.mark.parametrize(
    ("url", "rest", "size"),
    [
        ("postgresql://me@db/gateway", "postgresql://me@db/gateway", POOL),
        ("postgresql://me:s%40@db:5433/gateway?pool=9", "postgresql://me:s%40@db:5433/gateway", 9),
        ("postgresql://db/x?sslmode=verify-full&pool=1", "postgresql://db/x?sslmode=verify-full", 1),
        ("postgresql:///x?host=%2Frun%2Fpg", "postgresql:///x?host=%2Frun%2Fpg", POOL),
    ],
)
def test_pool_size_is_taken_out_of_the_url(url: str, rest: str, size: int) -> None:
    """Everything else is the client library's."""
    assert split_pool(url) == (rest, size)


@pytest.mark.parametrize("pool", ["0", "-1", "x", "", str(MOST_POOL + 1), "2&pool=3", "²"])
def test_wrong_pool_size_is_refused(pool: str) -> None:
    with pytest.raises(ValueError, match="`pool`"):
        split_pool(f"postgresql://db/x?pool={pool}")


@pytest.mark.parametrize(
    "url", ["postgresql://db", "postgresql://db/", "postgresql:x\0", "mysql://db/x", "postgresql://d/\0"]
)
def test_url_must_name_a_database(url: str) -> None:
    """The error shows an example, and nothing of the URL, which may hold a password."""
    with pytest.raises(ValueError, match=r"postgresql://USER@HOST/DATABASE"):
        split_pool(url)


def test_redacted_url_has_no_secrets() -> None:
    assert redact_url("postgresql://me:CANARY@db:5433/x?password=CANARY&pool=2") == "postgresql://me@db:5433/x"
    assert redact_url("postgresql://db/x") == "postgresql://db/x"
    assert redact_url("postgresql://me:CANARY@[db/x") == "postgresql://***"


def test_address_describes_the_database_without_connecting() -> None:
    """It has no file; what is wrong with the URL is a problem with its next step."""
    address = PostgresqlAddress("postgresql://me:CANARY@db/x", Path("/here"))
    assert (address.url, address.redacted_url, address.file) == (
        "postgresql://me:CANARY@db/x",
        "postgresql://me@db/x",
        None,
    )
    assert address.problem() is None
    assert "pool" in str(PostgresqlAddress("postgresql://db/x?pool=0", Path()).problem())


def test_missing_library_is_a_problem_with_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)
    address = PostgresqlAddress("postgresql://db/x", Path())
    assert address.problem() == "PostgreSQL needs asyncpg: pip install 'twolane[postgres]'"
    with pytest.raises(StoreError, match="asyncpg"):
        address.get_reader()


def test_address_names_the_connections_of_a_process(tmp_path: Path) -> None:
    """Of its URL, or the default."""
    for query, connections in (("", 4), ("?pool=9", 9), ("?sslmode=disable&pool=2", 2)):
        assert PostgresqlAddress(f"postgresql://owner@db/store{query}", tmp_path).connections == connections
