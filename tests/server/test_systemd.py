"""systemd hears when the gateway is ready and when it stops, and nobody is troubled where there is no systemd."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import config, fetch, until

from gateway.server.systemd import notify
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess


class Ear:
    """The messages that systemd would get on NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self._heard: list[str] = []

    def heard(self) -> list[str]:
        """Everything until now."""
        while True:
            try:
                self._heard.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return self._heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    made = Ear(tmp_path / "notify")
    yield made
    made.close()


def test_systemd_state_is_sent_as_one_datagram(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sd_notify sends it."""
    monkeypatch.setenv("NOTIFY_SOCKET", ear.path)
    notify("READY=1")
    notify("STOPPING=1")
    assert ear.heard() == ["READY=1", "STOPPING=1"]


def test_notify_supports_abstract_socket_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """`@` stands for the zero byte."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0gateway-test-notify")
        listener.settimeout(2)
        monkeypatch.setenv("NOTIFY_SOCKET", "@gateway-test-notify")
        notify("READY=1")
        assert listener.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/no/such/socket", "relative", "/" + "x" * 200, "@\udcff"])
def test_notify_never_raises(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the address is, and without one."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


@pytest.mark.parametrize("workers", [1, 2])
async def test_systemd_is_notified_of_ready_and_stopping_once(ear: Ear, workers: int) -> None:
    """By the gateway, not by each worker; and that it stops, as soon as it does."""
    async with FakeUpstream() as upstream:
        running = GatewayProcess(config(upstream.base_url, workers=workers), env={"NOTIFY_SOCKET": ear.path})
        async with running as gateway:
            await until(ear.heard)
            assert ear.heard() == ["READY=1"]
            assert (await fetch(gateway)).status == 200
        assert ear.heard()[0] == "READY=1" and set(ear.heard()[1:]) == {"STOPPING=1"}
