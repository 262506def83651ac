"""Names that lead where a test wants, or whose name server is silent, in place of those of the system's resolver."""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from gateway.upstream.lookups import LOOKUPS
from gateway.upstream.resolver import MODELS_LOOKUPS


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
    """Replace all names. The lookups under way end with the block: one that asks later would join them."""
    names = HostNames(addresses)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", names.found)
        try:
            yield names
        finally:
            names.go_on.set()
            _wait_for_none_under_way()


def _wait_for_none_under_way(timeout_s: float = 10.0) -> None:
    ends = time.monotonic() + timeout_s
    while LOOKUPS._waiters or MODELS_LOOKUPS._waiters:
        assert time.monotonic() < ends, "a lookup does not end"
        time.sleep(0.001)
