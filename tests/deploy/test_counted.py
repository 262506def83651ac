"""Requests are counted, each once: through a proxy that closes first, and where a worker is killed."""

import asyncio
import itertools
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from gateways import all_workers, scrape, until, until_read, workers_of

from gateway.testing.ports import free_port
from gateway.testing.raw_connection import connect
from tests.support.gateway_process import GatewayProcess

from .prometheus import Prometheus, scraping

LANES = {"passthrough": "/v1/chat/completions", "context": "/context/v1/chat/completions"}
EACH = 100
ACCESS = "logging: {access: true, format: json}\n"


def body(*, stream: bool) -> bytes:
    return json.dumps(
        {"model": "demo", "stream": stream, "messages": [{"role": "user", "content": "Say hello"}]}
    ).encode()


async def counted(gateway: GatewayProcess) -> Counter[str]:
    """How many chats were counted, by lane."""
    found = Counter[str]()
    for name, value in (await scrape(gateway)).items():
        if name.startswith("gateway_http_requests_total{") and 'method="POST"' in name:
            found[next(lane for lane in LANES if f'mode="{lane}"' in name)] += int(value)
    return found


def logged(gateway: GatewayProcess) -> Counter[str]:
    """How many chats have a line in the access log, by path."""
    lines = (json.loads(line) for line in gateway.read_stderr().splitlines() if line.startswith("{"))
    return Counter(line["path"] for line in lines if line.get("method") == "POST")


@asynccontextmanager
async def nginx(program: str, gateway: GatewayProcess) -> AsyncIterator[int]:
    """An nginx in front as its documentation has one: it closes its connection behind each answer. Yields its port."""
    port, folder = free_port(), gateway.folder / "nginx"
    folder.mkdir()
    config = folder / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"""daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}
        http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port};
        location / {{ proxy_pass http://{gateway.host}:{gateway.port}; proxy_buffering off; }} }} }}"""
    )
    process = await asyncio.create_subprocess_exec(
        program,
        "-c",
        str(config),
        "-p",
        str(folder),
        "-e",
        str(folder / "error.log"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until(lambda: (folder / "pid").exists())
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def ask_once(port: int, path: str, *, stream: bool) -> None:
    """One request on a connection of its own, which its client closes right behind the answer."""
    content = body(stream=stream)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    )
    async with connect("127.0.0.1", port, keep_bytes=1 << 20) as client:
        await client.send(f"{head}\r\n\r\n".encode() + content)
        assert (await client.read_response()).status == 200


async def test_each_request_through_a_proxy_is_counted_and_logged() -> None:
    """In both lanes, streamed or not; where there is no nginx the clients close as it does."""
    program = shutil.which("nginx")
    async with GatewayProcess(ACCESS) as gateway:
        async with nginx(program, gateway) if program else asking_directly(gateway) as port:
            for path in LANES.values():
                for begin in range(0, EACH, 10):
                    await asyncio.gather(*(ask_once(port, path, stream=bool(n % 2)) for n in range(begin, begin + 10)))
        expected = dict.fromkeys(LANES, EACH)
        await until_read(lambda: counted(gateway), lambda found: found == expected)
        await until(lambda: logged(gateway) == dict.fromkeys(LANES.values(), EACH))


@asynccontextmanager
async def asking_directly(gateway: GatewayProcess) -> AsyncIterator[int]:
    yield gateway.port


@pytest.mark.soak
async def test_prometheus_increase_matches_answered_requests_despite_worker_kills() -> None:
    """`increase()` of a real Prometheus (Debian: apt-get install prometheus), while `kill -9` meets three workers."""
    program = shutil.which("prometheus")
    assert program is not None, "no prometheus here: apt-get install prometheus"
    answered, broken, wanted = Counter[str](), 0, 4000

    async def client(session: aiohttp.ClientSession, numbers: "itertools.count[int]") -> None:
        nonlocal broken
        while next(numbers) < wanted:
            for lane, path in LANES.items():
                try:
                    async with session.post(path, data=body(stream=False), headers=headers) as response:
                        await response.read()
                        answered[lane] += response.status == 200
                except aiohttp.ClientError:
                    broken += 1

    headers = {"Content-Type": "application/json"}
    async with GatewayProcess("workers: 2\n") as gateway, scraping(program, gateway) as prometheus:
        await all_workers(gateway)
        url = f"http://{gateway.host}:{gateway.port}"
        async with aiohttp.ClientSession(url) as session, asyncio.timeout(300):
            numbers = itertools.count(wanted - 1)
            await client(session, numbers)  # the series are there before the load is
            before = Counter(answered)
            await until_read(lambda: prometheus.value("gateway_http_requests_total"))
            await scraped(prometheus, 4.0)
            numbers = itertools.count()
            clients = [asyncio.create_task(client(session, numbers)) for _ in range(16)]
            for quarter in (1, 2, 3):
                enough = quarter * wanted // 2
                await until(lambda n=enough: sum(answered.values()) >= n or all(task.done() for task in clients))
                victim = workers_of(gateway)[0]
                os.kill(victim.pid, signal.SIGKILL)
                await until(lambda victim=victim: victim not in workers_of(gateway) and len(workers_of(gateway)) == 2)
            await asyncio.gather(*clients)
            await scraped(prometheus, 4.0)
            total = await counted(gateway)
            window = int((await prometheus.value("time() - min_over_time(timestamp(up)[1h:250ms])"))[""])
            for lane in LANES:
                query = f'sum(increase(gateway_http_requests_total{{mode="{lane}",method="POST"}}[{window}s]))'
                increase, truth = (await prometheus.value(query))[""], answered[lane] - before[lane]
                print(f"{lane}: {truth} answered, {total[lane]} counted, increase {increase:.1f} in {window} s")
                assert abs(increase - truth) <= 0.01 * truth + 1
            print(f"{broken} requests were cut by three kills")


async def scraped(prometheus: Prometheus, seconds: float) -> None:
    """Returns once a further so many seconds of scrapes are there."""
    begun = (await prometheus.value("vector(time())"))[""]
    await until_read(lambda: prometheus.value("timestamp(up)"), lambda found: found.get("", 0.0) >= begun + seconds)
