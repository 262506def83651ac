"""One page for all workers: sums, or the largest or smallest where a sum means nothing; a dead worker has counted."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateways import until
from metrics_page import busy, check_by_promtool, page_of, samples
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gateway import __version__
from gateway.telemetry.exposition import Exposition, merge_counts, merge_gauges
from gateway.telemetry.metrics import REQUESTS, Metrics, build_counter
from gateway.telemetry.page_text import Gauge
from gateway.telemetry.shared_counts import SharedCounts

OK = (("code", "200"), ("method", "POST"), ("mode", "passthrough"), ("route", "/v1/"))


async def page(metrics: Metrics) -> bytes:
    return await Exposition(metrics).build_page()


def summed(*workers: Metrics) -> bytes:
    """The counts of these workers on one page."""
    each = [{key: tuple(map(float, values)) for key, values in metrics.collect_counts()} for metrics in workers]
    return page_of(merge_counts(each).items())


# One worker.


async def test_single_worker_metrics_page_is_valid_and_names_the_build() -> None:
    """Our numbers, the process's, and which build this is; valid for the parser and promtool."""
    text = await page(busy())
    check_by_promtool(text)
    found = samples(text)
    assert found["gateway_http_requests_total", OK] == 3
    assert found["process_resident_memory_bytes", ()] > 1_000_000
    ((_, labels),) = (key for key in found if key[0] == "gateway_build_info")
    assert dict(labels)["version"] == __version__ and dict(labels).keys() == {"version", "python", "aiohttp"}


async def test_metrics_page_passes_the_strict_openmetrics_parser() -> None:
    """All that a busy worker counts passes the strict parser of that format."""
    text = await Exposition(busy()).build_page(openmetrics=True)
    families = {family.name: family for family in parse_openmetrics(text.decode())}
    assert families["gateway_http_requests"].type == "counter" and "process_cpu_seconds" in families
    assert sum(len(family.samples) for family in families.values()) == len(samples(await page(busy())))


async def test_metrics_exposition_of_a_single_worker_opens_no_socket() -> None:
    """Start and close do nothing."""
    exposition = Exposition(Metrics())
    open_files = sorted(Path("/proc/self/fd").iterdir())
    await exposition.start()
    assert sorted(Path("/proc/self/fd").iterdir()) == open_files
    await exposition.close()
    await exposition.close()


async def test_metric_sources_are_collected_at_each_scrape() -> None:
    """Pools and connections are looked at, not counted along."""
    metrics, open_connections = Metrics(), 0

    def families() -> list[Metric]:
        refused = build_counter("gateway_refused", "Refused", 3)
        return [GaugeMetricFamily("gateway_open", "Open connections", value=open_connections), refused]

    metrics.sources.append(families)
    exposition = Exposition(metrics)
    assert samples(await exposition.build_page())["gateway_open", ()] == 0
    open_connections = 7
    found = samples(await exposition.build_page())
    assert (found["gateway_open", ()], found["gateway_refused_total", ()]) == (7, 3)


async def test_labels_of_gauges_are_escaped() -> None:
    """Names of upstreams are the operator's words."""
    odd, metrics = 'a"b\\c\nd', Metrics()
    family = GaugeMetricFamily("gateway_open", "Open", labels=["upstream"])
    family.add_metric([odd], 1)
    metrics.sources.append(lambda: [family])
    text = await page(metrics)
    check_by_promtool(text)
    assert samples(text)["gateway_open", (("upstream", odd),)] == 1


# Merging.


def test_counters_and_histograms_are_summed() -> None:
    """Label by label; what only one worker has is kept."""
    other = busy()
    other.route("/v1/", "passthrough").count_codes("POST")[200] += 10
    other.route("/v1/", "passthrough").answered.observe(3.0)
    other.get_upstream("second").outcomes["reset"] += 1
    merged = summed(busy(), other, Metrics())
    check_by_promtool(merged)
    found = samples(merged)
    assert found["gateway_http_requests_total", OK] == 3 + 13
    labels = (("mode", "passthrough"), ("route", "/v1/"), ("stream", "false"))
    assert found["gateway_http_request_duration_seconds_count", labels] == 1 + 2
    assert found["gateway_http_request_duration_seconds_sum", labels] == 0.5 + 3.5
    assert found["gateway_http_request_duration_seconds_bucket", (("le", "0.64"), *labels)] == 2
    assert found["gateway_http_request_duration_seconds_bucket", (("le", "+Inf"), *labels)] == 3
    assert found["gateway_upstream_requests_total", (("outcome", "reset"), ("upstream", "second"))] == 1
    assert found["gateway_client_disconnects_total", ()] == 8


def test_reload_counts_once_for_all_workers() -> None:
    """Each worker reloads at the same signal."""
    behind = busy()
    behind.reloads["failure"] += 1
    found = samples(summed(busy(), behind, busy()))
    assert found["gateway_config_reloads_total", (("result", "failure"),)] == 2
    assert found["gateway_config_reloads_total", (("result", "success"),)] == 0


def test_merged_page_of_four_workers_has_the_series_of_one() -> None:
    """The bound on series holds for the merged page."""
    assert samples(summed(*[busy()] * 4)).keys() == samples(page_of(busy().collect_counts())).keys()


