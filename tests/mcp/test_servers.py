"""The services of workers: what the store and the configuration want is so, in each of them, and stays so."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import replace

import pytest
from gateways import until_read

from gateway.contracts.storage.store import StoredService, StoreError
from gateway.mcp import servers as servers_module
from gateway.mcp.server import MOST_PINS
from gateway.mcp.servers import McpServers
from tests.mcp.workers import SECRET, Workers, X, Y, configured


def names(mcp_servers: McpServers) -> list[str]:
    return [configured.source.get_service().name for configured in mcp_servers.get_services()]


# Those of the configuration, and those that were registered.


async def test_gateway_without_services_starts_no_tasks(workers: Workers) -> None:
    """No task, no service, nothing to tell."""
    before = asyncio.all_tasks()
    mcp_servers = await workers.start()
    assert (
        not mcp_servers.get_services()
        and list(mcp_servers.collect_families()) == []
        and not await mcp_servers.list_services()
    )
    assert asyncio.all_tasks() <= before
    assert not await workers.store.list_services() and not await workers.store.list_reported_services(since_s=0.0)


async def test_configured_services_are_started(workers: Workers) -> None:
    """In its order, with its settings, and trusted by nobody."""
    mcp_servers = await workers.start(time={**X, "trigger_keywords": ["几点"], "description": "Clocks."}, git=Y)
    assert names(mcp_servers) == ["time", "git"] and all(one.untrusted for one in mcp_servers.get_services())
    facts = mcp_servers.get_services()[0].source.get_service()
    assert (facts.running, facts.description, facts.trigger_keywords) == (True, "Clocks.", ("几点",))


async def test_configure_tolerates_a_failing_store(workers: Workers) -> None:
    """A store that fails keeps what runs running, and the next look makes up for it."""
    mcp_servers = await workers.start(time=X)
    workers.store.broken = True
    mcp_servers.configure(configured(git=Y))
    with pytest.raises(StoreError):
        await mcp_servers.refresh()
    assert names(mcp_servers) == ["time"] and workers.service().did == ["start"]
    workers.store.broken = False
    await mcp_servers.refresh()
    assert names(mcp_servers) == ["git"]


async def test_find_url_returns_the_configured_address(workers: Workers) -> None:
    """Whole, to compare it with another; a program has none."""
    url = "https://mcp.example/x?token=1"
    mcp_servers = await workers.start(web={"url": url}, time=X)
    assert [mcp_servers.find_url(name) for name in ("web", "time", "gone")] == [url, None, None]


async def test_reload_restarts_only_changed_services(workers: Workers) -> None:
    """Other settings are another service; what is gone is stopped."""
    mcp_servers = await workers.start(same=X, other=X, gone=X)
    mcp_servers.configure(configured(same=X, other=Y, new=X))
    await mcp_servers.refresh()
    for name in ("other", "new"):
        await mcp_servers.wait_until_applied(name)
    assert names(mcp_servers) == ["same", "other", "new"]
    did = [(one.name, one.did[0], one.did[-1]) for one in workers.factories["w1"].built]
    assert did[:2] == [("same", "start", "start"), ("other", "start", "close")]
    assert did[3:] == [("other", "start", "start"), ("new", "start", "start")]
    await mcp_servers.close()
    assert all(one.did[-1] == "close" for one in workers.factories["w1"].built)


async def test_registered_service_runs_on_every_worker(workers: Workers) -> None:
    """At the next look of each worker; and is gone as soon as it was deleted."""
    one, other = await workers.start("w1", git=X), await workers.start("w2", git=X)
    await workers.register("b", command="y", env={"K": SECRET})
    await workers.register("a")
    await asyncio.gather(one.refresh(), other.refresh())
    assert names(one) == names(other) == ["git", "a", "b"]
    assert workers.service("b", worker="w2").options["env"] == {"K": SECRET}
    assert await one.delete("b") is True and await one.delete("b") is False
    await other.refresh()
    assert names(one) == names(other) == ["git", "a"]
    await one.close()
    await other.close()
    assert workers.service("b", worker="w2").did[-1] == "close"


async def test_configured_service_overrides_a_registered_one(workers: Workers) -> None:
    """The file wins, also if it comes later; without it the registered one is back."""
    await workers.register(command="registered")
    mcp_servers = await workers.start(time={"command": "configured"})
    assert workers.service().options["command"] == "configured"
    mcp_servers.configure({})
    await mcp_servers.refresh()
    assert workers.service().options["command"] == "registered"


@pytest.mark.parametrize("config", [b'{"command": "x", "newer": 1}', b"{", b"[]", b"\xff"])
async def test_unreadable_service_settings_are_reported_as_error(workers: Workers, config: bytes) -> None:
    """The service stands in the list and says so; no other one suffers."""
    await workers.store.put_service(StoredService(name="odd", config=config), expected=0)
    mcp_servers = await workers.start(time=X)
    await mcp_servers.refresh()
    odd = (await mcp_servers.list_services())[1]
    assert (odd.name, odd.state) == ("odd", "error") and "do not fit this version" in (odd.error or "")
    assert workers.service().did == ["start"]


async def test_registered_service_with_a_colliding_name_is_refused(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """One of before does not start: the log and the page say so. Those of the configuration come first."""
    for name in ("call_tool", "GIT", "git.hub", "hub"):
        await workers.register(name)
    mcp_servers = await workers.start(git=X)
    states = {one.name: one.state for one in await mcp_servers.list_services()}
    assert states == {"git": "running", "GIT": "error", "call_tool": "error", "git.hub": "error", "hub": "running"}
    for name in ("call_tool", "GIT", "git.hub"):
        assert f"the service {name!r} cannot be built: " in caplog.text
    assert caplog.text.count(": remove the service, and register it under another name") == 3
    mcp_servers.configure({})
    await mcp_servers.refresh()
    states = {one.name: one.state for one in await mcp_servers.list_services()}
    assert states == {"GIT": "running", "call_tool": "error", "git.hub": "error", "hub": "running"}


async def test_service_snapshot_changes_with_each_change(workers: Workers) -> None:
    """Of their state, of what was accepted of them, and of which there are; else it is the same."""
    mcp_servers = await workers.start(time=X)
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins))

    async def is_another(change: Awaitable[None]) -> bool:
        before = mcp_servers.get_services()
        await change
        return mcp_servers.get_services() is not before

    async def fails() -> None:
        workers.service().becomes("error", error="exit code 1")

    assert await is_another(fails())
    assert await is_another(mcp_servers.change("time", lambda kept: replace(kept, pins={"look": "2" * 64})))
    mcp_servers.configure(configured(time=X, git=Y))
    assert await is_another(mcp_servers.refresh())
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins), "git")
    await mcp_servers.refresh()
    assert not await is_another(mcp_servers.refresh())


# What operators want.


async def test_stop_start_and_restart_hold_for_all_workers(workers: Workers) -> None:
    """Also for one that starts later."""
    one, other = await workers.start("w1", time=X), await workers.start("w2", time=X)
    await one.change("time", lambda kept: replace(kept, stopped=True))
    await one.wait_until_applied("time")
    assert workers.service().did == ["start", "stop"]
    await other.refresh()
    await other.wait_until_applied("time")
    assert workers.service(worker="w2").did == ["start", "stop"]
    await workers.start("w3", time=X)
    assert workers.service(worker="w3").did == []
    await other.change("time", lambda kept: replace(kept, stopped=False, restarts=kept.restarts + 1))
    for mcp_servers in (one, other):
        await mcp_servers.refresh()
        await mcp_servers.wait_until_applied("time")
    assert workers.service().did == workers.service(worker="w2").did == ["start", "stop", "start"]
    await one.change("time", lambda kept: replace(kept, restarts=kept.restarts + 1))
    await one.wait_until_applied("time")
    assert workers.service().did == ["start", "stop", "start", "stop", "start"]


async def test_concurrent_changes_of_several_workers_are_merged(workers: Workers) -> None:
    """Each is made to what the others left."""
    fleets = [await workers.start(f"w{i}", time=X) for i in range(3)]

    def again(kept: StoredService) -> StoredService:
        return replace(kept, restarts=kept.restarts + 1)

    await asyncio.gather(*(mcp_servers.change("time", again) for mcp_servers in fleets for _ in range(2)))
    kept = await workers.kept()
    assert kept is not None and kept.restarts == 6


async def test_unchanged_service_is_not_written(workers: Workers) -> None:
    """Nobody has to look again for it."""
    mcp_servers = await workers.start(time=X)
    generation = await workers.store.get_generation()
    await mcp_servers.change("other", lambda kept: kept)
    assert await workers.kept("other") is None and await workers.store.get_generation() >= generation


# What was accepted.


async def test_first_definitions_are_pinned(workers: Workers) -> None:
    """By whoever sees them first; another worker's service is held against them."""
    await workers.start("w1", time=X)
    await workers.until_kept(lambda kept: kept is not None and kept.pins == {"look": "1" * 64})
    other = await workers.start("w2", time=X)
    assert workers.service(worker="w2").pins == {"look": "1" * 64}
    workers.service(worker="w2").becomes("running", look="2" * 64, listen="3" * 64)
    await workers.until_kept(lambda kept: kept is not None and "listen" in kept.pins)
    kept = await workers.kept()
    assert kept is not None and kept.pins == {"look": "1" * 64, "listen": "3" * 64}
    assert other.get_services()[0].source.get_service().changed == {"look"}


