"""The port of a worker for other workers: those of this gateway, and of other gateways on its store."""

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.config import Settings
from gateway.config.values.addresses import Address
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import get_store_address
from gateway.server.sockets import choose_reachable_host

LOOPBACK: Final = "127.0.0.1"
#: Addresses to which nothing is sent: what the system would send them from is where others reach this machine.
_ELSEWHERE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def find_replica_listen(settings: Settings, folder: Path) -> Address | None:
    """Return the address to listen on for other workers; port 0: any free one. None: no other can use the store."""
    if settings.replicas.listen is not None:
        return settings.replicas.listen
    try:
        store = get_store_address(settings, folder=folder)
    except PluginProblem:
        return None  # the open of the store reports it
    if store.is_shared:
        return Address(settings.listen.host, 0)
    return None if store.file is None else Address(LOOPBACK, 0)


class ReplicaPort:
    """The port of one worker, which it listens on once it is needed. `accept` makes the protocol of a connection."""

    def __init__(self, address: Address, settings: Settings, accept: Callable[[], asyncio.Protocol]) -> None:
        self._address = address
        self._published_host = settings.replicas.address
        self._tries = 2 * settings.workers if address.port else 1
        self._accept = accept
        self._server: asyncio.Server | None = None

    async def listen(self) -> str:
        """Listen on the port, or on the next free one, which another worker left. Return the address for others.

        Raises OSError.
        """
        loop, host, port = asyncio.get_running_loop(), self._address.host, self._address.port
        for left in reversed(range(self._tries)):
            try:
                self._server = await loop.create_server(self._accept, host, port)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not left:
                    raise
                port += 1
        assert self._server is not None
        return str(Address(self._published_host or find_own_host(host), self._server.sockets[0].getsockname()[1]))

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._server is not None:
            self._server.close()


def find_own_host(host: str) -> str:
    """Return the host at which other machines reach a listener on `host`."""
    if choose_reachable_host(host) == host:
        return host
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue  # the machine has no way there
    return choose_reachable_host(host)
