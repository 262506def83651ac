"""What the tests of running gateways share: configuration as text, exchanges, metrics, measuring and waiting."""

import asyncio
import contextlib
import hashlib
import json
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from functional.through import HOSTS, PATIENT, get

from gateway.testing import processes
from gateway.testing.raw_connection import PATIENCE_S, Peer, Response, connect
from tests.support.forkserver import forked
from tests.support.gateway_process import GatewayProcess

Read = TypeVar("Read")


class Reachable(Protocol):
    """A gateway in this process, or one of its own."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


def config(upstream_url: str | None, *, upstream: Mapping[str, object] | None = None, **sections: object) -> str:
    """The text of a gateway.yaml (JSON is YAML); `upstream` is added to the entry of the one upstream."""
    entry = {"name": "up", "base_url": upstream_url, "timeouts": PATIENT, **(upstream or {})}
    upstreams = [] if upstream_url is None else [entry]
    return json.dumps({"upstreams": upstreams, "allowed_hosts": HOSTS, **sections})


async def ended(*arguments: str, timeout_s: float = PATIENCE_S) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `gateway ARGUMENTS`, which must end by itself."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await forked(arguments, stdout=out.fileno(), stderr=err.fileno())
        try:
            async with asyncio.timeout(timeout_s):
                code = await process.wait()
        except BaseException:
            process.send_signal(signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return code, out.read().decode(), err.read().decode()


def key(text: str, *scopes: str) -> dict[str, object]:
    """The entry of `keys` for this key; without scopes: passthrough."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"name": f"key-{digest[:6]}", "sha256": digest, "scopes": list(scopes or ("passthrough",))}


async def exchange(peer: Peer, message: bytes | None = None, *, timeout_s: float = PATIENCE_S) -> Response:
    """One request and its answer on an open connection."""
    await peer.send(message or get())
    return await peer.read_response(timeout_s=timeout_s)


async def fetch(gateway: Reachable, target: bytes = b"/v1/x", *lines: bytes, timeout_s: float = PATIENCE_S) -> Response:
    """One GET on a connection of its own; `lines` are header lines without their CRLF."""
    async with connect(gateway.host, gateway.port, keep_bytes=1 << 24) as peer:
        return await exchange(peer, get(target, *lines).replace(b"gw.example", b"localhost"), timeout_s=timeout_s)


def samples(page: bytes) -> dict[str, float]:
    """Name with labels, as they stand in an exposition, to value."""
    lines = (line.rpartition(" ") for line in page.decode().splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


async def scrape(gateway: Reachable) -> dict[str, float]:
    """The samples of /metrics."""
    page = await fetch(gateway, b"/metrics")
    assert page.status == 200, page
    return samples(page.payload)


def _pauses() -> Iterator[float]:
    """Seconds between looks: each a little longer, so that who waits long leaves the machine to what is waited for."""
    pause_s = 0.005
    while True:
        yield pause_s
        pause_s = min(1.05 * pause_s, 0.05)


async def until(reached: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
    """Returns as soon as `reached()` is true."""
    pauses = _pauses()
    async with asyncio.timeout(timeout_s):
        while not reached():
            await asyncio.sleep(next(pauses))


async def until_read(
    read: Callable[[], Awaitable[Read]], accepts: Callable[[Read], object] = bool, *, timeout_s: float = PATIENCE_S
) -> Read:
    """What `read()` returns, as soon as it is accepted."""
    pauses = _pauses()
    async with asyncio.timeout(timeout_s):
        while not accepts(found := await read()):
            await asyncio.sleep(next(pauses))
    return found


async def until_still(read: Callable[[], int], *, pause_s: float = 0.1, timeout_s: float = PATIENCE_S) -> int:
    """What `read()` returns, as soon as something has moved and nothing has within a pause.

    Nobody announces that bytes have stopped to move: here alone, the tests wait for time to pass.
    """
    before = 0
    async with asyncio.timeout(timeout_s):
        while not (now := read()) or now != before:
            before = now
            await asyncio.sleep(pause_s)
    return now


async def until_sample(gateway: Reachable, name: str, value: float, *, timeout_s: float = PATIENCE_S) -> None:
    """Returns as soon as /metrics has this value for this sample."""
    await until_read(lambda: scrape(gateway), lambda samples: samples.get(name, 0.0) == value, timeout_s=timeout_s)


async def until_refused(gateway: Reachable, *, timeout_s: float = PATIENCE_S) -> None:
    """Returns as soon as nobody accepts connections any more."""
    with contextlib.suppress(ConnectionRefusedError):
        async with asyncio.timeout(timeout_s):
            while True:
                with contextlib.suppress(ConnectionResetError):  # it was let in just before the door was shut
                    async with connect(gateway.host, gateway.port):
                        await asyncio.sleep(0.01)


async def in_parallel(jobs: Iterable[Awaitable[None]], *, at_once: int) -> None:
    """Runs the jobs, so many at a time."""
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            await job

    await asyncio.gather(*(worker() for _ in range(at_once)))


class Stopwatch:
    """Seconds since it was made: for what waits at least so long, and for figures that a quiet machine prints.

    An upper bound on them is no test: a machine that others use breaks it as well (`measuring` counts instead).
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()

    @property
    def s(self) -> float:
        return time.perf_counter() - self._began


async def all_workers(gateway: GatewayProcess) -> list[processes.Process]:
    """The worker processes of a gateway that has several, once all of them serve: one answers before the others do."""
    await until(lambda: "is ready" in gateway.read_stdout())
    return workers_of(gateway)


def workers_of(gateway: GatewayProcess) -> list[processes.Process]:
    """The worker processes that there are now."""
    leader = processes.find_living_process(gateway.pid)
    return [] if leader is None else sorted(processes.list_family(leader) - {leader}, key=lambda process: process.pid)


class Usage:
    """What a process takes from the system."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")

    @property
    def rss_bytes(self) -> int:
        """Memory in use now."""
        return self._status("VmRSS")

    @property
    def peak_bytes(self) -> int:
        """Most memory in use at once, since the start or `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        self._proc.joinpath("clear_refs").write_text("5", encoding="ascii")

    @property
    def open_files(self) -> int:
        return len(list(self._proc.joinpath("fd").iterdir()))

    def _status(self, name: str) -> int:
        lines = self._proc.joinpath("status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
