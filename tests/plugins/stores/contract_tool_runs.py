"""The contract of every store for the runs of tool calls: imported by its test module like `contract`."""

from dataclasses import replace

import pytest

from gateway.contracts.storage.journal import AWAITED_S, AskedAlreadyError, Change, StoredRun
from gateway.contracts.storage.store import Store
from tests.plugins.stores.records import approval, new, run, step

CLIENT = '{"name":"probe","version":"1.2"}'


def called(run_id: str = "run_1", **facts: object) -> StoredRun:
    return run(run_id, **{"kind": "tool", "tool": "look", "client": CLIENT, "fingerprint": "same", **facts})


def asking(run_: StoredRun) -> Change:
    """A run that asks a person about its one call."""
    asked = approval(f"ap_{run_.id}", run_id=run_.id, tenant=run_.tenant, client=CLIENT)
    return new(run_, steps=(step(run_id=run_.id, tenant=run_.tenant),), approvals=(asked,))


async def test_stored_tool_call_is_returned_unchanged(store: Store) -> None:
    """With its client, and all of its result."""
    answered = step(state="finished", result="a chart", answer=b'{"parts":[],"structured":{"bars":3}}')
    await store.write(replace(asking(called()), steps=(answered,)))
    assert await store.run("run_1", tenant="acme") == called()
    assert await store.list_steps("run_1", tenant="acme") == [answered]
    asked = await store.get_approval("ap_run_1", tenant="acme")
    assert asked is not None and asked.client == CLIENT
    (listed,) = (await store.list_runs(tenant="acme", limit=1, kind="tool")).runs
    assert (listed.tool, listed.client) == ("look", CLIENT)


async def test_held_tool_call_stays_undelivered_until_marked_delivered(store: Store) -> None:
    """Of one tenant; and whatever becomes of its run."""
    await store.write(asking(called()))
    assert await store.find_undelivered_run("same", tenant="acme") == called()
    assert await store.find_undelivered_run("same", tenant="other") is None
    assert await store.find_undelivered_run("another", tenant="acme") is None
    await store.write(Change(run=called(state="completed")))
    found = await store.find_undelivered_run("same", tenant="acme")
    assert found is not None and found.state == "completed"
    await store.mark_delivered("same", tenant="other", run_id="run_1")
    await store.mark_delivered("same", tenant="acme", run_id="run_2")
    assert await store.find_undelivered_run("same", tenant="acme") is not None
    await store.mark_delivered("same", tenant="acme", run_id="run_1")
    assert await store.find_undelivered_run("same", tenant="acme") is None


async def test_waiting_workflow_of_an_mcp_client_counts_as_undelivered(store: Store) -> None:
    """Once it asks; one that was begun in another way, without a client, never is."""
    facts = {"kind": "workflow", "tool": None, "workflow": "tidy"}
    await store.write(asking(called("run_1", fingerprint="other", client=None, **facts)))
    assert await store.find_undelivered_run("other", tenant="acme") is None
    await store.write(asking(called("run_2", **facts)))
    found = await store.find_undelivered_run("same", tenant="acme")
    assert found is not None and (found.id, found.workflow, found.client) == ("run_2", "tidy", CLIENT)


async def test_second_run_of_an_undelivered_call_is_refused(store: Store) -> None:
    """The other one writes nothing, until the first one's result was delivered."""
    await store.write(asking(called()))
    with pytest.raises(AskedAlreadyError):
        await store.write(asking(called("run_2")))
    assert await store.run("run_2", tenant="acme") is None
    assert await store.get_approval("ap_run_2", tenant="acme") is None
    await store.write(asking(called("run_1", tenant="other")))
    await store.mark_delivered("same", tenant="acme", run_id="run_1")
    await store.write(asking(called("run_2")))
    found = await store.find_undelivered_run("same", tenant="acme")
    assert found is not None and found.id == "run_2"


async def test_call_with_unknown_outcome_counts_as_undelivered(store: Store) -> None:
    """Unless the same call waits already; a chat never is."""
    await store.write(new(called(state="unknown")))
    await store.write(new(called("run_2", state="unknown")))
    found = await store.find_undelivered_run("same", tenant="acme")
    assert found is not None and found.id == "run_1"
    await store.write(new(run("run_3", state="unknown", fingerprint="chat")))
    assert await store.find_undelivered_run("chat", tenant="acme") is None


async def test_running_call_does_not_count_as_undelivered(store: Store) -> None:
    await store.write(new(called(effects=True), steps=(step(state="started"),)))
    assert await store.find_undelivered_run("same", tenant="acme") is None


async def test_pruned_tool_run_does_not_block_an_equal_call(store: Store) -> None:
    ended = called(state="completed", created_s=100.0, updated_s=100.0)
    await store.write(asking(replace(ended, state="running")))
    await store.write(Change(run=ended))
    while await store.prune(before_s=200.0, limit=10):
        pass
    assert await store.find_undelivered_run("same", tenant="acme") is None
    await store.write(asking(called("run_2")))
    found = await store.find_undelivered_run("same", tenant="acme")
    assert found is not None and found.id == "run_2"


async def cancelled(store: Store, *, waiter: str | None, now_s: float = 10.0, tenant: str = "acme") -> bool:
    return await store.cancel("run_1", tenant=tenant, now_s=now_s, events=(), audit=(), waiter=waiter)


async def test_run_with_a_waiting_request_is_not_cancelled(store: Store) -> None:
    """The one that cancels does not count, nor does one that has not said so for too long."""
    await store.write(asking(called()))
    await store.note_waiting_request("run_1", tenant="acme", waiter="a", until_s=20.0)
    await store.note_waiting_request("run_1", tenant="acme", waiter="b", until_s=15.0)
    await store.note_waiting_request("run_1", tenant="acme", waiter="run_1", until_s=0.0)
    await store.note_waiting_request("run_2", tenant="acme", waiter="c", until_s=99.0)
    assert await cancelled(store, waiter="a") is False
    assert await cancelled(store, waiter="a", tenant="other") is False
    assert await cancelled(store, waiter="c", now_s=14.0) is False
    found = await store.run("run_1", tenant="acme")
    assert found is not None and found.state == called().state
    assert await cancelled(store, waiter="c", now_s=15.0) is True


async def test_run_without_a_waiting_request_is_cancelled(store: Store) -> None:
    """And a person who cancels the run asks for no leave."""
    for tenant in ("acme", "other"):
        await store.write(asking(called(tenant=tenant)))
        await store.note_waiting_request("run_1", tenant=tenant, waiter="a", until_s=20.0)
    await store.note_waiting_request("run_1", tenant="acme", waiter="a", until_s=0.0)
    assert await cancelled(store, waiter="run_1") is True
    assert await cancelled(store, waiter=None, tenant="other") is True


async def test_requesting_client_counts_as_waiting_from_the_start(store: Store) -> None:
    """Nobody can leave with its call before it has said so itself."""
    asked = called()
    await store.write(asking(asked))
    assert await cancelled(store, waiter="b", now_s=asked.updated_s + AWAITED_S - 1) is False
    assert await cancelled(store, waiter="b", now_s=asked.updated_s + AWAITED_S) is True
