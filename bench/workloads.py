"""The workloads, and one run of each: the load client between two readings of the meters."""

import json
import resource
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench import kernel
from bench.systems import CLIENT_KEY, Running

OPEN_STREAMS = 1000
# A run during which anything else used more than this share of a core is tried once more.
DISTURBED_SHARE = 0.10

SYSTEM_PROMPT = (
    "You are a careful assistant in the tools team. Answer in plain words and in the language of the question, name "
    "the source of every figure, and say so when you do not know. Never invent a source, and keep to two hundred words."
)
USER_PROMPT = (
    "Please write a short note to a colleague who was not in the meeting: the release moves to Thursday, the two open "
    "regressions have an owner, the load test is repeated on the new machine before the release, the question of the "
    "budget waits for the review at the end of the month, and the next meeting is on Tuesday at ten in the usual room. "
    "Begin with what changes for the colleague, which is the date and the load test, and leave out who said what. End "
    "with the one question that is still open: whether the old machine is kept as a reserve until the end of the year."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of load. `rate`: requests a second at even distances; 0 is a closed loop on all `connections`.

    `asks_usage`: a stream ends with its usage.
    """

    path: str = "/v1/chat/completions"
    model: str = "bench"
    stream: bool = False
    asks_usage: bool = False
    connections: int
    rate: int = 0
    key: str = CLIENT_KEY

    def build_request(self, port: int) -> bytes:
        """Return the request as openai-python sends it."""
        body = json.dumps(self._build_body()).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{port}\r\n"
            "Accept-Encoding: gzip, deflate\r\n"
            "Connection: keep-alive\r\n"
            "Accept: application/json\r\n"
            "Content-Type: application/json\r\n"
            "User-Agent: OpenAI/Python 3.54.0\r\n"
            "X-Stainless-Lang: python\r\n"
            "X-Stainless-Package-Version: 3.54.0\r\n"
            "X-Stainless-OS: Linux\r\n"
            "X-Stainless-Arch: x64\r\n"
            "X-Stainless-Runtime: CPython\r\n"
            "X-Stainless-Runtime-Version: 3.13.5\r\n"
            f"Authorization: Bearer {self.key}\r\n"
            "X-Stainless-Async: false\r\n"
            "x-stainless-retry-count: 0\r\n"
            "x-stainless-read-timeout: 600\r\n"
            f"Content-Length: {len(body)}\r\n"
            "\r\n"
        )
        return head.encode() + body

    def _build_body(self) -> dict[str, object]:
        if self.path.endswith("/embeddings"):
            return {"input": USER_PROMPT, "model": self.model, "encoding_format": "float"}
        more: dict[str, object] = {"model": self.model, "temperature": 0.7, "stream": self.stream}
        if self.asks_usage:
            more["stream_options"] = {"include_usage": True}
        asked = {"role": "user", "content": USER_PROMPT}
        if self.path.endswith("/responses"):
            return {"instructions": SYSTEM_PROMPT, "input": [asked], "max_output_tokens": 256, **more}
        return {"messages": [{"role": "system", "content": SYSTEM_PROMPT}, asked], "max_tokens": 256, **more}


SATURATED = Workload(connections=32)
ANSWERS_30KB = Workload(path="/v1/embeddings", connections=16)
STREAMS_64 = Workload(model="bench-64x0ms", stream=True, connections=16)
EVENTS_10K = Workload(model="bench-100x10ms", stream=True, connections=100)
LOW_LOAD = Workload(connections=8, rate=100)
#: The context lane with an answer of eight events; the same as a stream; one of 64; and at 10,000 events a second.
CONTEXT = Workload(path="/context/v1/chat/completions", model="bench-8x0ms", connections=32)
CONTEXT_STREAMS = replace(CONTEXT, stream=True)
CONTEXT_64 = replace(CONTEXT, model="bench-64x0ms", connections=16)
CONTEXT_EVENTS = replace(EVENTS_10K, path=CONTEXT.path)
#: The same requests of the Responses API: each response is stored.
RESPONSES = replace(CONTEXT, path="/context/v1/responses")
RESPONSES_STREAMS = replace(CONTEXT_STREAMS, path=RESPONSES.path)
RESPONSES_64 = replace(CONTEXT_64, path=RESPONSES.path)
RESPONSES_EVENTS = replace(CONTEXT_EVENTS, path=RESPONSES.path)
#: Streams at low load, for the time to their first text; the same straight to the upstream.
FIRST_TEXTS = Workload(model="bench-8x10ms", stream=True, connections=32, rate=50)
CONTEXT_FIRST_TEXTS = replace(FIRST_TEXTS, path=CONTEXT.path)
STREAMS_OPEN = Workload(model="bench-60x1000ms", stream=True, connections=OPEN_STREAMS)


class LoadError(Exception):
    """The error of a run with failed requests: a figure from it would mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of a workload: the figures of the client, and the cost for the system."""

    requests: int
    events: int
    p50_us: float
    first_us: float  # median time to the first text of a stream
    text_us: float  # median time from the upstream's sending it to the client's having it
    cpu_s: float
    disturbed_share: float  # of one core, used by anything that takes no part


class Client:
    """The load program, which runs against one port at a time."""

    def __init__(self, program: Path, *, upstream: Running) -> None:
        self._program = program
        self._upstream = upstream

    def run(self, workload: Workload, *, system: Running | None, seconds: float) -> Outcome:
        """Run once, or return the cleaner of two runs. Without a system, requests go straight to the upstream."""
        outcome = self._run_once(workload, system=system, seconds=seconds)
        if outcome.disturbed_share <= DISTURBED_SHARE:
            return outcome
        again = self._run_once(workload, system=system, seconds=seconds)
        return min(outcome, again, key=lambda each: each.disturbed_share)

    def measure_memory_mb_while(self, workload: Workload, *, system: Running, seconds: float) -> float:
        """Return the system's memory a second before the end of a run that keeps all its connections streaming."""
        load = self._start(workload, port=system.system.port, seconds=seconds)
        time.sleep(seconds - 1)
        size_mb = kernel.read_memory_mb(system.processes)
        seen = self._read_result(load)
        if seen["streaming"] < workload.connections:
            raise LoadError(f"only {seen['streaming']} of {workload.connections} streams were open")
        return size_mb

    def _run_once(self, workload: Workload, *, system: Running | None, seconds: float) -> Outcome:
        target, own = system or self._upstream, system.processes if system else []
        bench = self._upstream.processes
        own_s, bench_s, machine, began_s = (
            kernel.read_cpu_s(own),
            kernel.read_cpu_s(bench),
            kernel.MachineTime.read(),
            read_used_s(),
        )
        began = time.monotonic()
        seen = self._read_result(self._start(workload, port=target.system.port, seconds=seconds))
        elapsed_s = time.monotonic() - began
        now = kernel.MachineTime.read()
        cpu_s = kernel.read_cpu_s(own) - own_s
        explained_s = cpu_s + kernel.read_cpu_s(bench) - bench_s + read_used_s() - began_s
        foreign_s = max(0.0, now.busy_s - machine.busy_s - explained_s) + now.stolen_s - machine.stolen_s
        return Outcome(
            requests=int(seen["requests"]),
            events=int(seen["events"]),
            p50_us=float(seen["p50_us"]),
            first_us=float(seen["first_us"]),
            text_us=float(seen["text_us"]),
            cpu_s=cpu_s,
            disturbed_share=foreign_s / elapsed_s,
        )

    def _start(self, workload: Workload, *, port: int, seconds: float) -> "subprocess.Popen[bytes]":
        command = [str(self._program), str(port), str(workload.connections), str(seconds), str(workload.rate)]
        load = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert load.stdin is not None
        load.stdin.write(workload.build_request(port))
        load.stdin.close()
        return load

    def _read_result(self, load: "subprocess.Popen[bytes]") -> dict[str, float]:
        assert load.stdout is not None
        with load, load.stdout:
            seen = json.loads(load.stdout.read())
        if seen["errors"]:
            raise LoadError(f"{seen['errors']} failed requests, the first: {seen['first_error']}")
        result: dict[str, float] = seen
        return result


def read_used_s() -> float:
    """Return the CPU time of this script and of the load clients that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