async def test_pins_survive_a_restart_and_end_with_the_registration(workers: Workers) -> None:
    """A configured service that is taken out and put back is held against them; a deleted one begins anew."""
    await workers.register("mine")
    mcp_servers = await workers.start(time=X)
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins))
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins), "mine")
    mcp_servers.configure({})
    await mcp_servers.refresh()
    await mcp_servers.delete("mine")
    await mcp_servers.close()
    again = await workers.start("w2", time=X)
    assert workers.service(worker="w2").pins == {"look": "1" * 64} and names(again) == ["time"]
    assert await workers.kept("mine") is None


async def test_deleted_service_is_not_pinned_again(workers: Workers) -> None:
    """Its pins would bring it back."""
    await workers.register()
    mcp_servers = await workers.start()
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins))
    await workers.store.delete_service("time")
    workers.service().becomes("running", look="1" * 64, listen="3" * 64)
    await workers.until_told(("w1", "time", "running"))
    await mcp_servers.refresh()
    assert await workers.kept() is None and not mcp_servers.get_services()


async def test_accepted_pins_reach_every_worker(workers: Workers) -> None:
    """At its next look."""
    one, other = await workers.start("w1", time=X), await workers.start("w2", time=X)
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins))
    await other.refresh()
    workers.service(worker="w2").becomes("running", look="2" * 64)
    assert workers.service(worker="w2").get_service().changed == {"look"}
    await one.change("time", lambda kept: replace(kept, pins={"look": "2" * 64}))
    await other.refresh()
    assert workers.service(worker="w2").get_service().changed == frozenset()


