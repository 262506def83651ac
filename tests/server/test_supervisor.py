"""Several workers look like one gateway: for clients, for metrics, for signals, and when one of them dies."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from functional.through import get
from gateways import all_workers, config, exchange, fetch, key, scrape, until, until_refused, workers_of

from gateway.testing import processes
from gateway.testing.raw_connection import PEER_LEFT, Peer, connect
from gateway.testing.scripts import LAST_CHUNK, build_chunk, build_head, build_ok_answer
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

STREAM_HEAD = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
ANSWERED = 'gateway_http_requests_total{code="200",method="GET",mode="passthrough",route="/v1/"}'


class Streams:
    """An upstream whose streams begin at once and end when `finish` is set."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.read_request(timeout_s=None)
            if request.target.endswith(b"/stream"):
                await peer.send(STREAM_HEAD + build_chunk(b"begun"))
                await self.finish.wait()
                await peer.send(build_chunk(b"done") + LAST_CHUNK)
            else:
                await peer.send(build_ok_answer())


async def begin_stream(client: Peer) -> None:
    await client.send(get(b"/v1/stream"))
    await client.read_until(b"begun\r\n")


async def end_stream(client: Peer) -> None:
    await client.read_until(LAST_CHUNK)


async def test_metrics_of_every_worker_sum_the_counts_of_all() -> None:
    """Counters are sums, scraped again and again; each request is counted once."""
    async with FakeUpstream() as upstream, GatewayProcess(config(upstream.base_url, workers=2)) as gateway:
        await all_workers(gateway)
        for _ in range(30):
            assert (await fetch(gateway)).status == 200
        pages = [await scrape(gateway) for _ in range(10)]
    assert {page[ANSWERED] for page in pages} == {30}
    assert {page["gateway_client_connections"] for page in pages} == {1}
    assert {page['gateway_upstream_requests_total{outcome="ok",upstream="up"}'] for page in pages} == {30}
    assert all(list(page).count(ANSWERED) == 1 for page in pages)
    assert len(upstream.connections) == 2, "both workers answered"


async def test_counts_of_a_killed_worker_survive_under_load() -> None:
    """No count runs backwards while it dies and comes back, and at the end hardly one of them lacks."""
    answered, asked, counts = 0, 4000, 0.0
    async with FakeUpstream() as upstream, GatewayProcess(config(upstream.base_url, workers=2)) as gateway:
        killed, _ = await all_workers(gateway)

        async def ask() -> None:
            nonlocal answered
            while answered < asked:
                with suppress(*PEER_LEFT):
                    async with connect(gateway.host, gateway.port) as client:
                        while answered < asked:
                            answer = await exchange(client)
                            answered += answer.status == 200

        async def look() -> None:
            nonlocal counts
            before: dict[str, float] = {}
            while answered < asked:
                with suppress(*PEER_LEFT):  # it was the killed worker that it asked
                    after = await scrape(gateway)
                    assert not {name for name in before if _is_count(name) and after[name] < before[name]}
                    before = after
            counts = (await scrape(gateway))[ANSWERED]

        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(ask())
            tasks.create_task(look())
            await until(lambda: answered > asked / 3)
            os.kill(killed.pid, signal.SIGKILL)
            await until(lambda: killed not in workers_of(gateway))
    print(f"\nanswered {answered}, counted {counts:.0f}")
    # What it counted in its last 0.05 s is lost, and here that is a part of a few seconds.
    assert 0.98 * answered <= counts <= answered + 8


def _is_count(name: str) -> bool:
    return name.partition("{")[0].endswith(("_total", "_bucket", "_count", "_sum"))


async def test_killed_worker_is_restarted_without_refusing_clients() -> None:
    """No client is refused: connections wait for it. The other worker's streams go on, its own are cut."""
    streams = Streams()
    async with (
        FakeUpstream(streams) as upstream,
        GatewayProcess(config(upstream.base_url, workers=2, logging={"format": "json"})) as gateway,
        AsyncExitStack() as stack,
    ):
        first, second = await all_workers(gateway)
        clients = [await stack.enter_async_context(connect(gateway.host, gateway.port)) for _ in range(16)]
        await asyncio.gather(*(begin_stream(client) for client in clients))
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: first not in workers_of(gateway))
        answers = await asyncio.gather(*(fetch(gateway) for _ in range(20)))
        assert {answer.status for answer in answers} == {200}
        await until(lambda: len(workers_of(gateway)) == 2)
        assert second in workers_of(gateway)
        streams.finish.set()
        ends = await asyncio.gather(*(end_stream(client) for client in clients), return_exceptions=True)
        assert 0 < ends.count(None) < len(ends)
        (record,) = (json.loads(line) for line in gateway.read_stderr().splitlines() if "unexpectedly" in line)
        assert record["level"] == "error" and "signal 9" in record["event"]


