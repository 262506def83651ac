"""The costs that grow with the configuration: passthrough requests by keys and upstreams, scrapes by upstreams."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from bench.grown import Client, Cost, Grown, Json, get, post, print_row, send_in_turn
from bench.run import compile_programs
from bench.systems import UPSTREAM_KEY, Running, System, free_port
from bench.workloads import SATURATED

#: Connections of the client; heads beyond so many kinds are parsed anew (`gateway.lanes.passthrough.plan_cache`).
CONNECTIONS = 16
SCRAPES = 40


def measure(
    folder: Path, *, requests: int, keys: Sequence[int], upstreams: Sequence[int], workers: Sequence[int], scraped: int
) -> None:
    """Print the rows; `requests` are sent for each, each key and each upstream in turn."""
    compile_programs(folder)
    port = free_port()
    mock = Running(System("mock", (str(folder / "mock_upstream"), str(port)), port), folder=folder)
    try:
        mock.await_ready(SATURATED.build_request(port))
        for count in keys:
            texts = [f"sk-bench-{number:08}-0123456789abcdef" for number in range(count)]
            names = [_build_key(f"k{number}", text) for number, text in enumerate(texts)]
            config = {"upstreams": [_build_upstream("mock", port)], "keys": names}
            sent = [_build_chat("/v1/chat/completions", text) for text in texts]
            _measure_passthrough(folder / f"keys{count}", config, sent, f"{count} keys", requests)
        for count in upstreams:
            sent = [_build_chat(f"/u{number}/chat/completions", UPSTREAM_KEY) for number in range(count)]
            _measure_passthrough(
                folder / f"upstreams{count}", _build_many_upstreams(count, port), sent, f"{count} upstreams", requests
            )
        for count in workers:
            _measure_scrapes(folder / f"workers{count}", _build_many_upstreams(scraped, port), scraped, count)
    finally:
        mock.stop()


def _measure_passthrough(folder: Path, config: Json, kinds: Sequence[bytes], size: str, requests: int) -> None:
    sent = [kinds[number % len(kinds)] for number in range(max(requests, 2 * len(kinds)))]
    with Grown(folder, config) as gateway:
        send_in_turn(gateway.port, sent[: max(len(kinds), CONNECTIONS)], connections=CONNECTIONS)
        with gateway.counted() as cost:
            send_in_turn(gateway.port, sent, connections=CONNECTIONS)
        with gateway.measured() as held:
            send_in_turn(gateway.port, sent, connections=CONNECTIONS)
    print_row("a passthrough request", size, f"{cost.cpu_s / len(sent) * 1e6:.0f} us", held.held)


def _measure_scrapes(folder: Path, config: Json, upstreams: int, workers: int) -> None:
    """Measure scrapes of any worker: each has its own share of the requests, in as many series."""
    sent = [_build_chat(f"/u{number}/chat/completions", UPSTREAM_KEY) for number in range(upstreams)] * 4 * workers
    with Grown(folder, config, workers=workers) as gateway:
        send_in_turn(gateway.port, sent, connections=8 * workers)
        clients = [Client(gateway.port) for _ in range(8)]
        cost, size_bytes = _scrape_once(gateway, clients)
        for client in clients:
            client.socket.close()
    print_row(
        f"`/metrics` of {upstreams} upstreams",
        f"{workers} workers",
        f"{cost.cpu_s / SCRAPES * 1e3:.1f} ms ({size_bytes >> 10} KiB)",
        cost.held,
    )


def _scrape_once(gateway: Grown, clients: Sequence[Client]) -> tuple[Cost, int]:
    size_bytes = 0
    with gateway.counted() as cost:
        for number in range(SCRAPES):
            size_bytes = len(clients[number % len(clients)].ask(get("/metrics")))
    with gateway.measured() as held:
        for number in range(SCRAPES):
            clients[number % len(clients)].ask(get("/metrics"))
    cost.held_ms = held.held_ms
    return cost, size_bytes


def _build_key(name: str, text: str) -> Json:
    return {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "scopes": ["passthrough"]}


def _build_many_upstreams(count: int, port: int) -> Json:
    return {
        "upstreams": [{**_build_upstream(f"u{number}", port), "paths": [f"/u{number}/"]} for number in range(count)]
    }


def _build_upstream(name: str, port: int) -> Json:
    return {"name": name, "base_url": f"http://127.0.0.1:{port}/v1", "api_key": UPSTREAM_KEY}


def _build_chat(target: str, key: str) -> bytes:
    body = {"model": "bench", "messages": [{"role": "user", "content": "x" * 900}]}
    return post(target, body, {"Authorization": f"Bearer {key}"})
