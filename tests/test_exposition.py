"""One page for all workers: sums, or the largest or smallest where a sum means nothing; a dead worker costs nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from exposed import busy, check_by_promtool, samples

from gateway import __version__
from gateway.exposition import Exposition, merge
from gateway.metrics import Metrics

OK = (("code", "200"), ("method", "POST"), ("mode", "passthrough"), ("route", "/v1/"))


async def page(metrics: Metrics) -> bytes:
    return await Exposition(metrics).page()


# One worker.


async def test_the_page_of_one_worker() -> None:
    """Our numbers, the process's, and which build this is; valid for the parser and promtool."""
    text = await page(busy())
    check_by_promtool(text)
    found = samples(text)
    assert found["gateway_http_requests_total", OK] == 3
    assert found["process_resident_memory_bytes", ()] > 1_000_000
    ((_, labels),) = (key for key in found if key[0] == "gateway_build_info")
    assert dict(labels)["version"] == __version__ and dict(labels).keys() == {"version", "python", "aiohttp"}


async def test_a_worker_alone_needs_no_socket() -> None:
    """Start and close do nothing."""
    exposition = Exposition(Metrics())
    await exposition.start()
    await exposition.close()
    await exposition.close()


# Merging.


async def test_one_page_merged_is_that_page() -> None:
    """Same names, labels and values."""
    text = await page(busy())
    assert samples(merge([text])) == samples(text)


async def test_counters_and_histograms_are_summed() -> None:
    """Label by label; what only one worker has is kept."""
    other = busy()
    other.route("/v1/", "passthrough").codes("POST")[200] += 10
    other.route("/v1/", "passthrough").answered.observe(3.0)
    other.upstream("second").outcomes["reset"] += 1
    merged = merge([await page(busy()), await page(other), await page(Metrics())])
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


async def test_a_reload_counts_once_however_many_workers_did_it() -> None:
    """Each worker reloads at the same signal."""
    behind = busy()
    behind.reloads["failure"] += 1
    found = samples(merge([await page(busy()), await page(behind), await page(busy())]))
    assert found["gateway_config_reloads_total", (("result", "failure"),)] == 2
    assert found["gateway_config_reloads_total", (("result", "success"),)] == 0


def gauge(name: str, value: float, labels: str = "") -> bytes:
    return f"# HELP {name} Text.\n# TYPE {name} gauge\n{name}{labels} {value}\n".encode()


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
def test_gauges(name: str, values: tuple[float, ...], merged: float) -> None:
    """A sum where it means something; else the largest, or the smallest where one bad worker must show."""
    for order in (values, values[::-1]):
        assert samples(merge([gauge(name, one) for one in order])) == {(name, ()): merged}


def test_labels_survive_a_merge() -> None:
    """Escapes included."""
    pages = [
        gauge("g", 1, r'{a="x\"y\\z\n",b="1"}'),
        gauge("g", 2, r'{a="x\"y\\z\n",b="1"}'),
        gauge("g", 4, '{a="",b="2"}'),
    ]
    assert samples(merge(pages)) == {("g", (("a", 'x"y\\z\n'), ("b", "1"))): 3, ("g", (("a", ""), ("b", "2"))): 4}


async def test_four_workers_have_the_series_of_one() -> None:
    """The bound on series holds for the merged page."""
    text = await page(busy())
    assert samples(merge([text] * 4)).keys() == samples(text).keys()


# Several workers, over their sockets.


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[list[Exposition]]:
    """Three workers of one gateway, each with numbers of its own."""
    made = [Exposition(busy(), folder=tmp_path, index=index) for index in range(3)]
    for exposition in made:
        await exposition.start()
    yield made
    for exposition in made:
        await exposition.close()


async def test_whichever_worker_is_asked_gives_the_numbers_of_all(workers: list[Exposition]) -> None:
    """Each once."""
    for exposition in workers:
        assert samples(await exposition.page())["gateway_http_requests_total", OK] == 9


async def test_a_worker_that_ended_is_left_out(workers: list[Exposition], tmp_path: Path) -> None:
    """Its socket is gone; closing twice is fine."""
    await workers[2].close()
    await workers[2].close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.sock", "1.sock"]
    assert samples(await workers[0].page())["gateway_http_requests_total", OK] == 6


async def test_a_worker_that_was_killed_is_left_out(workers: list[Exposition], tmp_path: Path) -> None:
    """Its socket is still there, but nobody answers."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "7.sock"))
    assert samples(await workers[0].page())["gateway_http_requests_total", OK] == 9


async def test_a_worker_that_comes_back_takes_its_socket_over(workers: list[Exposition], tmp_path: Path) -> None:
    """Whatever its predecessor left there."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "3.sock"))
    late = Exposition(busy(), folder=tmp_path, index=3)
    await late.start()
    assert samples(await workers[0].page())["gateway_http_requests_total", OK] == 12
    await late.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 0.99])
async def test_a_worker_that_breaks_off_is_left_out(workers: list[Exposition], tmp_path: Path, share: float) -> None:
    """Killed while it wrote: half a page costs the others nothing, and adds nothing that may be half a number."""
    whole = await page(busy())

    async def break_off(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(whole[: int(len(whole) * share)])
        writer.close()

    async with await asyncio.start_unix_server(break_off, tmp_path / "9.sock"):
        assert samples(await workers[0].page())["gateway_http_requests_total", OK] == 9


@pytest.mark.parametrize("answer", [b"gateway_x\n", b"\xff\xfe\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_stranger_on_a_workers_socket_is_left_out(
    workers: list[Exposition], tmp_path: Path, answer: bytes
) -> None:
    """What is no page is not merged."""

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(talk, tmp_path / "9.sock"):
        assert samples(await workers[0].page())["gateway_http_requests_total", OK] == 9


async def test_a_worker_that_hangs_is_left_out(
    workers: list[Exposition], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment."""
    monkeypatch.setattr("gateway.exposition.PEER_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "9.sock"))
        hung.listen()
        assert samples(await workers[0].page())["gateway_http_requests_total", OK] == 9
