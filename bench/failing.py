"""One failing endpoint among four, as clients see it, beside nginx: `python -m bench.failing`.

The endpoints and the client are this process: 100 requests a second, at even distances, one system after the other.
A healthy endpoint answers within 20 ms. The fourth one is slow (2 s), answers 503, resets every connection in each
second half of four seconds, or dies in the middle of each answer. Failed: no 200, or an answer that was cut.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.grown import READY, Grown
from bench.systems import Running, System, build_nginx, free_port

RATE: Final = 100
HEALTHY_S, SLOW_S, FLAP_S = 0.02, 2.0, 2.0
BODY: Final = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 900}]}).encode()
REQUEST: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
HALF: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
)


class Endpoint:
    """One scripted endpoint. `fault` is None for a healthy one."""

    def __init__(self, fault: str | None) -> None:
        self.fault = fault
        self.requests = 0
        self.port = free_port()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"Content-Length:" in head:
                    await reader.readexactly(len(BODY))
                self.requests += 1
                if not await self._answer_one(writer):
                    break
        writer.transport.abort()

    async def _answer_one(self, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Return whether the connection goes on."""
        if self.fault == "flapping" and time.monotonic() % (2 * FLAP_S) >= FLAP_S:
            return False
        await asyncio.sleep(SLOW_S if self.fault == "slow" else HEALTHY_S)
        if self.fault == "dying":
            writer.write(HALF)
            await asyncio.sleep(HEALTHY_S)
            return False
        writer.write(BUSY if self.fault == "failing" else OK)
        return True


@dataclass
class Seen:
    """The answers that the clients of one run saw: times of good ones in milliseconds."""

    good_ms: list[float] = field(default_factory=list)
    failed: int = 0

    def build_row(self, endpoints: Sequence[Endpoint]) -> str:
        asked = len(self.good_ms) + self.failed
        cuts = statistics.quantiles(self.good_ms, n=100)
        sent = sum(endpoint.requests for endpoint in endpoints) / asked
        share = endpoints[-1].requests / asked
        return (
            f"{100 * self.failed / asked:8.2f} % {statistics.median(self.good_ms):8.1f} {cuts[98]:9.1f} {sent:8.2f}"
            f" {100 * share:8.1f} %"
        )


async def send_request(port: int, seen: Seen) -> None:
    """Send one request on a connection of its own."""
    began_s = time.perf_counter()
    try:
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
                if b" 200 " not in head.split(b"\r\n", 1)[0]:
                    raise ConnectionError("no 200")
                if b"chunked" in head:
                    await reader.readuntil(b"0\r\n\r\n")
                else:
                    await reader.readexactly(1000)
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        seen.failed += 1
    else:
        seen.good_ms.append((time.perf_counter() - began_s) * 1000)


async def drive(port: int, seconds: float) -> Seen:
    """Send requests at even distances."""
    seen, loop = Seen(), asyncio.get_running_loop()
    began_s, tasks = loop.time(), []
    for n in range(int(seconds * RATE)):
        await asyncio.sleep(max(began_s + n / RATE - loop.time(), 0))
        tasks.append(asyncio.create_task(send_request(port, seen)))
    await asyncio.gather(*tasks)
    return seen


def build_gateway(folder: Path, ports: Sequence[int], rules: Mapping[str, object]) -> Grown:
    """Return the gateway with these endpoints."""
    endpoints = [{"url": f"http://127.0.0.1:{port}/v1"} for port in ports]
    return Grown(folder, {"upstreams": [{"name": "up", "endpoints": endpoints, **rules}]})


def build_failover_nginx(folder: Path, ports: Sequence[int]) -> System | None:
    """Return nginx with these endpoints, told to send a failed POST to the next one."""
    folder.mkdir()
    system = build_nginx(folder, upstream_port=ports[0])
    if system is None:
        return None
    file = folder / "nginx" / "nginx.conf"
    servers = "".join(f"    server 127.0.0.1:{port} max_fails=5 fail_timeout=10s;\n" for port in ports)
    text = file.read_text().replace(f"    server 127.0.0.1:{ports[0]};\n", f"    least_conn;\n{servers}")
    again = "proxy_next_upstream error timeout http_502 http_503 http_504 non_idempotent;"
    file.write_text(text.replace("proxy_buffering off;", f"proxy_buffering off; {again}"))
    return system


async def measure_system(fault: str, run: Callable[[Sequence[int]], Awaitable[Seen]]) -> str:
    """Return the row of one system with one faulty endpoint among four."""
    async with AsyncExitStack() as stack:
        endpoints = [Endpoint(None), Endpoint(None), Endpoint(None), Endpoint(fault)]
        for endpoint in endpoints:
            server = await asyncio.start_server(endpoint.serve, "127.0.0.1", endpoint.port, backlog=1024)
            stack.callback(server.close)
        seen = await run([endpoint.port for endpoint in endpoints])
        return seen.build_row(endpoints)


async def compare(seconds: float, home: Path) -> None:
    """Print the table."""
    least: dict[str, object] = {"balance": "least_loaded"}
    rules = {"gateway": least, "gateway, hedge": {**least, "hedge": "200ms"}}
    print(f"{'':10} {'system':16} {'failed':>10} {'p50 ms':>8} {'p99 ms':>9} {'sent':>8} {'to it':>10}")
    for number, fault in enumerate(("slow", "failing", "flapping", "dying")):
        for name in ("nginx", *rules):
            folder = home / f"{number}-{name.replace(', ', '-')}"

            async def run(ports: Sequence[int], name: str = name, folder: Path = folder) -> Seen:
                if name != "nginx":
                    with build_gateway(folder, ports, rules[name]) as started:
                        return await drive(started.port, seconds)
                system = build_failover_nginx(folder, ports)
                if system is None:
                    raise SystemExit("nginx is not installed (apt-get install nginx-light): nothing to compare with")
                running = Running(system, folder=folder)
                try:
                    await asyncio.to_thread(running.await_ready, READY)
                    return await drive(system.port, seconds)
                finally:
                    running.stop()

            print(f"{fault:10} {name:16} {await measure_system(fault, run)}", flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.failing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run (default 20)")
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(compare(parser.parse_args().seconds, Path(home)))


if __name__ == "__main__":
    main()
