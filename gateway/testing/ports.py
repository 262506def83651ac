"""A free loopback port, for a program that must be given its number."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Final

#: Below the ports that Linux gives to sockets that ask for none: a client elsewhere never takes one of them meanwhile.
_PORTS: Final = range(10_000, 32_768)
#: So many of them belong to one process until it ends: no other test takes that of a program that starts again.
_SHARE: Final = 512


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that was free a moment ago, for a process that cannot use port 0; connecting to it is refused.

    No other process is given it, and this one not before it was given some hundred others.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in islice(_reserve_ports(os.getpid()), _SHARE):
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
            return port
    raise RuntimeError(f"none of this process's {_SHARE} ports is free: end what it has started")


@cache
def _reserve_ports(_pid: int) -> Iterator[int]:
    """Return the ports of this process, again and again. The lock on its share ends with the process."""
    shares = [_PORTS[start : start + _SHARE] for start in range(0, len(_PORTS), _SHARE)]
    random.SystemRandom().shuffle(shares)  # tests that seed `random` in several processes would all choose the same
    for ports in shares:
        with contextlib.suppress(PermissionError):  # it is another user's
            lock = os.open(Path(tempfile.gettempdir(), f"gateway-ports-{ports[0]}"), os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                return cycle(ports)
    raise RuntimeError(f"{len(shares)} processes have all ports from {_PORTS[0]} to {_PORTS[-1]}: end some of them")
