"""One service of a worker: whatever is wanted of it, and however fast that changes, it ends up so."""

from dataclasses import replace

import pytest
from agent.doubles import Clock

from gateway.contracts.storage.store import StoredService
from gateway.mcp.broken_server import BrokenServer
from gateway.mcp.registration import parse_settings
from gateway.mcp.server import MOST_PINS, DesiredServer, ManagedServer
from gateway.testing.clock import ManualClock
from tests.tools.managed import Managed, ServiceFactory

RECORD = StoredService(name="time")
NOTICED: list[str] = []


def wanted(command: str = "x", **record: object) -> DesiredServer:
    return DesiredServer("configured", parse_settings({"command": command}), replace(RECORD, **record))  # type: ignore[arg-type]


def server(factory: ServiceFactory, first: DesiredServer) -> ManagedServer:
    noticed = lambda: NOTICED.append("time")  # noqa: E731 - a name would say no more
    return ManagedServer("time", first, build=factory.build, noticed=noticed, clock=Clock(ManualClock()))


@pytest.fixture
def factory() -> ServiceFactory:
    NOTICED.clear()
    return ServiceFactory()


async def test_service_starts_unless_stopped_by_an_operator(factory: ServiceFactory) -> None:
    """What was accepted of it is known before."""
    one = server(factory, wanted(pins={"look": "2"}))
    (service,) = factory.built
    assert service.pins == {"look": "2"} and service.did == []
    await one.wait_until_applied()
    assert service.did == ["start"] and service.options["command"] == "x" and NOTICED
    await one.close()
    stopped = server(factory, wanted(stopped=True))
    await stopped.wait_until_applied()
    assert factory.built[1].did == []
    await stopped.close()
    assert factory.built[1].did == ["close"]
    disabled = server(factory, DesiredServer("configured", parse_settings({"command": "x", "enabled": False}), RECORD))
    await disabled.wait_until_applied()
    assert factory.built[2].did == []
    await disabled.close()


async def test_unchanged_settings_keep_the_running_service(factory: ServiceFactory) -> None:
    """It stays up; only what was accepted of it may be more."""
    one = server(factory, wanted())
    await one.wait_until_applied()
    one.set_desired_state(wanted(pins={"look": "1"}, version=5))
    await one.wait_until_applied()
    assert [service.did for service in factory.built] == [["start"]] and factory.built[0].pins == {"look": "1"}
    await one.close()


async def test_changed_settings_replace_the_service(factory: ServiceFactory) -> None:
    """Which starts once the old one is gone."""
    one = server(factory, wanted())
    await one.wait_until_applied()
    old = factory.built[0]
    old.gate.clear()
    one.set_desired_state(wanted("y"))
    new = factory.built[1]
    assert one.service is new and new.options["command"] == "y" and new.did == []
    old.gate.set()
    await one.wait_until_applied()
    assert (old.did, new.did) == (["start", "close"], ["start"])
    await one.close()
    assert new.did[0] == "start" and new.did[-1] == "close"


async def test_stop_start_and_restart_follow_the_desired_state(factory: ServiceFactory) -> None:
    """Each as the store says it."""
    one = server(factory, wanted(restarts=3))
    await one.wait_until_applied()
    for change in ({"stopped": True}, {"stopped": False}, {"restarts": 4}, {"restarts": 4}):
        one.set_desired_state(wanted(**{"restarts": 3, **change}))
        await one.wait_until_applied()
    assert factory.built[0].did == ["start", "stop", "start", "stop", "start"]
    await one.close()


async def test_intermediate_desired_states_are_skipped(factory: ServiceFactory) -> None:
    """While it stops, it is told to start, to stop, to start anew with other settings: only the last is done."""
    one = server(factory, wanted())
    await one.wait_until_applied()
    first = factory.built[0]
    first.gate.clear()
    for change in (wanted(stopped=True), wanted(), wanted("y"), wanted("z", stopped=True), wanted("z")):
        one.set_desired_state(change)
    first.gate.set()
    await one.wait_until_applied()
    assert first.did[-1] == "close"
    assert [service.did for service in factory.built[1:]] == [["close"], ["start"]] and one.service is factory.built[2]
    await one.close()


async def test_failing_stop_does_not_block_the_replacement_service(factory: ServiceFactory) -> None:
    """It is told in the log."""

    async def fails() -> None:
        raise OSError("no")

    one = server(factory, wanted())
    await one.wait_until_applied()
    factory.built[0].close = fails  # type: ignore[method-assign]
    one.set_desired_state(wanted("y"))
    await one.wait_until_applied()
    assert factory.built[1].did == ["start"]
    await one.close()


async def test_unbuildable_service_reports_its_error(factory: ServiceFactory) -> None:
    """And is built as soon as its settings are others."""
    factory.refuses = "it needs pip install 'twolane[mcp]'"
    one = server(factory, wanted())
    await one.wait_until_applied()
    assert isinstance(one.service, BrokenServer) and one.service.get_condition().error == factory.refuses
    unread = server(factory, DesiredServer("registered", None, RECORD, "its settings are too new"))
    assert unread.service.get_condition().error == "its settings are too new"
    await unread.close()
    factory.refuses = None
    one.set_desired_state(wanted("y"))
    await one.wait_until_applied()
    assert isinstance(one.service, Managed) and one.service.did == ["start"]
    await one.close()


async def test_new_tools_beyond_the_pin_limit_are_not_trusted(factory: ServiceFactory) -> None:
    """A server that names ever new tools is asked about for each of the further ones."""
    one = server(factory, wanted(pins={f"t{i}": "x" for i in range(MOST_PINS)}))
    await one.wait_until_applied()
    service = factory.built[0]
    assert "look" not in service.pins
    one.apply_pins()
    assert service.get_service().changed == {"look"}
    await one.close()
