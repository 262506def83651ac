"""Each port fails in the way it says."""

import asyncio

import pytest

from gateway.testing.peer import connect
from gateway.testing.ports import free_port, refusing_port, silent_port


async def test_a_free_port_can_be_listened_on() -> None:
    """And until then refuses."""
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        await connect("127.0.0.1", port)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    server.close()
    await server.wait_closed()


async def test_a_refusing_port_refuses_as_long_as_it_is_held() -> None:
    """Twice in a row."""
    with refusing_port() as port:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                await connect("127.0.0.1", port)


async def test_a_silent_port_lets_a_connect_hang() -> None:
    """Neither refused nor accepted: only the client's own limit ends it."""
    with silent_port() as port, pytest.raises(TimeoutError, match=f"no connection to 127.0.0.1:{port} within 0.2 s"):
        await connect("127.0.0.1", port, timeout_s=0.2)
