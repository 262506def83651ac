"""Listening sockets: one for each worker and address, all on one port (SO_REUSEPORT)."""

import contextlib
import ctypes
import errno
import socket
import struct
from dataclasses import dataclass

#: linux/socket.h; the socket module has no names for them.
_SO_ATTACH_REUSEPORT_CBPF, _SO_DETACH_REUSEPORT_BPF = 51, 68


class ListenError(Exception):
    """An error for an address that cannot be listened on. The text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class ListeningSockets:
    """One address: a socket for each worker, and the port that they share."""

    host: str
    port: int
    sockets: tuple[socket.socket, ...]

    @property
    def url(self) -> str:
        """Return the URL for a client on this machine."""
        host = choose_reachable_host(self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def listen(host: str, port: int, *, workers: int, join: bool) -> ListeningSockets:
    """Bind an address for `workers` processes. Raises ListenError.

    A second gateway could bind the port unnoticed and take half of the connections. So the port is probed first,
    unless `join` is true (a rolling restart).
    """
    with contextlib.ExitStack() as bound:
        try:
            sockets = _bind(host, port, workers=workers, join=join, bound=bound)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host}:{port}: {error.strerror or error}.{_find_advice(error)}"
            ) from None
        bound.pop_all()
    return ListeningSockets(host, sockets[0].getsockname()[1], tuple(sockets))


def _bind(host: str, port: int, *, workers: int, join: bool, bound: contextlib.ExitStack) -> list[socket.socket]:
    """Return a bound socket for each worker. On failure, `bound` closes the sockets made so far."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name such as localhost may have addresses of both families; clients try IPv4 in any case.
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    if port and not join:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    sockets: list[socket.socket] = []
    for _ in range(workers):
        sock = bound.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sockets.append(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setblocking(False)
        sock.bind((address[0], port, *address[2:]))
        port = sock.getsockname()[1]
    return sockets


def _find_advice(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return " Stop what runs there, choose another with --port, or join it with --reuse-port for a rolling restart."
    return ""


def choose_reachable_host(host: str) -> str:
    """Return a host that a client can connect to: loopback for a wildcard, else `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def steer_to_successor(sock: socket.socket, *, ours: int) -> None:
    """Steer new connections to the first gateway that joined the port after this one, so that this one can end.

    The kernel runs a classic BPF program to choose which of the port's sockets takes a connection. It numbers the
    sockets in the order in which they began to listen. `ours` of them belong to this gateway and come first, so the
    program is "return ours". Without such a socket, the kernel chooses as before.
    """
    code = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, ours))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, struct.pack("HP", 1, ctypes.addressof(code)))


def stop_steering(sock: socket.socket) -> None:
    """Let the kernel spread connections over all sockets of the port again. Without steering, do nothing."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_REUSEPORT_BPF, 0)
