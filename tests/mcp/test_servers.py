"""The services of workers: what the store and the configuration want is so, in each of them, and stays so."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from agent.doubles import samples
from prometheus_client.core import Metric

from gateway.config.schema.mcp import McpServer
from gateway.contracts.managed import ServiceStatus
from gateway.contracts.store import StoredService, StoreError, WorkerService
from gateway.mcp.server import DesiredServer
from gateway.mcp.servers import FRESH_S, TELL_EVERY_S, McpServers, ServerStatus
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.telemetry.counters import ContextCounters
from tests.tools.managed import Managed, Yard

SECRET = "sk-canary-12345"


@dataclass
class Wall:
    """A clock that a test sets."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


class Fragile(SqliteStore):
    """The real store; `broken` is its disk."""

    broken = False

    async def services(self) -> list[StoredService]:
        if self.broken:
            raise StoreError("no such disk")
        return list(await super().services())


@dataclass
class Harbour:
    """A store, and the fleets of its workers."""

    store: Fragile
    clock: Wall = field(default_factory=Wall)
    counters: ContextCounters = field(default_factory=ContextCounters)
    yards: dict[str, Yard] = field(default_factory=dict)
    fleets: dict[str, McpServers] = field(default_factory=dict)

    async def worker(self, name: str = "w1", **servers: Mapping[str, object]) -> McpServers:
        """A fleet of these services."""
        yard = self.yards[name] = Yard()
        mcp_servers = self.fleets[name] = McpServers(
            self.store, build=yard.build, worker=name, counters=self.counters, clock=self.clock
        )
        mcp_servers.configure(configured(**servers))
        await mcp_servers.refresh()
        for server in servers:
            await mcp_servers.settled(server)
        return mcp_servers

    def service(self, name: str = "time", *, worker: str = "w1") -> Managed:
        return self.yards[worker].newest(name)

    async def kept(self, name: str = "time") -> StoredService | None:
        return next((one for one in await self.store.services() if one.name == name), None)

    async def until_kept(self, reached: Callable[[StoredService | None], bool], name: str = "time") -> None:
        async with asyncio.timeout(120):
            while not reached(await self.kept(name)):
                await asyncio.sleep(0.005)

    async def until_told(self, *told: tuple[str, str, str]) -> None:
        """(worker, service, state) of all."""
        async with asyncio.timeout(120):
            while told != tuple((t.worker, t.name, t.state) for t in await self.store.reported_services(since_s=0.0)):
                await asyncio.sleep(0.005)


def configured(**servers: Mapping[str, object]) -> dict[str, McpServer]:
    return {name: McpServer.model_validate(server) for name, server in servers.items()}


X, Y = {"command": "x"}, {"command": "y"}


@asynccontextmanager
async def opened() -> AsyncIterator[Harbour]:
    store = Fragile(":memory:")
    await store.open()
    made = Harbour(store)
    try:
        yield made
    finally:
        store.broken = False
        for mcp_servers in made.fleets.values():
            await mcp_servers.close()
            await mcp_servers.close()
        await store.close()


@pytest.fixture
async def harbour() -> AsyncIterator[Harbour]:
    async with opened() as made:
        yield made


def names(mcp_servers: McpServers) -> list[str]:
    return [configured.source.service().name for configured in mcp_servers.services()]


async def register(harbour: Harbour, name: str = "time", **settings: object) -> None:
    """As another worker does."""
    config = json.dumps(settings or X).encode()
    assert await harbour.store.put_service(StoredService(name=name, config=config), expected=0)


# Those of the configuration, and those that were registered.


async def test_a_gateway_without_services_keeps_nothing_busy(harbour: Harbour) -> None:
    """No task, no service, nothing to tell."""
    before = asyncio.all_tasks()
    mcp_servers = await harbour.worker()
    assert not mcp_servers.services() and list(mcp_servers.families()) == [] and not await mcp_servers.seen()
    assert asyncio.all_tasks() <= before
    assert not await harbour.store.services() and not await harbour.store.reported_services(since_s=0.0)


async def test_services_of_the_configuration_run(harbour: Harbour) -> None:
    """In its order, with its settings, and trusted by nobody."""
    mcp_servers = await harbour.worker(time={**X, "trigger_keywords": ["几点"], "description": "Clocks."}, git=Y)
    assert names(mcp_servers) == ["time", "git"] and all(one.untrusted for one in mcp_servers.services())
    facts = mcp_servers.services()[0].source.service()
    assert (facts.running, facts.description, facts.trigger_keywords) == (True, "Clocks.", ("几点",))


