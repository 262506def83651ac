"""The addresses of names, looked up in separate threads, so that a silent name server delays no other names.

The event loop's `getaddrinfo` has four threads for all names, and a lookup whose caller has given up keeps its thread
until the system's resolver gives up, too. Here a name has at most one lookup under way, and all callers that want its
addresses wait for that one. Nothing is remembered: what follows is a new lookup.

The threads are daemons: a process that stops waits for none of them.
"""

import asyncio
import errno
import ipaddress
import socket
import threading
from collections import deque
from contextlib import suppress
from typing import Final, TypeAlias

#: So many names are looked up at once; further ones wait for one of these.
MOST: Final = 64
#: A thread without work ends after so many seconds: to start one takes longer than to look most names up.
IDLE_S: Final = 30.0

_Waiter: TypeAlias = "asyncio.Future[list[str]]"


class Lookups:
    """The lookups under way, of at most `most` names at once. It may be used on several event loops."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._threads = self._idle = 0
        self._waiters: dict[str, set[_Waiter]] = {}  # by the names that are looked up, or stand in line for it
        self._line = deque[str]()
        self._changed = threading.Condition()  # the lock of all these; one was put in line

    async def resolve_addresses(self, host: str) -> list[str]:
        """Return the addresses of a name, each once, in the order of the system's resolver. Raises OSError."""
        if is_address(host):
            return [host]
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        with self._changed:
            if host not in self._waiters:
                self._queue_lookup(host)
            waiters = self._waiters[host]
            waiters.add(waiter)
        try:
            return await waiter
        finally:
            with self._changed:
                waiters.discard(waiter)

    def _queue_lookup(self, host: str) -> None:
        """Put a name in line, with a thread for it if there may be one. Raises OSError."""
        if len(self._line) >= self._idle and self._threads < self._most:
            try:
                threading.Thread(target=self._resolve_queued, name="lookup", daemon=True).start()
            except RuntimeError:
                raise OSError(errno.EAGAIN, "the system allows no further thread") from None
            self._threads += 1
        self._waiters[host] = set()
        self._line.append(host)
        self._changed.notify()

    def _resolve_queued(self) -> None:
        """Look up the names in line, in a thread."""
        while True:
            with self._changed:
                self._idle += 1
                is_needed = self._changed.wait_for(lambda: self._line, IDLE_S)
                self._idle -= 1
                if not is_needed:
                    self._threads -= 1
                    return
                host = self._line.popleft()
            found = _resolve_host(host)
            with self._changed:
                waiters = tuple(self._waiters.pop(host))
            for waiter in waiters:
                with suppress(RuntimeError):  # its loop is closed
                    waiter.get_loop().call_soon_threadsafe(_settle_future, waiter, found)


def _resolve_host(host: str) -> list[str] | OSError:
    """Return the addresses of a name, or why there are none."""
    try:
        places = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except ValueError:
        return socket.gaierror(socket.EAI_NONAME, "it is no host name")
    return list(dict.fromkeys(str(place[0]) for *_, place in places))


def _settle_future(waiter: _Waiter, found: list[str] | OSError) -> None:
    if waiter.done():
        return  # it was cancelled
    if isinstance(found, OSError):
        waiter.set_exception(found)
    else:
        waiter.set_result(found)


def is_address(host: str) -> bool:
    """Return whether a host is written as an IP address, without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


#: The lookups of this process: its threads are what is bounded.
LOOKUPS: Final = Lookups()
