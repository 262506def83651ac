"""Names that lead where a test wants, or whose name server is silent, in place of those of the system's resolver."""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from gateway.mcp.transport import guarded_network
from gateway.net import resolver
from gateway.net.dns import Lookups
from gateway.upstream import pool


@dataclass
class HostNames:
    """Names with their addresses; None: their name server is silent until `go_on` is set, and then knows of none."""

    addresses: dict[str, Sequence[str] | None]
    asked: Counter[str] = field(default_factory=Counter)
    go_on: threading.Event = field(default_factory=threading.Event)

    def found(self, host: str, port: object, *_rest: object, **_more: object) -> list[tuple[object, ...]]:
        """Return what `socket.getaddrinfo` does."""
        self.asked[host] += 1
        found = self.addresses.get(host, ())
        if found is None:
            self.go_on.wait()
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        family = {address: socket.AF_INET6 if ":" in address else socket.AF_INET for address in found}
        return [(family[address], socket.SOCK_STREAM, 6, "", (address, port or 0)) for address in found]


@contextlib.contextmanager
def host_names(addresses: dict[str, Sequence[str] | None]) -> Iterator[HostNames]:
    """Replace all names. A lookup that is under way at the end of the block ends soon, and nobody joins it later."""
    names = HostNames(addresses)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", names.found)
        lookups = Lookups()
        for user in (pool, resolver, guarded_network):
            patch.setattr(user, "LOOKUPS", lookups)
        patch.setattr(resolver, "MODELS_LOOKUPS", Lookups())
        try:
            yield names
        finally:
            names.go_on.set()
