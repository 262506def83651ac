"""A gateway that starts while its database is away waits for it, and lives meanwhile."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from gateways import config, ended, until, until_read

from gateway.testing.ports import free_port
from tests.postgres import PostgresServer, started_server
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with started_server() as server:
        yield server


async def ask(gateway: GatewayProcess, path: str, *, method: str = "GET") -> tuple[int, object]:
    """Return the status and the body of an answer; status 0 where nothing accepts connections."""
    try:
        async with aiohttp.request(method, gateway.base_url + path, json={}) as response:
            return response.status, await response.json()
    except aiohttp.ClientConnectionError:
        return 0, None


@pytest.mark.parametrize("workers", [1, 2])
async def test_start_waits_for_the_database(server: PostgresServer, workers: int) -> None:
    """Alive and not ready, with lines in its log, until the database is there; then it serves."""
    server.kill()
    gateway = GatewayProcess(config(None, store=f"postgresql://owner@{server.place}", workers=workers))
    starting = asyncio.create_task(gateway.__aenter__())
    try:
        await until_read(lambda: ask(gateway, "/health/live"), lambda answer: answer == (200, {"status": "ok"}))
        assert await ask(gateway, "/health/ready") == (503, {"status": "starting"})
        status, refused = await ask(gateway, "/v1/chat/completions", method="POST")
        assert status == 503 and refused["error"]["code"] == "gateway_starting"  # type: ignore[index]
        assert not starting.done()
    finally:
        server.start()
        await starting
    await until(gateway.read_stdout)  # of the last worker that is ready
    assert await ask(gateway, "/health/ready") == (200, {"status": "ready"})
    assert (await ask(gateway, "/context/runs"))[0] == 200
    await gateway.__aexit__(None, None, None)
    log = gateway.read_stderr()
    assert "the start waits for it up to 300 s" in log and "the store is open" in log


@pytest.mark.parametrize("workers", [1, 2])
async def test_signal_ends_a_start_that_waits(workers: int) -> None:
    """At once, with code 0."""
    store = f"postgresql://owner@127.0.0.1:{free_port()}/gateway"
    gateway = GatewayProcess(config(None, store=store, workers=workers))
    starting = asyncio.create_task(gateway.__aenter__())
    await until_read(lambda: ask(gateway, "/health/live"), lambda answer: answer[0] == 200)
    gateway.signal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="exited with 0 before it was ready"):
        await starting


@pytest.mark.parametrize("workers", [1, 2])
async def test_start_ends_when_the_wait_is_over(tmp_path: Path, workers: int) -> None:
    """With one line that names the store, its setting and what failed."""
    store = f"postgresql://owner@127.0.0.1:{free_port()}/gateway"
    file = tmp_path / "gateway.yaml"
    file.write_text(config(None, store=store, workers=workers, store_wait="1s"))
    code, _, told = await ended("run", "-c", str(file), "--listen", f"127.0.0.1:{free_port()}")
    assert code == 1
    assert "store: PostgreSQL: " in told and "refused" in told and "`store_wait`" in told


async def test_admin_address_answers_alone_while_the_start_waits(server: PostgresServer) -> None:
    """A balancer that is refused at `listen` goes on to another gateway, also with a POST."""
    server.kill()
    listens_at, admin_port = free_port(), free_port()
    addresses = {"listen": f"127.0.0.1:{listens_at}", "admin": {"listen": f"127.0.0.1:{admin_port}"}}
    text = config(None, store=f"postgresql://owner@{server.place}", **addresses)
    gateway = GatewayProcess(text, port=admin_port, listens_by_config=True)
    starting = asyncio.create_task(gateway.__aenter__())
    try:
        await until_read(lambda: ask(gateway, "/health/live"), lambda answer: answer[0] == 200)
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.post(f"http://127.0.0.1:{listens_at}/v1/chat/completions", json={})
    finally:
        server.start()
        await starting
    await gateway.__aexit__(None, None, None)