# What fails.


async def test_pins_are_stored_after_a_store_failure(workers: Workers) -> None:
    """What could not be pinned is, once there is room."""
    workers.store.broken = True
    with pytest.raises(StoreError):
        await workers.start(time=X)
    workers.store.broken = False
    await workers.by_name["w1"].refresh()
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins))


async def test_an_accepted_definition_is_stored_once(workers: Workers) -> None:
    """Before its pin; also one that an older version had pinned, as long as the server has it."""
    await workers.store.put_service(StoredService(name="time", pins={"look": "1" * 64, "gone": "7" * 64}), expected=0)
    await workers.start(time=X)

    found = await until_read(lambda: workers.store.find_definitions(["1" * 64, "7" * 64]))
    assert found.keys() == {"1" * 64} and json.loads(found["1" * 64])["description"] == "Does look."


async def test_a_definition_that_was_not_accepted_is_not_stored(workers: Workers) -> None:
    """Nor one that a person saw and that has changed since."""
    mcp_servers = await workers.start(time=X)
    await workers.until_kept(lambda kept: kept is not None and bool(kept.pins))
    workers.service().becomes("running", look="2" * 64)
    await mcp_servers.record("time", {"look": "3" * 64})
    await mcp_servers.record("none", {"look": "2" * 64})
    assert (await workers.store.find_definitions([n * 64 for n in "123"])).keys() == {"1" * 64}


async def test_definition_without_a_free_pin_is_not_stored(workers: Workers) -> None:
    """A server that lists ever new tools fills its pins, and not the disk."""
    pins = {f"tool_{number}": "7" * 64 for number in range(MOST_PINS)}
    await workers.store.put_service(StoredService(name="time", pins=pins), expected=0)
    await workers.start(time=X)
    await workers.until_told(("w1", "time", "running"))
    assert workers.service().get_service().changed == {"look"}
    assert await workers.store.find_definitions(["1" * 64]) == {}


async def test_size_of_loaded_definitions_is_bounded(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is not known then."""
    monkeypatch.setattr(servers_module, "RECORDED_CHARS", 1000)
    hashes = [f"{number:064d}" for number in range(50)]
    await workers.store.put_definitions({digest: json.dumps({"description": "x" * 100}) for digest in hashes})
    found = await (await workers.start()).load_definitions(hashes)
    assert found.keys() == set(hashes[:20])