@pytest.mark.parametrize(
    ("name", "values", "merged"),
    [
        ("gateway_client_connections", (3, 0, 4), 7),
        ("process_resident_memory_bytes", (1e8, 2e8), 3e8),
        ("process_open_fds", (10, 20), 30),
        ("process_max_fds", (1024, 4096), 4096),
        ("gateway_build_info", (1, 1, 1), 1),
        ("gateway_config_last_reload_success_timestamp_seconds", (1.7e9, 1.8e9), 1.7e9),
        ("gateway_upstream_up", (1, 0, 1), 0),
        ("gateway_mcp_server_up", (1, 0, 1), 0),
        ("process_start_time_seconds", (5, 3, 4), 3),
    ],
)
def test_gauges_of_workers_merge_by_sum_max_or_min(name: str, values: tuple[float, ...], merged: float) -> None:
    """A sum where it means something; else the largest, or the smallest where one bad worker must show."""
    for order in (values, values[::-1]):
        gauges: list[list[Gauge]] = [[(name, "Text", [("a", "b")], one), (name, "Text", [], 1.0)] for one in order]
        assert merge_gauges(gauges)[0] == (name, "Text", [("a", "b")], merged)


# Several workers, over their sockets.


class Workers:
    """Three workers of one gateway, each with numbers of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shared = [SharedCounts() for _ in range(3)]
        self.metrics = [busy() for _ in range(3)]
        self.each = [self._new(index) for index in range(3)]

    async def restart(self, index: int) -> None:
        """Another process in the place of one."""
        await self.each[index].close()
        self.metrics[index] = Metrics()
        self.each[index] = self._new(index)
        await self.each[index].start()

    def _new(self, index: int) -> Exposition:
        return Exposition(self.metrics[index], shared=self.shared, folder=self._folder, index=index)


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    made = Workers(tmp_path)
    for exposition in made.each:
        await exposition.start()
    yield made
    for exposition in made.each:
        await exposition.close()


async def test_every_worker_exposes_the_numbers_of_all_workers(workers: Workers) -> None:
    """Each once, and as they are now."""
    for exposition in workers.each:
        assert samples(await exposition.build_page())["gateway_http_requests_total", OK] == 9
    workers.metrics[1].route("/v1/", "passthrough").count_codes("POST")[200] += 1
    for exposition in workers.each:
        found = samples(await exposition.build_page())
        assert found["gateway_http_requests_total", OK] == 10
        assert found["process_resident_memory_bytes", ()] > 1_000_000


async def test_closed_worker_keeps_its_counts_on_the_page(workers: Workers, tmp_path: Path) -> None:
    """Also what it counted last; its socket is gone; closing twice is fine."""
    workers.metrics[2].route("/v1/", "passthrough").count_codes("POST")[200] += 1
    await workers.each[2].close()
    await workers.each[2].close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.sock", "1.sock"]
    assert samples(await workers.each[0].build_page())["gateway_http_requests_total", OK] == 10


async def test_counters_never_decrease_when_a_worker_is_replaced(workers: Workers) -> None:
    """What a page has shown stays, for counters, histograms and the CPU time of processes."""
    before = samples(await workers.each[0].build_page())
    for round_ in range(1, 4):
        await workers.restart(1)
        workers.metrics[1].route("/v1/", "passthrough").count_codes("POST")[200] += 5
        workers.metrics[1].get_upstream("openai").first_byte.observe(1.0)
        after = samples(await workers.each[2].build_page())
        ours = {key: value for key, value in before.items() if re.search("_(total|bucket|count|sum)$", key[0])}
        assert {key for key, value in ours.items() if after[key] < value} == set()
        assert after["gateway_http_requests_total", OK] == 9 + 5 * round_
        assert after["gateway_upstream_time_to_first_byte_seconds_count", (("upstream", "openai"),)] == 3 + round_
        before = after


async def test_worker_counts_are_saved_to_shared_memory_periodically(workers: Workers) -> None:
    """So that a worker that is killed takes only a moment's counts with it."""
    workers.metrics[1].route("/v1/", "passthrough").count_codes("POST")[200] += 5
    key = (REQUESTS, ("/v1/", "POST", "200", "passthrough"))
    await until(lambda: workers.shared[1].read()[key] == (8,))


async def test_series_beyond_shared_memory_are_omitted_and_logged_once(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that are there go on, and the log of each worker says it once."""
    monkeypatch.setattr("gateway.telemetry.shared_counts.NAMES_BYTES", 0)
    for name in ("new", "newer"):
        workers.metrics[0].get_upstream(name).outcomes["ok"] += 1
        workers.metrics[0].route("/v1/", "passthrough").count_codes("POST")[200] += 1
        found = samples(await workers.each[0].build_page())
    assert found["gateway_http_requests_total", OK] == 11
    assert [record.levelname for record in caplog.records if "/metrics lacks" in record.message] == ["ERROR"] * 3


@pytest.mark.parametrize(
    "answer", [b"", b"[", b"gateway_x\n", b"\xff\xfe\n", b"{}", b"[1]", b'[["a", "b", 3, 4]]', b"null"]
)
async def test_worker_with_broken_answer_loses_only_its_gauges(workers: Workers, tmp_path: Path, answer: bytes) -> None:
    """Killed while it wrote, or no worker at all."""

    async def break_off(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(break_off, tmp_path / "9.sock"):
        assert samples(await workers.each[0].build_page())["gateway_http_requests_total", OK] == 9


async def test_hung_worker_loses_only_its_gauges(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment."""
    monkeypatch.setattr("gateway.telemetry.exposition.PEER_TIMEOUT_S", 1.0)
    await workers.each[1].close()
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "1.sock"))
        hung.listen()
        assert samples(await workers.each[0].build_page())["gateway_http_requests_total", OK] == 9
    assert (
        samples(await workers.each[0].build_page())["gateway_http_requests_total", OK] == 9
    )  # nobody listens there now
