"""One service of a worker: whatever is wanted of it, and however fast that changes, it ends up so."""

from dataclasses import replace

import pytest
from agent.doubles import Clock

from gateway.contracts.store import StoredService
from gateway.mcp.broken_server import BrokenServer
from gateway.mcp.registration import checked
from gateway.mcp.server import MOST_PINS, DesiredServer, ManagedServer
from gateway.testing.clock import ManualClock
from tests.tools.managed import Managed, Yard

RECORD = StoredService(name="time")
NOTICED: list[str] = []


def wanted(command: str = "x", **record: object) -> DesiredServer:
    return DesiredServer("configured", checked({"command": command}), replace(RECORD, **record))  # type: ignore[arg-type]


def server(yard: Yard, first: DesiredServer) -> ManagedServer:
    noticed = lambda: NOTICED.append("time")  # noqa: E731 - a name would say no more
    return ManagedServer("time", first, build=yard.build, noticed=noticed, clock=Clock(ManualClock()))


@pytest.fixture
def yard() -> Yard:
    NOTICED.clear()
    return Yard()


async def test_it_starts_unless_an_operator_stopped_it(yard: Yard) -> None:
    """What was accepted of it is known before."""
    one = server(yard, wanted(pins={"look": "2"}))
    (service,) = yard.built
    assert service.pins == {"look": "2"} and service.did == []
    await one.settled()
    assert service.did == ["start"] and service.options["command"] == "x" and NOTICED
    await one.close()
    stopped = server(yard, wanted(stopped=True))
    await stopped.settled()
    assert yard.built[1].did == []
    await stopped.close()
    assert yard.built[1].did == ["close"]
    disabled = server(yard, DesiredServer("configured", checked({"command": "x", "enabled": False}), RECORD))
    await disabled.settled()
    assert yard.built[2].did == []
    await disabled.close()


async def test_the_same_settings_are_the_same_service(yard: Yard) -> None:
    """It stays up; only what was accepted of it may be more."""
    one = server(yard, wanted())
    await one.settled()
    one.want(wanted(pins={"look": "1"}, version=5))
    await one.settled()
    assert [service.did for service in yard.built] == [["start"]] and yard.built[0].pins == {"look": "1"}
    await one.close()


async def test_other_settings_are_another_service(yard: Yard) -> None:
    """Which starts once the old one is gone."""
    one = server(yard, wanted())
    await one.settled()
    old = yard.built[0]
    old.gate.clear()
    one.want(wanted("y"))
    new = yard.built[1]
    assert one.service is new and new.options["command"] == "y" and new.did == []
    old.gate.set()
    await one.settled()
    assert (old.did, new.did) == (["start", "close"], ["start"])
    await one.close()
    assert new.did[0] == "start" and new.did[-1] == "close"


async def test_stop_start_and_restart(yard: Yard) -> None:
    """Each as the store says it."""
    one = server(yard, wanted(restarts=3))
    await one.settled()
    for change in ({"stopped": True}, {"stopped": False}, {"restarts": 4}, {"restarts": 4}):
        one.want(wanted(**{"restarts": 3, **change}))
        await one.settled()
    assert yard.built[0].did == ["start", "stop", "start", "stop", "start"]
    await one.close()


async def test_what_was_wanted_in_between_is_left_out(yard: Yard) -> None:
    """While it stops, it is told to start, to stop, to start anew with other settings: only the last is done."""
    one = server(yard, wanted())
    await one.settled()
    first = yard.built[0]
    first.gate.clear()
    for change in (wanted(stopped=True), wanted(), wanted("y"), wanted("z", stopped=True), wanted("z")):
        one.want(change)
    first.gate.set()
    await one.settled()
    assert first.did[-1] == "close"
    assert [service.did for service in yard.built[1:]] == [["close"], ["start"]] and one.service is yard.built[2]
    await one.close()


async def test_a_service_that_fails_to_stop_does_not_stop_its_successor(yard: Yard) -> None:
    """It is told in the log."""

    async def fails() -> None:
        raise OSError("no")

    one = server(yard, wanted())
    await one.settled()
    yard.built[0].close = fails  # type: ignore[method-assign]
    one.want(wanted("y"))
    await one.settled()
    assert yard.built[1].did == ["start"]
    await one.close()


async def test_one_that_cannot_be_built_says_so(yard: Yard) -> None:
    """And is built as soon as its settings are others."""
    yard.refuses = "it needs pip install 'twolane[mcp]'"
    one = server(yard, wanted())
    await one.settled()
    assert isinstance(one.service, BrokenServer) and one.service.condition().error == yard.refuses
    unread = server(yard, DesiredServer("registered", None, RECORD, "its settings are too new"))
    assert unread.service.condition().error == "its settings are too new"
    await unread.close()
    yard.refuses = None
    one.want(wanted("y"))
    await one.settled()
    assert isinstance(one.service, Managed) and one.service.did == ["start"]
    await one.close()


async def test_beyond_so_many_pins_nothing_new_is_trusted(yard: Yard) -> None:
    """A server that names ever new tools is asked about for each of the further ones."""
    one = server(yard, wanted(pins={f"t{i}": "x" for i in range(MOST_PINS)}))
    await one.settled()
    service = yard.built[0]
    assert "look" not in service.pins
    one.apply_pins()
    assert service.service().changed == {"look"}
    await one.close()
