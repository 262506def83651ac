"""A person's browser as `bench.growth_console` needs it: signed in, with pages that it loads, and open inboxes."""

import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final
from urllib.parse import urlencode

from bench.grown import Client, Json, get, post

KEY: Final = "sk-bench-console-0123456789abcdef0123456789abcdef"
CHAT: Final = "/context/v1/chat/completions"
CONSOLE: Final = "/console"
#: Pages that do not end.
_STREAMS: Final = "/live"


def sign_in(port: int) -> Mapping[str, str]:
    """Return the header with the cookie of a session of `KEY`."""
    body = urlencode({"key": KEY}).encode()
    head = (
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"POST {CONSOLE}/sign-in HTTP/1.1\r\nHost: localhost\r\n{head}".encode() + body)
        while data := connection.recv(65536):
            answer += data
    for line in answer.decode("latin-1").split("\r\n"):
        if line.lower().startswith("set-cookie:"):
            return {"Cookie": line.partition(":")[2].partition(";")[0].strip()}
    raise SystemExit(f"bench: the console sets no cookie: {answer[:500]!r}")


def request_json(client: Client, target: str, body: Json | None = None, *, status: int = 200) -> Json:
    """Return the JSON of an answer of the API to the key of the console's reader."""
    headers = {"X-Gateway-Key": KEY}
    request = get(target, headers) if body is None else post(target, body, headers)
    answer: Json = json.loads(client.ask(request, status=status))
    return answer


def measure_times_ms(
    port: int, cookie: Mapping[str, str], target: str, requests: int, *, at_once: int = 1
) -> Sequence[float]:
    """Load a page so many times, so many at once, and return the times in milliseconds, the shortest first."""
    request, streams = get(CONSOLE + target, cookie), target.partition("?")[0].endswith(_STREAMS)

    def measure_some(count: int) -> list[float]:
        with Client(port) as client:
            return [
                _measure_stream_ms(port, request) if streams else _measure_page_ms(client, request)
                for _ in range(count)
            ]

    with ThreadPoolExecutor(at_once) as pool:
        return sorted(took for took_ms in pool.map(measure_some, [requests // at_once] * at_once) for took in took_ms)


def _measure_page_ms(client: Client, request: bytes) -> float:
    began_s = time.perf_counter()
    client.ask(request)
    return (time.perf_counter() - began_s) * 1e3


def _measure_stream_ms(port: int, request: bytes) -> float:
    """Return the time until a stream has begun."""
    began_s = time.perf_counter()
    with _wait_for_begin(port, request):
        return (time.perf_counter() - began_s) * 1e3


def _wait_for_begin(port: int, request: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(request)
    head = connection.recv(1 << 16)
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"bench: no stream of news: {head!r}")
    return connection


@contextmanager
def open_inboxes(port: int, count: int) -> Iterator[dict[socket.socket, int]]:
    """Yield open inboxes of so many people that read all the time, each with the number of events that it has got."""
    heard: dict[socket.socket, int] = {}
    over = threading.Event()
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        for _ in range(count):
            connection = opened.enter_context(_wait_for_begin(port, get(f"{CONSOLE}/live", sign_in(port))))
            selector.register(connection, selectors.EVENT_READ)
            heard[connection] = 0

        def read() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(1 << 18)
                    if not data:
                        raise SystemExit("bench: the gateway ended an open inbox")
                    heard[key.fileobj] += data.count(b"event: approval\n") + data.count(b"event: resolved\n")

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield heard
        finally:
            over.set()
            reader.join()
