"""The instructions that a request executes in the whole gateway process, and its Python calls in order.

    python -m bench.executed                     # instructions of context requests, by callgrind: three minutes
    python -m bench.executed --gateway ../old    # those of another checkout
    python -m bench.executed --calls             # the calls of one request, without valgrind: five seconds
    python -m bench.executed --calls --stream    # of one that streams

Instructions repeat to 0.3 %, and hardly depend on what else the machine does. Times of the same code differ by 15 %.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import systems, workloads
from bench.run import compile_programs

WARM_UP, COUNTED, CONNECTIONS = 600, 400, 32
#: The requests that are counted. One event more is the difference of the third and the first, by 56 events.
REQUESTS = {
    "8 events, whole": workloads.CONTEXT,
    "8 events, streamed": workloads.CONTEXT_STREAMS,
    "64 events, whole": workloads.CONTEXT_64,
    "64 events, streamed": replace(workloads.CONTEXT_64, stream=True),
    "passthrough": workloads.SATURATED,
}
RECORDER = Path(__file__).with_name("call_recorder.py")


def send(port: int, request: bytes, *, times: int, connections: int = CONNECTIONS) -> None:
    """Send one request `times` times over keep-alive connections. Raises RuntimeError for an answer that is no 200."""
    failures: list[str] = []

    def send_share() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for _ in range(times // connections):
                connection.sendall(request)
                status = _read_answer(connection)
                if b" 200 " not in status:
                    failures.append(status.decode("latin-1"))
                    return

    threads = [threading.Thread(target=send_share) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{len(failures)} connections got no 200, the first: {failures[0]}")


def _read_answer(connection: socket.socket) -> bytes:
    """Return the first line of one answer, once the answer is here."""
    received = b""
    while True:
        received += connection.recv(65536)
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if end and (len(body) == int(length[1]) if length else body.endswith(b"0\r\n\r\n")):
            return head.partition(b"\r\n")[0]


def count_instructions(command: Sequence[str], port: int, *, checkout: Path, folder: Path) -> dict[str, float]:
    """Return the thousands of instructions of each request, of a gateway that runs in callgrind."""
    wrapped = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out", *command]
    env = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}
    with (folder / "valgrind.log").open("wb") as log:
        gateway = subprocess.Popen(wrapped, stdout=log, stderr=log, cwd=folder, env=env)
    try:
        _await_health(port, within_s=600)
        counted = {}
        for name, workload in REQUESTS.items():
            request = workload.build_request(port)
            send(port, request, times=WARM_UP // CONNECTIONS * CONNECTIONS)
            _control(gateway.pid, "-i", "on")
            _control(gateway.pid, "-z")
            send(port, request, times=COUNTED // CONNECTIONS * CONNECTIONS)
            _control(gateway.pid, "-d")
            _control(gateway.pid, "-i", "off")
            counted[name] = _read_total(folder) / (COUNTED // CONNECTIONS * CONNECTIONS) / 1000
            print(f"{name:24}{counted[name]:10,.0f} k instructions", flush=True)
        return counted
    finally:
        gateway.terminate()
        gateway.wait(30)


def _control(pid: int, *arguments: str) -> None:
    subprocess.run(
        ["callgrind_control", *arguments, str(pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _read_total(folder: Path) -> int:
    """Return the instructions of the newest dump."""
    newest = max(folder.glob("out.*"), key=lambda dump: dump.stat().st_mtime_ns)
    found = re.search(r"^(?:totals|summary): (\d+)", newest.read_text(), re.MULTILINE)
    assert found is not None, f"{newest} has no total"
    return int(found[1])


def _await_health(port: int, *, within_s: float) -> None:
    until_s = time.monotonic() + within_s
    probe = b"GET /healthz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
    while True:
        try:
            if systems.read_status_line(port, probe):
                return
        except OSError:
            if time.monotonic() > until_s:
                raise
        time.sleep(0.2)


def list_calls(command: Sequence[str], port: int, workload: workloads.Workload, *, checkout: Path, folder: Path) -> str:
    """Return the Python calls of the event loop's thread for one request, in order, indented by depth."""
    calls = folder / "calls"
    program = [command[0], str(RECORDER), str(calls), *command[3:]]  # without `-m gateway`
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    gateway = subprocess.Popen(program, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_health(port, within_s=30)
        request = workload.build_request(port)
        send(port, request, times=WARM_UP, connections=1)
        for times in (1, 0):
            gateway.send_signal(signal.SIGUSR2)
            time.sleep(0.2)
            send(port, request, times=times, connections=1)
        gateway.terminate()
        gateway.wait(30)
    finally:
        gateway.kill()
    return calls.read_text()


def summarise(calls: str) -> str:
    """Return the number of calls by file."""
    counts = Counter(line.split()[-1].rpartition(":")[0] for line in calls.splitlines())
    rows = [f"{count:6}  {file}" for file, count in counts.most_common()]
    return "\n".join([*rows, f"{sum(counts.values()):6}  in all"])


def main() -> None:
    """Print what requests of one checkout execute."""
    parser = argparse.ArgumentParser(prog="python -m bench.executed", description=__doc__)
    parser.add_argument("--gateway", type=Path, default=systems.REPOSITORY, help="the checkout that is measured")
    parser.add_argument("--calls", action="store_true", help="list the calls of one request")
    parser.add_argument("--stream", action="store_true", help="with --calls: of one that streams")
    given = parser.parse_args()
    checkout = given.gateway.resolve()
    if not given.calls and shutil.which("valgrind") is None:
        parser.error("instructions are counted by valgrind: apt-get install valgrind, or use --calls")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        compile_programs(folder)
        upstream_port = systems.free_port()
        upstream = subprocess.Popen(
            [folder / "mock_upstream", str(upstream_port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            system = systems.build_gateway(folder, upstream_port=upstream_port, keys=True)
            if given.calls:
                workload = workloads.CONTEXT_STREAMS if given.stream else workloads.CONTEXT
                calls = list_calls(system.command, system.port, workload, checkout=checkout, folder=folder)
                print(calls, summarise(calls), sep="\n")
            else:
                count_instructions(system.command, system.port, checkout=checkout, folder=folder)
        finally:
            upstream.terminate()
            upstream.wait(10)


if __name__ == "__main__":
    sys.exit(main())
