"""Loopback ports on which nothing answers, in the ways in which an upstream can fail to answer a connect."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """Yield a port that refuses connections and that no other process can take meanwhile: bound, not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def silent_port(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Yield a port (0: any) on which a connect hangs (Linux): its accept queue is full, so further SYNs are dropped."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        # A backlog of 0 holds one connection; the second one makes sure, and stays in SYN_SENT.
        for _ in range(2):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
