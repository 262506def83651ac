"""Responses in a file: what waits for the disk, and that long work lets others in between."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.transactions import Lasts
from tests.plugins.stores.contract_responses import converse, opened, response
from tests.plugins.stores.records import memory, new, run

T = TypeVar("T")


class Watched(SqliteStore):
    """Notes how long each write is to last."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.lasts: list[Lasts] = []

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, lasts: Lasts = Lasts.AS_LONG_AS_THE_SYSTEM) -> T:
        self.lasts.append(lasts)
        return await super()._write(work, lasts=lasts)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Watched]:
    store = Watched(str(tmp_path / "gateway.db"))
    await store.open()
    yield store
    await store.close()


async def test_only_deletions_of_responses_wait_for_fsync(store: Watched) -> None:
    """What is put outlives the process, and costs no fsync."""
    await store.write(new(run()))
    store.lasts.clear()
    await store.put_response(opened())
    await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"x"])
    await converse(store, "a")
    assert set(store.lasts) == {Lasts.AS_LONG_AS_THE_SYSTEM}
    store.lasts.clear()
    assert await store.delete_response("resp_1", tenant="acme")
    assert await store.delete_item("conv_1", "a", tenant="acme", now_s=1.0)
    assert await store.delete_conversation("conv_1", tenant="acme")
    assert store.lasts == [Lasts.FOR_SURE] * 3


async def test_deletions_of_prompts_and_memories_wait_for_fsync(store: Watched) -> None:
    """A power cut brings nothing back that was to be forgotten."""
    await store.put_prompt("p", "text", tenant="acme", now_s=1.0)
    for number in (1, 2):
        await store.remember(memory(number), limit=5)
    store.lasts.clear()
    assert await store.delete_prompt("p", tenant="acme")
    assert await store.forget(["m1"], tenant="acme", owner="user:ann") == 1
    assert await store.forget_all(tenant="acme", owner="user:ann", conversation=None, elsewhere=True) == 1
    assert set(store.lasts) == {Lasts.FOR_SURE}


async def test_long_reads_and_deletions_let_other_writes_pass(store: Watched) -> None:
    """While a long chain or conversation is read, or deleted: each step of it stands behind those who came before."""
    await store.write(new(run()))
    for number in range(1000):
        await store.put_response(opened(f"resp_{number}", previous_id=f"resp_{number - 1}"))
    await store.append_answer("resp_999", tenant="acme", fence=0, start=0, chunks=[b"x"] * 1000)
    await converse(store, *(f"i{number}" for number in range(1000)))
    for long in (
        store.list_response_chain("resp_999", tenant="acme", limit=9999),
        store.list_all_items("conv_1", tenant="acme"),
    ):
        task = asyncio.ensure_future(long)
        await asyncio.sleep(0)
        assert await store.get_response("resp_1", tenant="acme") is not None
        assert not task.done()
        assert len(await task) == 1000
    for deletion in (
        store.delete_response("resp_999", tenant="acme"),
        store.delete_conversation("conv_1", tenant="acme"),
    ):
        gone = asyncio.ensure_future(deletion)
        await asyncio.sleep(0)
        await store.put_response(response("other"))
        assert not gone.done()
        assert await gone