async def test_configuring_waits_for_nothing(harbour: Harbour) -> None:
    """A store that fails keeps what runs running, and the next look makes up for it."""
    mcp_servers = await harbour.worker(time=X)
    harbour.store.broken = True
    mcp_servers.configure(configured(git=Y))
    with pytest.raises(StoreError):
        await mcp_servers.refresh()
    assert names(mcp_servers) == ["time"] and harbour.service().did == ["start"]
    harbour.store.broken = False
    await mcp_servers.refresh()
    assert names(mcp_servers) == ["git"]


async def test_a_reload_keeps_up_what_stays_the_same(harbour: Harbour) -> None:
    """Other settings are another service; what is gone is stopped."""
    mcp_servers = await harbour.worker(same=X, other=X, gone=X)
    mcp_servers.configure(configured(same=X, other=Y, new=X))
    await mcp_servers.refresh()
    for name in ("other", "new"):
        await mcp_servers.settled(name)
    assert names(mcp_servers) == ["same", "other", "new"]
    did = [(one.name, one.did[0], one.did[-1]) for one in harbour.yards["w1"].built]
    assert did[:2] == [("same", "start", "start"), ("other", "start", "close")]
    assert did[3:] == [("other", "start", "start"), ("new", "start", "start")]
    await mcp_servers.close()
    assert all(one.did[-1] == "close" for one in harbour.yards["w1"].built)


async def test_a_service_that_was_registered_anywhere_runs_everywhere(harbour: Harbour) -> None:
    """At the next look of each worker; and is gone as soon as it was deleted."""
    one, other = await harbour.worker("w1", git=X), await harbour.worker("w2", git=X)
    await register(harbour, "b", command="y", env={"K": SECRET})
    await register(harbour, "a")
    await asyncio.gather(one.refresh(), other.refresh())
    assert names(one) == names(other) == ["git", "a", "b"]
    assert harbour.service("b", worker="w2").options["env"] == {"K": SECRET}
    assert await one.delete("b") is True and await one.delete("b") is False
    await other.refresh()
    assert names(one) == names(other) == ["git", "a"]
    await one.close()
    await other.close()
    assert harbour.service("b", worker="w2").did[-1] == "close"


async def test_a_registered_service_does_not_take_the_name_of_a_configured_one(harbour: Harbour) -> None:
    """The file wins, also if it comes later; without it the registered one is back."""
    await register(harbour, command="registered")
    mcp_servers = await harbour.worker(time={"command": "configured"})
    assert harbour.service().options["command"] == "configured"
    mcp_servers.configure({})
    await mcp_servers.refresh()
    assert harbour.service().options["command"] == "registered"


@pytest.mark.parametrize("config", [b'{"command": "x", "newer": 1}', b"{", b"[]", b"\xff"])
async def test_settings_that_this_version_cannot_read(harbour: Harbour, config: bytes) -> None:
    """The service stands in the list and says so; no other one suffers."""
    await harbour.store.put_service(StoredService(name="odd", config=config), expected=0)
    mcp_servers = await harbour.worker(time=X)
    await mcp_servers.refresh()
    odd = (await mcp_servers.seen())[1]
    assert (odd.name, odd.state) == ("odd", "error") and "do not fit this version" in (odd.error or "")
    assert harbour.service().did == ["start"]


# What operators want.


async def test_stop_start_and_restart_hold_for_all_workers(harbour: Harbour) -> None:
    """Also for one that starts later."""
    one, other = await harbour.worker("w1", time=X), await harbour.worker("w2", time=X)
    await one.change("time", lambda kept: replace(kept, stopped=True))
    await one.settled("time")
    assert harbour.service().did == ["start", "stop"]
    await other.refresh()
    await other.settled("time")
    assert harbour.service(worker="w2").did == ["start", "stop"]
    await harbour.worker("w3", time=X)
    assert harbour.service(worker="w3").did == []
    await other.change("time", lambda kept: replace(kept, stopped=False, restarts=kept.restarts + 1))
    for mcp_servers in (one, other):
        await mcp_servers.refresh()
        await mcp_servers.settled("time")
    assert harbour.service().did == harbour.service(worker="w2").did == ["start", "stop", "start"]
    await one.change("time", lambda kept: replace(kept, restarts=kept.restarts + 1))
    await one.settled("time")
    assert harbour.service().did == ["start", "stop", "start", "stop", "start"]


