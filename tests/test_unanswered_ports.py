"""Each port fails in the way it says."""

import pytest
from unanswered_ports import refusing_port, silent_port

from gateway.testing.raw_connection import connect


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
