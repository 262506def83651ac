"""The place of a server that is to run once for all gateways (`run: one`): the worker that holds its lease.

1. A worker that begins to want the server claims the lease. Who holds it runs the server; all others use that one.
2. A worker uses its own server only while it holds the lease by its own clock. So one that has stood still sends no
   call to a server that runs elsewhere by now.
3. The lease is given back once the server has ended, so that two do not run at a time where all goes well.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from gateway.mcp.calls import ServerLink
from gateway.mcp.server_facts import Config
from gateway.upstream.replicas.replicas import Replicas

#: So much of the hash of a server is a part of its lease's name: another server of the same name has another lease.
_HASH_CHARS: Final = 16


class ServedServer(Protocol):
    """A server that runs here, as other workers use it."""

    def find_local_link(self) -> ServerLink | None:
        """Return the connection to it; None: it does not run here now."""
        ...

    def list_raw_tools(self) -> tuple[list[Any], list[str]]:
        """Return its last listing as the server wrote it, and the problems."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change, and return what ends that."""
        ...

    def check_alive(self) -> None:
        """Begin to check whether it lives: a call of another worker got no answer in time."""
        ...


class Placement:
    """The place of one server. `name` is that of its lease."""

    def __init__(self, name: str, replicas: Replicas) -> None:
        self.name = name
        self.replicas = replicas
        self.worker: str | None = None  # that runs it, as of the last look; None: this one
        self._stirred = asyncio.Event()
        replicas.directory.watch(self._stirred.set)

    @property
    def is_here(self) -> bool:
        """Return whether the server may be used here, by the clock of this worker."""
        return not self.replicas.is_possible or self.replicas.directory.holds(self.name)

    @property
    def address(self) -> str | None:
        """Return the address of the worker that runs the server, as far as it is known."""
        lease = self.replicas.directory.find(self.name)
        return None if lease is None else lease.address

    async def choose(self) -> str | None:
        """Return the other worker that runs the server; None: this one does, from now on.

        Raises StoreError, and OSError if no other worker could reach this one.
        """
        if not self.replicas.is_possible:
            return None
        await self.replicas.open()
        directory = self.replicas.directory
        directory.claim(self.name)
        while True:
            self._stirred.clear()
            if directory.holds(self.name):
                self.worker = None
                return None
            lease = directory.find(self.name)
            if lease is not None and lease.owner != directory.owner:
                self.worker = lease.owner
                return lease.owner
            await directory.refresh()
            if not directory.holds(self.name) and directory.find(self.name) is None:
                await self._stirred.wait()

    async def wait_until_moved(self, worker: str | None) -> None:
        """Wait until the server runs at another worker than `worker` (None: this one), or at none."""
        directory = self.replicas.directory
        while True:
            self._stirred.clear()
            lease = directory.find(self.name)
            if worker is None and lease is not None and lease.owner != directory.owner:
                return
            if worker is not None and (lease is None or lease.owner != worker):
                return
            await self._stirred.wait()

    async def release(self) -> None:
        """Let another worker run the server: it does not run here any more."""
        await self.replicas.directory.release(self.name)


class ServerPlaces:
    """The servers of one worker that run once for all gateways."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._served: dict[str, ServedServer] = {}

    def get_placement(self, server: Config) -> Placement:
        """Return the place of a server."""
        return Placement(f"mcp {server.name} {server.sha256[:_HASH_CHARS]}", self._replicas)

    def serve(self, name: str, served: ServedServer) -> None:
        """Let other workers use a server under the name of its lease, whenever it runs here."""
        self._served[name] = served

    def withdraw(self, name: str, served: ServedServer) -> None:
        """Let no worker use a server any more."""
        if self._served.get(name) is served:
            del self._served[name]

    def find_server(self, name: str) -> ServedServer | None:
        """Return the server whose lease has this name; None: other workers may use none."""
        return self._served.get(name)
