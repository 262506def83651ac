"""A free port is free."""

import asyncio
import subprocess
import sys

import pytest

from gateway.testing.ports import free_port
from gateway.testing.raw_connection import connect


async def test_a_free_port_can_be_listened_on() -> None:
    """And until then refuses."""
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        await connect("127.0.0.1", port)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    server.close()
    await server.wait_closed()


def test_a_port_is_given_to_one_process_only() -> None:
    """A program that starts again finds its port free: nobody was given it meanwhile."""
    code = "from gateway.testing.ports import free_port\nprint(*(free_port() for _ in range(300)))"
    ours = {free_port() for _ in range(300)}
    theirs = {int(port) for port in subprocess.check_output([sys.executable, "-c", code], text=True).split()}
    assert len(ours) == len(theirs) == 300 and not ours & theirs
