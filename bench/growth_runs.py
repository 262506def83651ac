"""The costs that grow with runs: recovery after a crash, listeners to events, and finished runs in memory."""

import base64
import os
import selectors
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.grown import Client, Grown, Json, build_chat, post, print_row
from bench.model import ROUNDS, Model

CHAT = "/context/v1/chat/completions"
#: Rounds of one request; requests for each figure.
STEPS, REQUESTS = 10, 20
WITHIN_S = 300.0
RECOVERY_BAR_S, STEP_BAR_MS = 15.0, 2.0

#: What belongs to a run, by the column that names it; the audit log is a chain and stays as it is.
_PARTS = {"runs": "id", "requests": "run_id", "steps": "run_id", "events": "run_id"}
_OPEN = "SELECT count(*) FROM steps WHERE state <> 'finished' OR finished_s IS NULL"
_LEFT = "SELECT count(*) FROM runs WHERE state <> 'completed'"
_STATES = "SELECT state, count(*) FROM runs GROUP BY state"


def measure(folder: Path, *, recovered: Sequence[int], listeners: Sequence[int], finished: Sequence[int]) -> None:
    """Print the rows."""
    with Model() as model:
        for count in recovered:
            _measure_recovery(folder / f"recovery{count}", model, count)
        for count in listeners:
            _measure_listening(folder / f"listeners{count}", model, count)
        for count in finished:
            _measure_kept(folder / f"finished{count}", model, count)


def build_config(folder: Path, model_port: int) -> Json:
    """Return a configuration: the chain `assistant`, with files in `folder`."""
    files = folder / "files"
    files.mkdir(parents=True)
    for number in range(STEPS):
        (files / f"note{number}.txt").write_text("A note.\n")
    upstream = {"name": "model", "base_url": f"http://127.0.0.1:{model_port}/v1"}
    return {"upstreams": [upstream], "tools": {"file_operations": {"roots": [str(files)]}}}


def _measure_recovery(folder: Path, model: Model, count: int) -> None:
    """Measure the recovery of runs that were killed between a call and the model's next word.

    All but one are copies of that one.
    """
    with Grown(folder, build_config(folder, model.port)) as gateway:
        model.hold_answers(holds=True)
        with Client(gateway.port) as client:
            client.send(post(CHAT, build_chat(f"{ROUNDS}1 killed")))
            _wait_until_counted(gateway.store, _OPEN, table="steps")
            gateway.kill()
        _copy(gateway.store, count)
        model.hold_answers(holds=False)
        began_s = time.perf_counter()
        gateway.start()
        with gateway.measured() as cost:
            _wait_until_counted(gateway.store, _LEFT, table="runs")
            took_s = time.perf_counter() - began_s
            cpu_s = gateway.read_cpu_s()
    figure = f"{took_s:.1f} s" + (" MISS" if took_s > RECOVERY_BAR_S else "") + f", {cpu_s:.1f} s of CPU"
    print_row("recovery, with the start of the gateway", f"{count} runs", figure, cost.held)


def _copy(store: Path, count: int) -> None:
    """Copy the one run in the store until there are `count`, each without an owner."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE runs SET owner = NULL, lease_s = 0")
        ((run_id,),) = connection.execute("SELECT id FROM runs").fetchall()
        for table, name in _PARTS.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            kept = [column for column in columns if (table, column) != ("events", "seq")]
            values = ", ".join("?" if column == name else column for column in kept)
            statement = f"INSERT INTO {table} ({', '.join(kept)}) SELECT {values} FROM {table} WHERE {name} = ?"
            connection.executemany(statement, [(f"{run_id}{number}", run_id) for number in range(count - 1)])
        connection.commit()


def _wait_until_counted(store: Path, statement: str, *, table: str) -> None:
    """Wait until the table has a row and the statement counts none."""
    ends_s = time.monotonic() + WITHIN_S
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        while True:
            ((found,),) = connection.execute(statement).fetchall()
            ((there,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
            if there and not found:
                return
            if time.monotonic() > ends_s:
                states = connection.execute(_STATES).fetchall()
                raise SystemExit(f"bench: {found} are left after {WITHIN_S} s: {states}")
            time.sleep(0.05)


def _measure_listening(folder: Path, model: Model, count: int) -> None:
    with Grown(folder, build_config(folder, model.port)) as gateway, _listeners(gateway.port, count) as heard:
        _measure_steps(gateway, "warm")
        with gateway.counted() as cost:
            steps = _measure_steps(gateway, "counted")
        with gateway.measured() as held:
            _measure_steps(gateway, "held")
        _wait_until_all_heard(heard)
    each_ms = cost.cpu_s / steps * 1e3
    figure = f"{each_ms:.2f} ms" + (" MISS" if each_ms > STEP_BAR_MS else "")
    print_row("a step with listeners", f"{count} WebSockets", figure, held.held)


def _measure_steps(gateway: Grown, name: str) -> int:
    with Client(gateway.port) as client:
        for number in range(REQUESTS):
            client.ask(post(CHAT, build_chat(f"{ROUNDS}{STEPS} {name} {number}")))
    return REQUESTS * STEPS


@contextmanager
def _listeners(port: int, count: int) -> Iterator[dict[socket.socket, int]]:
    """Yield clients of `/context/ws` that read all the time, each with the number of bytes it has read."""
    heard: dict[socket.socket, int] = {}
    over = threading.Event()
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            connection = _open_websocket(port)
            selector.register(connection, selectors.EVENT_READ)
            heard[connection] = 0

        def read() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    heard[key.fileobj] += len(key.fileobj.recv(1 << 16))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield heard
        finally:
            over.set()
            reader.join()
            for connection in heard:
                connection.close()


def _open_websocket(port: int) -> socket.socket:
    key = base64.b64encode(os.urandom(16)).decode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(
        "GET /context/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = connection.recv(4096)
    if not head.startswith(b"HTTP/1.1 101 ") or not head.endswith(b"\r\n\r\n"):
        raise SystemExit(f"bench: no WebSocket: {head!r}")
    return connection


def _wait_until_all_heard(heard: dict[socket.socket, int]) -> None:
    """Wait until all clients have the same number of bytes: all of them get the same events."""
    ends_s = time.monotonic() + 10
    while len(set(heard.values())) > 1 and time.monotonic() < ends_s:
        time.sleep(0.05)
    if len(set(heard.values())) > 1 or 0 in heard.values():
        raise SystemExit(f"bench: listeners got {sorted(set(heard.values()))} bytes")


def _measure_kept(folder: Path, model: Model, count: int, *, size_bytes: int = 5 << 20) -> None:
    """Measure the memory of finished runs, each with a call, so that a client that comes back would join it."""
    with Grown(folder, build_config(folder, model.port)) as gateway:
        with Client(gateway.port) as client:
            client.ask(post(CHAT, build_chat(f"{ROUNDS}1 first")))
            before_mb = gateway.read_memory_mb()
            with gateway.measured() as cost:
                for number in range(count):
                    text = f"{number} lorem ipsum dolor " * (size_bytes // len(f"{number} lorem ipsum dolor "))
                    client.ask(post(CHAT, build_chat(f"{ROUNDS}1 {text}")))
        after_mb = gateway.read_memory_mb()
    each = f"{after_mb - before_mb:+.0f} MB; {cost.cpu_s / count * 1e3:.0f} ms of CPU each"
    print_row("finished runs of 5 MB", f"{count} runs", each, cost.held)
