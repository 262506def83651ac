"""The steps of agents that gateways take in a second on one store, by the number of gateways.

    python -m bench.steps sqlite:////tmp/steps.db postgresql://me@db/gateway --gateways 1 2 4

A step is one call of `file_operations` that reads a file: a model call, a tool, and two durable writes. The gateways
share the store, the model is a process of its own, and the clients are threads of this one. The stores take turns.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from bench.grown import Client, Grown, chat, post
from bench.growth_runs import CHAT, STEPS, config
from bench.model import ROUNDS, Model

WARM_S = 1.0


@dataclass(frozen=True, slots=True)
class StepRate:
    """Steps that all gateways took in a second, and the CPU time of all of them for one."""

    steps_per_s: float
    cpu_ms: float


class _Load:
    """Clients that send one request after the other until they are stopped. A request makes `STEPS` steps."""

    def __init__(self, gateways: Sequence[Grown], *, clients: int) -> None:
        self.answered = 0
        self._stopped = False
        self._lock = threading.Lock()
        ports = [gateways[number % len(gateways)].port for number in range(clients)]
        self._threads = [threading.Thread(target=self._send, args=(port,)) for port in ports]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join()

    def _send(self, port: int) -> None:
        with Client(port) as client:
            while not self._stopped:
                client.ask(post(CHAT, chat(f"{ROUNDS}{STEPS} {time.monotonic_ns()}")))
                with self._lock:
                    self.answered += 1


def serve_model(told: Connection) -> None:
    """Serve a model until the pipe ends, and send its port through it."""
    with Model() as model:
        told.send(model.port)
        told.poll(None)


@contextmanager
def started_model() -> Iterator[int]:
    """Start a model in a process of its own; yield its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_model, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def measure_steps(folder: Path, store: str, *, port: int, gateways: int, clients: int, seconds: float) -> StepRate:
    """Measure `gateways` that are started for it, on a store with this URL."""
    with ExitStack() as stack:
        started = []
        for number in range(gateways):
            below = folder / str(number)
            gateway = Grown(below, {**config(below, port), "store": store})
            started.append(stack.enter_context(gateway))
        load = _Load(started, clients=clients)
        stack.callback(load.stop)
        time.sleep(WARM_S)
        began_s, answered, cpu_s = time.perf_counter(), load.answered, sum(gateway.cpu_s() for gateway in started)
        time.sleep(seconds)
        steps = (load.answered - answered) * STEPS
        took_s, cpu_s = time.perf_counter() - began_s, sum(gateway.cpu_s() for gateway in started) - cpu_s
        return StepRate(steps / took_s, 1000 * cpu_s / max(steps, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", metavar="URL")
    parser.add_argument("--gateways", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--clients", type=int, default=16, help="requests at the same time, over all gateways")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each figure, whose median counts")
    args = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    with started_model() as port, tempfile.TemporaryDirectory() as temporary:
        for gateways in args.gateways:
            rates: dict[str, list[StepRate]] = {store: [] for store in args.stores}
            for number in range(args.rounds):
                for place, store in enumerate(args.stores):
                    folder = Path(temporary, f"{gateways}-{number}-{place}")
                    folder.mkdir()
                    rate = measure_steps(
                        folder, store, port=port, gateways=gateways, clients=args.clients, seconds=args.seconds
                    )
                    rates[store].append(rate)
            for store, found in rates.items():
                steps_per_s = statistics.median(rate.steps_per_s for rate in found)
                cpu_ms = statistics.median(rate.cpu_ms for rate in found)
                name = store.partition(":")[0]
                print(f"{name:<12}{gateways:>3} gateways {steps_per_s:>7.0f} steps/s  {cpu_ms:.2f} ms CPU a step")


if __name__ == "__main__":
    main()