async def test_changes_of_several_workers_are_all_there(harbour: Harbour) -> None:
    """Each is made to what the others left."""
    fleets = [await harbour.worker(f"w{i}", time=X) for i in range(3)]

    def again(kept: StoredService) -> StoredService:
        return replace(kept, restarts=kept.restarts + 1)

    await asyncio.gather(*(mcp_servers.change("time", again) for mcp_servers in fleets for _ in range(2)))
    kept = await harbour.kept()
    assert kept is not None and kept.restarts == 6


async def test_a_change_that_changes_nothing_is_not_written(harbour: Harbour) -> None:
    """Nobody has to look again for it."""
    mcp_servers = await harbour.worker(time=X)
    generation = await harbour.store.generation()
    await mcp_servers.change("other", lambda kept: kept)
    assert await harbour.kept("other") is None and await harbour.store.generation() >= generation


# What was accepted.


async def test_first_definitions_are_pinned(harbour: Harbour) -> None:
    """By whoever sees them first; another worker's service is held against them."""
    await harbour.worker("w1", time=X)
    await harbour.until_kept(lambda kept: kept is not None and kept.pins == {"look": "1" * 64})
    other = await harbour.worker("w2", time=X)
    assert harbour.service(worker="w2").pins == {"look": "1" * 64}
    harbour.service(worker="w2").becomes("running", look="2" * 64, listen="3" * 64)
    await harbour.until_kept(lambda kept: kept is not None and "listen" in kept.pins)
    kept = await harbour.kept()
    assert kept is not None and kept.pins == {"look": "1" * 64, "listen": "3" * 64}
    assert other.services()[0].source.service().changed == {"look"}


async def test_pins_outlive_a_restart_and_go_with_a_registration(harbour: Harbour) -> None:
    """A configured service that is taken out and put back is held against them; a deleted one begins anew."""
    await register(harbour, "mine")
    mcp_servers = await harbour.worker(time=X)
    await harbour.until_kept(lambda kept: kept is not None and bool(kept.pins))
    await harbour.until_kept(lambda kept: kept is not None and bool(kept.pins), "mine")
    mcp_servers.configure({})
    await mcp_servers.refresh()
    await mcp_servers.delete("mine")
    await mcp_servers.close()
    again = await harbour.worker("w2", time=X)
    assert harbour.service(worker="w2").pins == {"look": "1" * 64} and names(again) == ["time"]
    assert await harbour.kept("mine") is None


async def test_a_service_that_was_deleted_meanwhile_is_not_pinned(harbour: Harbour) -> None:
    """Its pins would bring it back."""
    await register(harbour)
    mcp_servers = await harbour.worker()
    await harbour.until_kept(lambda kept: kept is not None and bool(kept.pins))
    await harbour.store.delete_service("time")
    harbour.service().becomes("running", look="1" * 64, listen="3" * 64)
    await harbour.until_told(("w1", "time", "running"))
    await mcp_servers.refresh()
    assert await harbour.kept() is None and not mcp_servers.services()


async def test_what_was_accepted_reaches_every_worker(harbour: Harbour) -> None:
    """At its next look."""
    one, other = await harbour.worker("w1", time=X), await harbour.worker("w2", time=X)
    await harbour.until_kept(lambda kept: kept is not None and bool(kept.pins))
    await other.refresh()
    harbour.service(worker="w2").becomes("running", look="2" * 64)
    assert harbour.service(worker="w2").service().changed == {"look"}
    await one.change("time", lambda kept: replace(kept, pins={"look": "2" * 64}))
    await other.refresh()
    assert harbour.service(worker="w2").service().changed == frozenset()


# What is seen.


async def test_workers_say_what_they_see(harbour: Harbour) -> None:
    """On each change, and at their end that they see nothing any more."""
    one, other = await harbour.worker("w1", time=X), await harbour.worker("w2", time=X)
    await harbour.until_told(("w1", "time", "running"), ("w2", "time", "running"))
    harbour.service(worker="w2").becomes("error", error=f"exit code 1, key {SECRET}")
    await harbour.until_told(("w1", "time", "running"), ("w2", "time", "error"))
    (seen,) = await one.seen()
    assert (seen.state, seen.condition.state, [o.worker for o in seen.others]) == ("error", "running", ["w2"])
    assert seen.error == f"exit code 1, key {SECRET}"
    await other.close()
    await harbour.until_told(("w1", "time", "running"))
    assert (await one.seen())[0].state == "running"


