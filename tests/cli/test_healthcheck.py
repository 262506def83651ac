"""`gateway healthcheck` for containers: 0 or 1, and one line that says why."""

import asyncio

import pytest
from functional.through import client_of, get, through
from gateways import until
from unanswered_ports import silent_port

from gateway.cli.healthcheck import check
from gateway.config import Address
from gateway.testing.ports import free_port
from gateway.testing.raw_connection import Peer


async def checked(where: str | Address, *, timeout_s: float = 2.0) -> int:
    """In a thread, as the gateway that is asked lives on this loop."""
    return await asyncio.to_thread(check, where, timeout_s=timeout_s)


async def test_healthcheck_exits_0_for_a_ready_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    """0 and silence, whether it is named by address, by URL or by host and port."""
    async with through() as (gateway, upstream):
        port = gateway.port
        for where in (Address("127.0.0.1", port), Address("0.0.0.0", port), gateway.base_url, f"localhost:{port}"):
            assert await checked(where) == 0
        assert not upstream.connections
    assert capsys.readouterr() == ("", "")


async def test_healthcheck_exits_1_for_a_draining_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    """1: no new traffic should go there."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    async with through(silent) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        await upstream.wait_requests(1)
        draining = asyncio.create_task(gateway.gateway.drain())
        await asyncio.sleep(0)
        assert await checked(gateway.base_url) == 1
        draining.cancel()
        await until(draining.done)
    out, err = capsys.readouterr()
    assert out == "" and err == f"gateway: 127.0.0.1:{gateway.port} is not ready (status 503)\n"


@pytest.mark.parametrize(
    "where",
    ["http://127.0.0.1:abc", "http://[::1", "https://127.0.0.1:1", "http://:80", "http://" + "a" * 70 + ".invalid:1"],
)
def test_invalid_url_returns_1_with_one_error_line(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """1 and one line."""
    assert check(where, timeout_s=120) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("gateway: ") and err.count("\n") == 1


def test_unreachable_or_silent_gateway_returns_1_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Refused at once; without an answer after the timeout."""
    assert check(f"127.0.0.1:{free_port()}", timeout_s=120) == 1
    with silent_port() as port:
        assert check(f"127.0.0.1:{port}", timeout_s=0.1) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("does not answer" in line for line in lines)
