"""A Prometheus that scrapes a gateway."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp
from gateways import until_read

from gateway.testing.ports import free_port
from tests.support.gateway_process import GatewayProcess


class Prometheus:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def found(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        """Return its present answer: labels and value of each series; [] until it has anything."""
        async with self._session.get(f"/api/v1/query?query={quote(query)}") as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        own = ("__name__", "instance", "job")
        return [
            ({k: v for k, v in one["metric"].items() if k not in own}, float(one["value"][1]))
            for one in answer["data"]["result"]
        ]

    async def value(self, query: str) -> Mapping[str, float]:
        """Return its present answer, by the value of the first label; {} until it has anything."""
        return {next(iter(labels.values()), ""): value for labels, value in await self.found(query)}


async def is_ready(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get("/-/ready") as response:
            return response.status == 200
    except aiohttp.ClientConnectorError:
        return False


@asynccontextmanager
async def scraping(program: str, *gateways: GatewayProcess) -> AsyncIterator[Prometheus]:
    """A Prometheus that looks at the gateways four times a second."""
    port, folder = free_port(), gateways[0].folder
    config = folder / "prometheus.yml"
    target = {"targets": [f"{gateway.host}:{gateway.port}" for gateway in gateways]}
    job = {"job_name": "gateway", "scrape_interval": "250ms", "scrape_timeout": "250ms", "static_configs": [target]}
    config.write_text(json.dumps({"scrape_configs": [job]}))
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            await until_read(lambda: is_ready(session))
            yield Prometheus(session)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
