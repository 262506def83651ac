"""The /metrics page: the counts of all worker processes, and their gauges as they are now.

The workers share the memory of the counts (`shared_counts`). The worker that is scraped reads the counts of all, also
of one that was killed or is stopped. It requests gauges from the others on a unix socket in a private folder. Counts
are summed. Gauges are summed, too, except where a sum means nothing.
"""

import asyncio
import contextlib
import logging
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import aiohttp
import orjson
from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

from gateway import __version__
from gateway.contracts.figures import Counted, Counts, Key
from gateway.telemetry.counters import CONTEXT_FACTS
from gateway.telemetry.metrics import HTTP_FACTS, RELOADS, MetricFacts, Metrics
from gateway.telemetry.page_text import Gauge, PageText
from gateway.telemetry.shared_counts import SharedCounts

log = logging.getLogger("gateway")

#: How long another worker may take to give its gauges; a worker that does not answer is left out of this scrape.
PEER_TIMEOUT_S = 2.0
#: How often a worker writes down what it has counted: one that is killed takes this much with it.
WRITE_S = 0.05

_LARGEST = frozenset(
    (
        "gateway_approvals_oldest_seconds",
        "gateway_approvals_pending",
        "gateway_build_info",
        "gateway_limit_used_ratio",
        RELOADS,
        "gateway_runs",
        "gateway_runs_stuck",
        "gateway_store_bytes",
        "gateway_upstream_breaker_state",
        "gateway_upstream_endpoint_last_status",
        "gateway_upstream_endpoint_wait_seconds",
        "process_max_fds",
    )
)
_SMALLEST = frozenset(
    (
        "gateway_upstream_endpoint_healthy",
        "gateway_upstream_endpoint_up",
        "gateway_upstream_up",
        "gateway_limit_sharing_up",
        "gateway_mcp_server_up",
        "gateway_store_up",
        "gateway_config_last_reload_success_timestamp_seconds",
        "process_start_time_seconds",
    )
)


class Exposition:
    """The page of one worker, at `index` among the workers that share their counts. `shared` is empty with one worker.

    `folder` contains the sockets of all of them.
    """

    def __init__(
        self, metrics: Metrics, *, shared: Sequence[SharedCounts] = (), folder: Path | None = None, index: int = 0
    ) -> None:
        self._metrics = metrics
        self._shared = shared
        self._folder = folder
        self._path = folder / f"{index}.sock" if folder else None
        self._own = shared[index] if shared else None
        self._process = ProcessCollector(registry=None)
        self._facts: dict[str, MetricFacts] = {**HTTP_FACTS, **CONTEXT_FACTS}
        self._text = PageText(self._facts)
        self._server: asyncio.Server | None = None
        self._writing: asyncio.Task[None] | None = None
        self._told_full = False

    async def start(self) -> None:
        """Adopt the counts of the worker that had this place before, and start to answer the other workers."""
        if self._own is not None and self._path is not None:
            self._own.adopt_place()
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._send_own_numbers, self._path)
            self._writing = asyncio.get_running_loop().create_task(self._write_repeatedly())

    async def close(self) -> None:
        """Write the last counts. Idempotent."""
        if self._server is not None and self._path is not None and self._writing is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
            self._writing.cancel()
            await asyncio.wait({self._writing})
            self._collect_own_numbers()

    async def build_page(self, openmetrics: bool = False) -> bytes:
        """Return the exposition over all workers, in Prometheus' text format or as OpenMetrics 1.0."""
        return self._text.render(*await self.read_numbers(), openmetrics=openmetrics)

    def read_counts(self) -> Counts:
        """Return the counts of all workers, without the ones that are counted only at a scrape."""
        own = self._write(self._metrics.collect_counts())
        return own if self._folder is None else merge_counts(one.read() for one in self._shared)

    async def read_numbers(self) -> tuple[Counts, list[Gauge]]:
        """Return the counts and gauges of all workers."""
        counts, gauges = self._collect_own_numbers()
        if self._folder is not None:
            others = [path for path in self._folder.glob("*.sock") if path != self._path]
            told = await asyncio.gather(*(_fetch_gauges(path) for path in others))
            counts = merge_counts(one.read() for one in self._shared)
            gauges = merge_gauges([gauges, *told])
        return counts, gauges

    def _collect_own_numbers(self) -> tuple[Counts, list[Gauge]]:
        """Return the numbers of this process, and write its counts to the shared memory if there is one."""
        counted, gauges = list(self._metrics.collect_counts()), []
        for family in self._collect_families():
            for sample in family.samples:
                if family.type != "counter":
                    name, labels = sample.name, sorted(sample.labels.items())
                    gauges.append((name, family.documentation, labels, float(sample.value)))
                elif sample.name.endswith("_total"):
                    self._facts.setdefault(family.name, MetricFacts(family.documentation, tuple(sample.labels)))
                    counted.append(((family.name, tuple(sample.labels.values())), (sample.value,)))
        return self._write(counted), gauges

    def _collect_families(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("gateway_build_info", "Versions in use", labels=["version", "python", "aiohttp"])
        info.add_metric([__version__, platform.python_version(), aiohttp.__version__], 1)
        yield info
        for source in self._metrics.sources:
            yield from source()
        yield from self._process.collect()

    def _write(self, counted: Iterable[Counted]) -> Counts:
        if self._own is None:
            return {key: tuple(values) for key, values in counted}
        self._own.write(counted)
        if self._own.full and not self._told_full:
            self._told_full = True
            log.error("/metrics lacks counts of this worker: there are more series than it has room for")
        return {}

    async def _write_repeatedly(self) -> None:
        while True:
            self._write(self._metrics.collect_counts())
            await asyncio.sleep(WRITE_S)

    async def _send_own_numbers(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, gauges = self._collect_own_numbers()
        writer.write(orjson.dumps(gauges))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


async def _fetch_gauges(path: Path) -> list[Gauge]:
    """Request another worker's gauges. Return none if it does not answer in time, or breaks off."""
    try:
        async with asyncio.timeout(PEER_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                raw = orjson.loads(await reader.read(-1))
            finally:
                writer.close()
        return [
            (str(name), str(text), [(str(k), str(v)) for k, v in labels], float(x)) for name, text, labels, x in raw
        ]
    except (OSError, TimeoutError, ValueError, TypeError):
        return []


def merge_counts(all_counts: Iterable[Counts]) -> Counts:
    """Merge the counts of all workers: sums, or the largest for counts that all of them count alike."""
    merged: dict[Key, tuple[float, ...]] = {}
    for counts in all_counts:
        for key, values in counts.items():
            known = merged.get(key)
            if known is None:
                merged[key] = values
            else:
                merged[key] = tuple(map(max if key[0] in _LARGEST else float.__add__, known, values))
    return merged


def merge_gauges(all_gauges: Iterable[Iterable[Gauge]]) -> list[Gauge]:
    """Merge the gauges of all workers: sums, or the largest or smallest where a sum means nothing."""
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], Gauge] = {}
    for name, text, labels, value in (gauge for gauges in all_gauges for gauge in gauges):
        key = (name, tuple(labels))
        known = merged.get(key)
        merged[key] = (name, text, labels, value if known is None else _combine_values(name, known[3], value))
    return list(merged.values())


def _combine_values(name: str, one: float, other: float) -> float:
    if name in _LARGEST:
        return max(one, other)
    return min(one, other) if name in _SMALLEST else one + other