async def test_restarted_worker_uses_the_reloaded_configuration() -> None:
    """A key that was revoked does not open again because a process died."""
    revoked, kept = b"X-Gateway-Key: revoked", b"X-Gateway-Key: kept"
    async with FakeUpstream() as upstream:
        both = config(upstream.base_url, workers=2, keys=[key("revoked"), key("kept")])
        async with GatewayProcess(both) as gateway:
            assert (await fetch(gateway, b"/v1/x", revoked)).status == 200
            one = config(upstream.base_url, workers=2, keys=[key("kept")])
            gateway.folder.joinpath("gateway.yaml").write_text(one)
            gateway.signal(signal.SIGHUP)
            await until(lambda: gateway.read_stderr().count("configuration reloaded") == 2)
            for worker in await all_workers(gateway):
                os.kill(worker.pid, signal.SIGKILL)
            assert {(await fetch(gateway, b"/v1/x", revoked)).status for _ in range(10)} == {401}
            assert {(await fetch(gateway, b"/v1/x", kept)).status for _ in range(10)} == {200}


async def test_restarted_worker_serves_on_the_original_admin_address() -> None:
    """`admin.listen` needs a restart of the gateway; that a worker died is none."""
    async with FakeUpstream() as upstream, GatewayProcess(config(upstream.base_url, workers=2)) as gateway:
        await all_workers(gateway)
        moved = config(upstream.base_url, workers=2, admin={"listen": "127.0.0.1:1"})
        gateway.folder.joinpath("gateway.yaml").write_text(moved)
        gateway.signal(signal.SIGHUP)
        await until(lambda: gateway.read_stderr().count("configuration reloaded") == 2)
        for worker in await all_workers(gateway):
            os.kill(worker.pid, signal.SIGKILL)
        assert {(await fetch(gateway, b"/health/ready")).status for _ in range(10)} == {200}


async def test_reload_during_a_worker_restart_reaches_every_worker() -> None:
    """SIGHUP is never a death, however early it comes; afterwards every worker has the new configuration."""
    async with FakeUpstream() as upstream, GatewayProcess(config(upstream.base_url, workers=2)) as gateway:
        first, _ = await all_workers(gateway)
        gateway.folder.joinpath("gateway.yaml").write_text(config(upstream.base_url, workers=2, keys=[key("new")]))
        os.kill(first.pid, signal.SIGKILL)
        for _ in range(50):  # about 1.5 s, during which the worker is started
            gateway.signal(signal.SIGHUP)
            await asyncio.sleep(0.03)  # the moments of the signals are the case: some come before it has a handler
        await until(lambda: len(workers_of(gateway)) == 2)
        assert gateway.read_stderr().count("unexpectedly") == 1
        if {(await fetch(gateway)).status for _ in range(10)} != {401}:
            # A vote that is open while a worker starts is refused, by all and in the log. The next one counts.
            assert "not every worker could use it" in gateway.read_stderr()
            gateway.signal(signal.SIGHUP)
            await until(lambda: gateway.read_stderr().count("configuration reloaded") == 2)
        assert {(await fetch(gateway)).status for _ in range(10)} == {401}
        assert {(await fetch(gateway, b"/v1/x", b"X-Gateway-Key: new")).status for _ in range(10)} == {200}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_worker_outlives_its_parent(number: signal.Signals) -> None:
    """Whatever ends it."""
    async with FakeUpstream() as upstream, GatewayProcess(config(upstream.base_url, workers=2)) as gateway:
        workers = set(await all_workers(gateway))
        assert len(workers) == 2
        gateway.signal(number)
        await until(lambda: not processes.list_living(workers))
        assert await gateway.wait() == (0 if number == signal.SIGTERM else -number)


