"""The other workers of a worker: opened once, found, and given up at its end."""

import asyncio
from pathlib import Path

import pytest

from gateway.aio.clock import SystemClock
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.upstream.replicas import directory
from gateway.upstream.replicas.client import NotReachedError
from gateway.upstream.replicas.replicas import Replicas
from gateway.upstream.replicas.seals import SealedRequest, SealError


async def test_leases_are_renewed_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a task of its own: it listens once, however often it is opened."""
    monkeypatch.setattr(directory, "RENEW_S", 0.01)
    store, listened = SqliteStore(str(tmp_path / "gateway.db")), 0
    await store.open()

    async def listen() -> str:
        nonlocal listened
        listened += 1
        return "127.0.0.1:1"

    one, other = (Replicas(store, owner=name, clock=SystemClock(), listen=listen) for name in ("w1", "w2"))
    looks = asyncio.Semaphore(0)
    one.directory.watch(looks.release)
    await one.open()
    await one.open()
    for _ in range(5):
        await looks.acquire()
    assert listened == 1 and await other.directory.find_worker("w1") == "127.0.0.1:1"
    await one.close()
    await other.directory.refresh()
    assert other.directory.find_address("w1") is None
    await other.close()
    await store.close()


async def test_worker_without_others_is_not_found() -> None:
    """It sends nothing, accepts no seal, and listens nowhere."""
    store = SqliteStore(":memory:")
    await store.open()
    alone = Replicas(store, owner="w1", clock=SystemClock())
    await alone.open()
    assert not alone.is_possible
    with pytest.raises(NotReachedError):
        await alone.send("w2", b"GET", b"/")
    with pytest.raises(SealError):
        alone.read_seal(SealedRequest(method=b"GET", target=b"/", fields=()))
    await alone.close()
    await store.close()
