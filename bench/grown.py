"""A gateway that has grown, seen from outside: its cost, the longest hold of its event loop, and its clients."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench import kernel
from bench.model import ROUNDS
from bench.systems import READY_WITHIN_S, REPOSITORY, Running, System, free_port

Json = dict[str, Any]

READY: Final = b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
#: The longest that one step of a request may hold the event loop.
HOLD_BAR_MS: Final = 50.0


class Cost:
    """The CPU time and the longest hold between two moments; filled in at the second one."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.held_ms = 0.0

    def __repr__(self) -> str:
        return f"<Cost {self.cpu_s:.3f} s, held {self.held_ms:.1f} ms>"

    @property
    def held(self) -> str:
        """Return the longest hold as a cell of the table."""
        return f"{self.held_ms:.0f} ms" + (" MISS" if self.held_ms > HOLD_BAR_MS else "")


class Grown:
    """This checkout's gateway in `folder`, with a store in a file unless `config` says otherwise.

    `core`: it runs on this one only. `under`: the command of a tool that runs it, so that it needs `ready_s` to start.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, object],
        *,
        workers: int = 1,
        core: int | None = None,
        under: Sequence[str] = (),
        ready_s: float = READY_WITHIN_S,
    ) -> None:
        self.folder = folder
        self._core = core
        self._ready_s = ready_s
        self.store = folder / "gateway.db"
        folder.mkdir(exist_ok=True)
        logging = {"logging": {"access": False, "level": "warning"}}
        file = folder / "gateway.yaml"
        file.write_text(json.dumps({"store": f"sqlite:///{self.store}", **logging, **config}))  # JSON is YAML
        self.port = free_port()
        listen = ("--listen", f"127.0.0.1:{self.port}", "--workers", str(workers))
        command = (*under, sys.executable, "-m", "gateway", "run", "-c", str(file), *listen)
        self._system = System("gateway", command, self.port)
        self._running: Running | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._running is not None:
            self._running.stop()

    def start(self) -> float:
        """Start the gateway, and return the seconds until it was ready."""
        self._running = Running(self._system, core=self._core, folder=self.folder)
        return self._running.await_ready(READY, within_s=self._ready_s)

    def kill(self) -> None:
        """Kill the gateway (SIGKILL): it cannot finish anything."""
        self.running.kill()

    def read_memory_mb(self) -> float:
        return kernel.read_memory_mb(self.running.processes)

    def read_cpu_s(self) -> float:
        """Return the CPU time of all its processes since the start, in seconds."""
        return kernel.read_cpu_s(self.running.processes)

    @contextmanager
    def measured(self) -> Iterator[Cost]:
        """Measure the CPU time of all its processes, and the longest hold of one worker's event loop."""
        cost, processes = Cost(), self.running.processes
        command = (sys.executable, "-m", "bench.probe", str(self.port), str(processes[0]))
        probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        try:
            assert probe.stdout is not None
            probe.stdout.readline()
            before_s = kernel.read_cpu_s(processes)
            yield cost
            cost.cpu_s = kernel.read_cpu_s(processes) - before_s
            cost.held_ms = json.loads(probe.communicate(timeout=60)[0])["held_ms"]
        finally:
            probe.kill()
            probe.wait()

    @contextmanager
    def counted(self) -> Iterator[Cost]:
        """Measure the CPU time of all its processes, without a probe: its requests would be a part of the figure."""
        cost, processes = Cost(), self.running.processes
        before_s = kernel.read_cpu_s(processes)
        yield cost
        cost.cpu_s = kernel.read_cpu_s(processes) - before_s

    @property
    def running(self) -> Running:
        """Return the started gateway as the load client knows it."""
        assert self._running is not None, "not started"
        return self._running


class Client:
    """One persistent connection; answers have a Content-Length."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def read_answer(self, *, status: int = 200) -> bytes:
        """Return the body of the next answer."""
        head = self._read_until(b"\r\n\r\n")
        if int(head.split(b" ", 2)[1]) != status:
            raise SystemExit(f"bench: expected {status}: {head.decode('latin-1')}{self._rest.decode('latin-1')}")
        if b"content-length:" not in head.lower():
            return b""
        return self._read_exactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]))

    def read_pieces(self) -> Iterator[bytes]:
        """Yield the pieces of the next answer as they arrive; one that is streamed comes with its frames."""
        head = self._read_until(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise SystemExit(f"bench: expected 200: {head.decode('latin-1')}{self._rest.decode('latin-1')}")
        if b"content-length:" in head.lower():
            yield self._read_exactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
            return
        tail = b""
        while tail != LAST_CHUNK:
            if not self._rest:
                self._read()
            piece, self._rest = self._rest, b""
            tail = (tail + piece)[-len(LAST_CHUNK) :]
            yield piece

    def ask(self, request: bytes, *, status: int = 200) -> bytes:
        self.send(request)
        return self.read_answer(status=status)

    def _read_until(self, end: bytes) -> bytes:
        while end not in self._rest:
            self._read()
        found, _, self._rest = self._rest.partition(end)
        return found + end

    def _read_exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._read()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _read(self) -> None:
        if not (data := self.socket.recv(1 << 18)):
            raise SystemExit(f"bench: the gateway closed a connection behind {self._rest[-200:]!r}")
        self._rest += data


def get(target: str, headers: Mapping[str, str] | None = None) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode()


def post(target: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> bytes:
    text = json.dumps(body).encode()
    facts = {"Host": "localhost", "Content-Type": "application/json", **(headers or {}), "Content-Length": len(text)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in facts.items())
    return f"POST {target} HTTP/1.1\r\n{lines}\r\n".encode() + text


def build_chat(words: str) -> Json:
    return {"model": "bench", "messages": [{"role": "user", "content": words}]}


def send_in_turn(port: int, requests: Sequence[bytes], *, connections: int) -> None:
    """Send the requests on so many connections at once, and read the answers."""
    clients = [Client(port) for _ in range(connections)]
    for at in range(0, len(requests), connections):
        group = requests[at : at + connections]
        for client, request in zip(clients, group, strict=False):
            client.send(request)
        for client, _ in zip(clients, group, strict=False):
            client.read_answer()
    for client in clients:
        client.socket.close()


def build_turns(count: int, number: int) -> list[Json]:
    """Return so many messages of 1 KB, with texts of this number; the last one asks."""
    texts = [f"{number} {at} lorem ipsum dolor sit amet " * 30 for at in range(count - 1)]
    said: list[Json] = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
    return [*said, {"role": "user", "content": f"{ROUNDS}0 {number}"}]


def print_one_by_one(gateway: Grown, requests: Sequence[bytes], *, what: str, size: str) -> None:
    """Print the row of requests that are sent one after the other. The first one only warms up."""
    first, *rest = requests
    with Client(gateway.port) as client:
        client.ask(first)
        with gateway.counted() as cost:
            for request in rest:
                client.ask(request)
        with gateway.measured() as held:
            for request in rest:
                client.ask(request)
    print_row(what, size, f"{cost.cpu_s / len(rest) * 1e3:.1f} ms of CPU", held.held)


def print_row(what: str, size: str, cost: str, held: str = "") -> None:
    """Print a row of the table."""
    print(f"| {what} | {size} | {cost} | {held} |", flush=True)
