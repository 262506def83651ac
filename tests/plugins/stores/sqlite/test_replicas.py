"""The leases of workers in a file: two processes see each other's."""

from pathlib import Path

from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.contract_replicas import hold, lease


async def test_lease_is_seen_by_another_connection(tmp_path: Path) -> None:
    first, second = (SqliteStore(str(tmp_path / "gateway.db")) for _ in range(2))
    try:
        for store in (first, second):
            await store.open()
        assert await hold(first, "w1", "git", now_s=1000.0) == [lease("git", "w1")]
        assert await hold(second, "w2", "git", now_s=1001.0) == [lease("git", "w1")]
    finally:
        await first.close()
        await second.close()