@pytest.mark.parametrize("how", ["terminate", "ctrl-c"])
async def test_streams_finish_before_the_workers_end(how: str) -> None:
    """SIGTERM to the parent, or Ctrl-C in its terminal, which reaches every process: new clients are refused."""
    streams = Streams()
    async with (
        FakeUpstream(streams) as upstream,
        GatewayProcess(config(upstream.base_url, workers=2)) as gateway,
        connect(gateway.host, gateway.port) as one,
        connect(gateway.host, gateway.port) as other,
    ):
        for client in (one, other):
            await begin_stream(client)
        if how == "terminate":
            gateway.signal(signal.SIGTERM)
        else:
            os.killpg(gateway.pid, signal.SIGINT)
        await until_refused(gateway)
        streams.finish.set()
        await asyncio.gather(end_stream(one), end_stream(other))
        assert await gateway.wait() == 0


async def test_streams_are_cut_at_the_drain_limit_or_second_signal() -> None:
    """Exit code 0 either way, and the cut is an RST, never an end."""
    for drain_s, signals in ((0.3, 1), (600, 2)):
        async with (
            FakeUpstream(Streams()) as upstream,
            GatewayProcess(config(upstream.base_url, workers=2, limits={"drain": drain_s})) as gateway,
            connect(gateway.host, gateway.port) as client,
        ):
            await begin_stream(client)
            for _ in range(signals):
                gateway.signal(signal.SIGTERM)
                await until(lambda gateway=gateway: "draining" in gateway.read_stderr())
            assert await gateway.wait() == 0
            assert await client.wait_end() == "reset"


# Deaths and signals at any moment of a start.


@asynccontextmanager
async def starting(text: str) -> AsyncIterator[GatewayProcess]:
    """A gateway with two workers, from the moment when it has them both; it need not get ready."""
    gateway = GatewayProcess(text)
    entering = asyncio.create_task(gateway.__aenter__())
    try:
        await until(lambda: begun(gateway) and len(workers_of(gateway)) == 2)
        yield gateway
        await entering
    except BaseException:
        entering.cancel()
        raise
    finally:
        await asyncio.wait({entering})
        await gateway.__aexit__(None, None, None)


def begun(gateway: GatewayProcess) -> bool:
    try:
        return processes.find_living_process(gateway.pid) is not None
    except RuntimeError:
        return False


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("later_s", [0.0, 0.2, 0.4, 0.6])
async def test_worker_killed_during_startup_is_restarted(which: int, later_s: float) -> None:
    """Whatever the other one does: the gateway gets ready, both serve, and it ends when it is told to."""
    async with FakeUpstream() as upstream:
        async with starting(config(upstream.base_url, workers=2)) as gateway:
            await asyncio.sleep(later_s)  # the moment is the case
            os.kill(workers_of(gateway)[which].pid, signal.SIGKILL)
            await all_workers(gateway)
            await until(lambda: len(workers_of(gateway)) == 2)
            assert {(await fetch(gateway)).status for _ in range(20)} == {200}
        assert gateway.returncode == 0
        assert gateway.read_stdout().count("is ready") == 1 and gateway.read_stderr().count("unexpectedly") == 1


async def test_worker_hanging_during_startup_does_not_block_signals() -> None:
    """One is frozen: SIGTERM ends the gateway all the same, a second one at once, and nobody is left."""
    async with FakeUpstream() as upstream, AsyncExitStack() as stack:
        gateway = GatewayProcess(config(upstream.base_url, workers=2, limits={"drain": "30s"}))
        entering = asyncio.create_task(stack.enter_async_context(gateway))
        await until(lambda: begun(gateway) and len(workers_of(gateway)) == 2)
        frozen = workers_of(gateway)[1]
        os.kill(frozen.pid, signal.SIGSTOP)
        ended = asyncio.create_task(gateway.wait())
        while not ended.done():
            with suppress(ProcessLookupError):  # it ended, and its exit was not collected yet
                gateway.signal(signal.SIGTERM)
            await asyncio.wait({ended}, timeout=0.2)
        assert await ended == 0
        assert not processes.list_living({frozen})
        with suppress(RuntimeError):  # the other one may have been ready by then
            await entering


async def test_reload_during_worker_start_reaches_all_workers_without_a_crash() -> None:
    """Each of them has the new configuration then."""
    async with FakeUpstream() as upstream, starting(config(upstream.base_url, workers=2)) as gateway:
        gateway.folder.joinpath("gateway.yaml").write_text(config(upstream.base_url, workers=2, keys=[key("new")]))
        gateway.signal(signal.SIGHUP)
        await all_workers(gateway)
        await until(lambda: gateway.read_stderr().count("configuration reloaded") == 2)
        assert {(await fetch(gateway)).status for _ in range(10)} == {401}
        assert "unexpectedly" not in gateway.read_stderr()
