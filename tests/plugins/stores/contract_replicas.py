"""What every store promises of the leases of workers."""

from collections.abc import Sequence

from gateway.contracts.storage.replicas import ReplicaLease
from gateway.contracts.storage.store import Store

FOR_S = 5.0


async def hold(store: Store, owner: str, *names: str, now_s: float) -> Sequence[ReplicaLease]:
    address = f"10.0.0.1:{owner[-1]}"
    return await store.hold_leases(names, owner=owner, address=address, now_s=now_s, until_s=now_s + FOR_S)


def lease(name: str, owner: str) -> ReplicaLease:
    return ReplicaLease(name=name, owner=owner, address=f"10.0.0.1:{owner[-1]}")


async def test_lease_has_one_owner(store: Store) -> None:
    """Who comes second sees who holds it, and where; both see all leases."""
    assert await hold(store, "w1", "git", "replica w1", now_s=1000.0) == [lease("git", "w1"), lease("replica w1", "w1")]
    everything = [lease("git", "w1"), lease("replica w1", "w1"), lease("replica w2", "w2")]
    assert await hold(store, "w2", "git", "replica w2", now_s=1001.0) == everything
    assert await hold(store, "w3", now_s=1001.0) == everything


async def test_lease_that_is_renewed_does_not_end(store: Store) -> None:
    for now_s in (1000.0, 1004.0, 1008.0):
        assert await hold(store, "w1", "git", now_s=now_s) == [lease("git", "w1")]
    assert await hold(store, "w2", "git", now_s=1012.5) == [lease("git", "w1")]
    assert await hold(store, "w2", "git", now_s=1013.5) == [lease("git", "w2")]
    assert await hold(store, "w1", "git", now_s=1014.0) == [lease("git", "w2")]


async def test_lease_from_a_wrong_clock_is_taken(store: Store) -> None:
    """One that lasts longer than any lease does was written by a clock that was ahead."""
    await hold(store, "w1", "git", now_s=5000.0)
    assert await hold(store, "w2", "git", now_s=1000.0) == [lease("git", "w2")]


async def test_released_lease_is_free(store: Store) -> None:
    """Only its owner releases it."""
    await hold(store, "w1", "git", "sql", now_s=1000.0)
    await store.release_leases(["git", "sql"], owner="w2")
    await store.release_leases(["git"], owner="w1")
    assert await hold(store, "w2", "git", "sql", now_s=1001.0) == [lease("git", "w2"), lease("sql", "w1")]


async def test_leases_that_ended_long_ago_are_deleted(store: Store) -> None:
    await hold(store, "w1", "replica w1", now_s=1000.0)
    assert await hold(store, "w2", now_s=1100.0) == []
    assert await hold(store, "w1", "replica w1", now_s=1101.0) == [lease("replica w1", "w1")]
