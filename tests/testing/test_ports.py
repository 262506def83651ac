"""A free port is free."""

import asyncio

import pytest

from gateway.testing.peer import connect
from gateway.testing.ports import free_port


async def test_a_free_port_can_be_listened_on() -> None:
    """And until then refuses."""
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        await connect("127.0.0.1", port)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    server.close()
    await server.wait_closed()
