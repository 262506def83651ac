"""A free loopback port, for a program that must be given its number."""

import contextlib
import random
import socket
from typing import Final

#: Below the ports that Linux gives to sockets that ask for none: a client elsewhere never takes one of them meanwhile.
_PORTS: Final = range(10_000, 32_768)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that was free a moment ago, for a process that cannot use port 0; connecting to it is refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    chosen = random.SystemRandom()  # tests that seed `random` in several processes would all choose the same
    while True:
        port = chosen.choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
            return port