async def test_a_worker_that_is_gone_is_not_believed_for_long(harbour: Harbour) -> None:
    """It says again what it sees as long as it lives."""
    mcp_servers = await harbour.worker(time=X)
    dead = WorkerService(worker="dead", name="time", state="error", error="no", updated_s=harbour.clock.now_s)
    await harbour.store.report_services("dead", [dead])
    assert (await mcp_servers.seen())[0].state == "error"
    harbour.clock.now_s += FRESH_S + 1
    assert (await mcp_servers.seen())[0].state == "running" and TELL_EVERY_S < FRESH_S / 2


async def test_secrets_of_a_service_are_not_in_what_it_printed(harbour: Harbour) -> None:
    """Neither here nor for other workers."""
    mcp_servers = await harbour.worker(time={**X, "env": {"K": SECRET}})
    service = harbour.service()
    service.stderr = (f"key is {SECRET}", "fine")
    service.becomes("error", error=f"{SECRET} is wrong" + "x" * 1000)
    await harbour.until_told(("w1", "time", "error"))
    (told,) = await harbour.store.reported_services(since_s=0.0)
    (seen,) = await mcp_servers.seen()
    assert SECRET not in repr((told, seen.condition)) and seen.condition.stderr == ("key is ***", "fine")
    assert told.error is not None and len(told.error) == 500


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        (("running", "starting"), "starting"),
        (("running", "stopped", "starting"), "stopped"),
        (("stopped", "error"), "error"),
        (("running",), "running"),
    ],
)
async def test_the_worst_state_is_shown(states: tuple[str, ...], worst: str) -> None:
    """Of all workers."""
    others = [WorkerService(worker="w", name="x", state=state, updated_s=0.0) for state in states[1:]]  # type: ignore[arg-type]
    condition = ServiceStatus(state=states[0], since_s=0.0, transport="stdio")  # type: ignore[arg-type]
    wanted = DesiredServer("configured", None, StoredService(name="x"))
    assert ServerStatus("x", wanted, Managed("x"), condition, others).state == worst


async def test_a_store_that_fails_is_asked_again(harbour: Harbour) -> None:
    """What could not be pinned is, once there is room."""
    harbour.store.broken = True
    with pytest.raises(StoreError):
        await harbour.worker(time=X)
    harbour.store.broken = False
    await harbour.fleets["w1"].refresh()
    await harbour.until_kept(lambda kept: kept is not None and bool(kept.pins))


# What is counted.


def up(mcp_servers: McpServers) -> dict[str, float]:
    found: list[Metric] = list(mcp_servers.families())
    return {sample.labels["server"]: sample.value for family in found for sample in family.samples}


async def test_services_that_run_are_up(harbour: Harbour) -> None:
    """One value each; beyond 32 the worst of the rest."""
    mcp_servers = await harbour.worker(time=X, git=X)
    harbour.service("git").becomes("error")
    assert up(mcp_servers) == {"time": 1, "git": 0}
    mcp_servers.configure(configured(**{f"s{i:03}": X for i in range(150)}))
    await mcp_servers.refresh()
    await asyncio.gather(*(mcp_servers.settled(f"s{i:03}") for i in range(150)))
    assert len(up(mcp_servers)) == 33 and up(mcp_servers)["other"] == 1
    harbour.service("s140").becomes("stopped")
    assert up(mcp_servers)["other"] == 0 and up(mcp_servers)["s000"] == 1


async def test_restarts_of_a_service_by_itself_are_counted(harbour: Harbour) -> None:
    """Each once; a start by an operator begins anew, and is none."""
    await harbour.worker(time=X)
    name = ("gateway_mcp_server_restarts_total", ("time",))
    for restarts, counted in ((2, 2), (0, 2), (1, 3)):
        harbour.service().restarts = restarts
        harbour.service().becomes("error" if restarts else "running", error=f"{restarts}")
        async with asyncio.timeout(120):
            while [t.error for t in await harbour.store.reported_services(since_s=0.0)] != [f"{restarts}"]:
                await asyncio.sleep(0.005)
        assert samples(harbour.counters)[name] == counted
