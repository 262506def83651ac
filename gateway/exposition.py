"""The /metrics page: this process's numbers, or the merged numbers of all worker processes.

Each worker serves its own page on a unix socket in a private folder; whichever worker is scraped asks the others and
merges: counters and histograms are summed, and so are gauges, but for those where a sum means nothing.
"""

import asyncio
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

import aiohttp
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.metrics import Metrics

#: How long another worker may take to give its numbers; one that does not answer is left out of this scrape.
PEER_TIMEOUT_S = 2.0

#: Ends a worker's page on its socket: a page without it broke off.
_WHOLE = b"# EOF\n"
_LARGEST = frozenset(("gateway_approvals_pending", "gateway_build_info", "gateway_config_reloads", "process_max_fds"))
_SMALLEST = frozenset(
    (
        "gateway_upstream_up",
        "gateway_mcp_server_up",
        "gateway_config_last_reload_success_timestamp_seconds",
        "process_start_time_seconds",
    )
)


class _Build(Collector):
    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("gateway_build_info", "Versions in use", labels=["version", "python", "aiohttp"])
        info.add_metric([__version__, platform.python_version(), aiohttp.__version__], 1)
        yield info


class _Parsed(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


class Exposition:
    """The page of one worker. `folder` holds the sockets of all workers of this gateway; None with one worker."""

    def __init__(self, metrics: Metrics, *, folder: Path | None = None, index: int = 0) -> None:
        self._registry = CollectorRegistry()
        for collector in (_Build(), metrics):
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._folder = folder
        self._path = folder / f"{index}.sock" if folder else None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._give, self._path)

    async def close(self) -> None:
        if self._server is not None and self._path is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def page(self) -> bytes:
        """The exposition in Prometheus text format, over all workers."""
        own = generate_latest(self._registry)
        if self._folder is None:
            return own
        others = [path for path in self._folder.glob("*.sock") if path != self._path]
        pages = await asyncio.gather(*(_ask(path) for path in others))
        return merge([own, *filter(None, pages)])

    async def _give(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(generate_latest(self._registry) + _WHOLE)
        await writer.drain()
        writer.close()


async def _ask(path: Path) -> bytes:
    """Another worker's page; nothing if it does not answer in time."""
    try:
        async with asyncio.timeout(PEER_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                page = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
    return page if page.endswith(_WHOLE) else b""


def merge(pages: Iterable[bytes]) -> bytes:
    """One page out of several workers'."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for page in pages:
        for family in _parsed(page):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            merged = values.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, tuple(sample.labels.items()))
                merged[key] = _combined(family.name, merged.get(key), sample.value)
    for name, merged in values.items():
        for (sample_name, labels), value in merged.items():
            families[name].add_sample(sample_name, dict(labels), value)
    registry = CollectorRegistry()
    registry.register(_Parsed(families.values()))
    return generate_latest(registry)


def _parsed(page: bytes) -> list[Metric]:
    """The families of a page, or none if it is no exposition."""
    try:
        return list(text_string_to_metric_families(page.decode()))
    except ValueError:
        return []


def _combined(family: str, one: float | None, other: float) -> float:
    if one is None:
        return other
    if family in _LARGEST:
        return max(one, other)
    return min(one, other) if family in _SMALLEST else one + other
