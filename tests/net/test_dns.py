"""Each name has one lookup under way at most, and a name server that is silent keeps nobody else waiting."""

import asyncio
import socket
import threading

import pytest
from gateways import until
from host_names import HostNames, host_names

from gateway.net.dns import Lookups


async def test_addresses_come_once_each_in_their_order() -> None:
    """And each lookup is a new one."""
    with host_names({"up.example": ["127.0.0.2", "::1", "127.0.0.2"]}) as names:
        lookups = Lookups()
        assert await lookups.resolve_addresses("up.example") == ["127.0.0.2", "::1"]
        names.addresses["up.example"] = ["127.0.0.3"]
        assert await lookups.resolve_addresses("up.example") == ["127.0.0.3"]
        assert names.asked["up.example"] == 2


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "fe80::1%lo"])
async def test_ip_address_is_resolved_without_a_lookup(address: str) -> None:
    """It is returned as it is written."""
    with host_names({}) as names:
        assert await Lookups().resolve_addresses(address) == [address] and not names.asked


@pytest.mark.parametrize("name", ["nowhere.example", "a\0b.example", "x" * 64 + ".example"])
async def test_a_name_without_addresses_is_an_error(name: str) -> None:
    """So is one that cannot be a name."""
    lookups = Lookups()
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await lookups.resolve_addresses(name)


async def ask(lookups: Lookups, names: HostNames, host: str, *, times: int) -> "list[asyncio.Task[list[str]]]":
    """Ask for a name that is not found at once."""
    asked = [asyncio.create_task(lookups.resolve_addresses(host)) for _ in range(times)]
    await until(lambda: bool(names.asked[host]))
    return asked


async def test_a_silent_name_server_stops_no_other_name() -> None:
    """However many ask for its name. They share one lookup, also with those that gave up."""
    with host_names({"silent.example": None, "up.example": ["127.0.0.1"]}) as names:
        lookups = Lookups()
        asked = await ask(lookups, names, "silent.example", times=100)
        for task in asked[:50]:
            task.cancel()
        await asyncio.wait(asked[:50])
        asked += await ask(lookups, names, "silent.example", times=50)
        for _ in range(3):
            assert await lookups.resolve_addresses("up.example") == ["127.0.0.1"]
        names.go_on.set()
        ends = await asyncio.gather(*asked[50:], return_exceptions=True)
        assert len(ends) == 100 and all(isinstance(end, socket.gaierror) for end in ends)
        assert names.asked["silent.example"] == 1


async def test_more_names_than_threads_wait_in_line() -> None:
    """For the first that is found."""
    with host_names({"a.example": None, "b.example": None, "up.example": ["127.0.0.1"]}) as names:
        lookups = Lookups(most=2)
        silent = [(await ask(lookups, names, f"{name}.example", times=1))[0] for name in "ab"]
        waits = asyncio.create_task(lookups.resolve_addresses("up.example"))
        await asyncio.sleep(0)
        assert not names.asked["up.example"]
        names.go_on.set()
        assert await waits == ["127.0.0.1"]
        await asyncio.gather(*silent, return_exceptions=True)


async def test_lookup_recovers_when_threads_are_available_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the lookup fails at once."""

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with host_names({"up.example": ["127.0.0.1"]}):
        lookups = Lookups()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            with pytest.raises(OSError, match="no further thread"):
                await lookups.resolve_addresses("up.example")
        assert await lookups.resolve_addresses("up.example") == ["127.0.0.1"]
