"""Malformed requests without end change nothing in a gateway (`make soak` prints the figures)."""

import contextlib
import os
import random
import re

import pytest
from functional.through import get, post
from gateways import Usage, config, exchange, fetch, in_parallel, scrape, until_sample

from gateway.lanes.passthrough.plan_cache import PLAN_BYTES, PLANS_BYTES
from gateway.testing.raw_connection import PEER_LEFT, connect
from gateway.testing.scripts import build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.soak

#: How many malformed requests are tried; the goal says 1,000,000, which TWOLANE_FUZZ=10 makes of it.
FUZZ_INPUTS = int(100_000 * float(os.environ.get("TWOLANE_FUZZ", "1")))
HEADS = [
    get(b"/v1/models", b"Authorization: Bearer sk-x", b"Accept: */*"),
    post(b'{"model":"m"}', b"/v1/chat/completions", b"Content-Type: application/json"),
    get(b"/v1/x", b"Transfer-Encoding: chunked", method=b"POST") + b"3\r\nabc\r\n0\r\n\r\n",
    get(b"/v1/realtime", b"Upgrade: websocket", b"Connection: Upgrade"),
    get(b"/health/ready"),
    get(b"/metrics", method=b"HEAD"),
    post(b"{}", b"/chat/completions", b"X-Context-Mode: passthrough", b"Expect: 100-continue"),
]
LINES = (
    b"Content-Length: 5",
    b"Content-Length: -1",
    b"content-length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"transfer-encoding:\tchunked",
    b"Host: a",
    b"Connection: close, host",
    b"Expect: x",
    b"X-Context-Mode: context",
    b"Upgrade: h2c",
    b"CONNECT a:1 HTTP/1.1",
    b"0\r\n",
    b"ffffffffffffffff",
)
SPICE = [
    *(line + b"\r\n" for line in LINES),
    *(bytes((byte,)) for byte in b'\r\n\0: \t\xff\x80%,;"\x7f'),
    *(b"..", b"//", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1", b"GET ", b"http://[::1", b"\r\n\r\n"),
    *(b"a" * 300, b"X: y\r\n" * 300),
]


def mutated(rng: random.Random) -> bytes:
    """A request with a few things wrong with it."""
    data = bytearray(rng.choice(HEADS))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data[at:at] = rng.choice(SPICE)
            case 1 if data:
                data[at % len(data)] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randrange(1, 20)]
            case 3:
                data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randrange(1, 60)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(1, 8))
            case _:
                del data[at:]
    return bytes(data)


async def plans_filled(gateway: GatewayProcess) -> None:
    """Sends so many heads of different clients that the gateway forgets plans for those that come."""

    async def clients(first: int) -> None:
        async with connect(gateway.host, gateway.port) as peer:
            for number in range(first, first + 500):
                await exchange(peer, get(b"/v1/x", b"X-Client: %d" % number))

    await in_parallel(map(clients, range(0, PLANS_BYTES // PLAN_BYTES, 500)), at_once=20)


async def test_malformed_requests_cause_no_500_and_no_memory_growth() -> None:
    """100,000 of them, TWOLANE_FUZZ times: no death, no 500 of ours, memory as it was."""
    rng = random.Random(20)
    statuses: dict[bytes, int] = {}
    limits = {"head_timeout": "500ms", "body_idle": "500ms"}

    async def one(data: bytes) -> None:
        with contextlib.suppress(*PEER_LEFT):
            async with connect(gateway.host, gateway.port) as client:
                await client.send(data + b"\r\n\r\n")
                with contextlib.suppress(TimeoutError):
                    await client.read_some(timeout_s=0.02)
                for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", client.received):
                    statuses[status] = statuses.get(status, 0) + 1

    async with (
        FakeUpstream(serve(build_ok_answer()), keep_bytes=0) as upstream,
        GatewayProcess(config(upstream.base_url, limits=limits)) as gateway,
    ):
        usage = Usage(gateway.pid)
        await plans_filled(gateway)
        await in_parallel((one(mutated(rng)) for _ in range(20_000)), at_once=50)
        before, files = usage.rss_bytes, usage.open_files
        await in_parallel((one(mutated(rng)) for _ in range(FUZZ_INPUTS)), at_once=50)
        await until_sample(gateway, "gateway_client_connections", 1, timeout_s=20)
        grown = usage.rss_bytes - before
        told = ", ".join(f"{status.decode()}: {count}" for status, count in sorted(statuses.items()))
        print(f"\n{FUZZ_INPUTS} malformed requests: {grown / 1e6:+.2f} MB, answers {told}")
        assert gateway.returncode is None and (await fetch(gateway)).status == 200
        assert usage.open_files <= files + 2
        assert not [name for name in await scrape(gateway) if 'code="500"' in name]
        assert "Traceback" not in gateway.read_stderr() and '"error"' not in gateway.read_stderr()
    assert b"500" not in statuses
    assert grown <= 0.05 * before
