"""The calls of functions that a request costs, counted; `python -m tests.request_calls` writes down the figures.

What is counted is our own code: the calls of functions in `gateway/` and `plugins/`, and those of C that they make.
The clock has no part in it. So the same code has the same figures on each machine, whatever else runs there.

What the figures leave out: other threads, the event loop and aiohttp's own functions, and work that the gateway puts
off to do it for many requests at once.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import yaml

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import build_answer, build_event, build_event_stream_answer, serve
from gateway.testing.upstream import FakeUpstream

ROOT: Final = Path(__file__).parent.parent
FILE: Final = ROOT / "tests/data/request_calls.yaml"
HEAD: Final = """\
# Calls of functions that one request costs, by the version of Python: our own functions, and C functions from them.
# tests/test_request_calls.py fails above a figure. `make request-calls` measures them anew, for its Python, and
# `make request-calls PYTHON=python3.13 VENV=.venv-3.13` for the other one.
"""
Figures = Mapping[str, Mapping[str, int]]

#: Requests before the first that counts, which fill caches, and those of which the cheapest one counts.
WARM, COUNTED = 12, 15
#: The words of an answer, each an event.
WORDS: Final = ("One ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight.")
_OURS: Final = (f"{ROOT}/gateway/", f"{ROOT}/plugins/")
_TESTING: Final = f"{ROOT}/gateway/testing/"


class CallCounter:
    """Calls that are counted while `counting` is open, of this thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._known: dict[CodeType, bool] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the calls of the block."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in ("call", "c_call"):
            return
        code = frame.f_code
        ours = self._known.get(code)
        if ours is None:
            file = code.co_filename
            ours = self._known[code] = file.startswith(_OURS) and not file.startswith(_TESTING)
        if ours:
            self.counts["python" if event == "call" else "c"] += 1


def build_model_answer() -> bytes:
    """Return the stream of a model: a role, eight words, an end with its usage."""
    facts = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def frame(delta: Mapping[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return build_event(json.dumps({**facts, "choices": [choice]}))

    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    words = [frame({"content": word}) for word in WORDS]
    last = build_event(json.dumps({**facts, "choices": [], "usage": usage}))
    return build_event_stream_answer(
        [frame({"role": "assistant"}), *words, frame({}, "stop"), last, build_event("[DONE]")]
    )


def build_request(path: str, *, stream: bool) -> bytes:
    """Return a chat request."""
    messages = [{"role": "user", "content": "Count to eight."}]
    body = json.dumps({"model": "m", "stream": stream, "messages": messages}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


#: Each kind of request, with what its upstream answers.
KINDS: Final[Mapping[str, tuple[bytes, Callable[[], bytes]]]] = {
    "passthrough, whole": (build_request("/v1/chat/completions", stream=False), lambda: build_answer(200, b'{"a":1}')),
    "passthrough, streamed": (build_request("/v1/chat/completions", stream=True), build_model_answer),
    "context, whole": (build_request("/context/v1/chat/completions", stream=False), build_model_answer),
    "context, streamed": (build_request("/context/v1/chat/completions", stream=True), build_model_answer),
}


async def count_calls(kind: str, **settings: object) -> Mapping[str, int]:
    """Return the calls that a warm request of this kind costs, with further settings of the gateway.

    That is the fewest of several requests: four times a second the gateway sweeps, and that only adds calls.
    """
    request, answer = KINDS[kind]
    found: list[Counter[str]] = []
    async with FakeUpstream(serve(answer())) as upstream:
        entry = {"name": "up", "base_url": upstream.base_url}
        config = {"upstreams": [entry], "workflows": {"folder": str(ROOT / "tests/functional")}, **settings}
        async with LocalGateway(config) as gateway, connect(gateway.host, gateway.port) as client:
            for _ in range(WARM):
                await _exchange(client, request)
            for _ in range(COUNTED):
                counter = CallCounter()
                with counter.counting():
                    await _exchange(client, request)
                found.append(counter.counts)
    return {one: min(counts[one] for counts in found) for one in ("c", "python")}


async def _exchange(client: Peer, request: bytes) -> None:
    await client.send(request)
    answer = await client.read_response()
    assert answer.status == 200, answer


def name_python() -> str:
    """Return the name of this Python's figures."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def read_figures(python: str) -> Figures:
    """Return the figures for this version: its own, else those of the newest version before it that has some."""
    kept: dict[str, Figures] = yaml.safe_load(FILE.read_text())
    return kept[max((one for one in kept if _order(one) <= _order(python)), key=_order)]


def _order(python: str) -> list[int]:
    return [int(part) for part in python.split(".")]


def write_figures() -> None:
    """Write down the figures of this Python; those of others stay."""
    kept = yaml.safe_load(FILE.read_text()) if FILE.exists() else {}
    kept[name_python()] = {kind: asyncio.run(count_calls(kind)) for kind in KINDS}
    FILE.write_text(HEAD + yaml.safe_dump(kept))


if __name__ == "__main__":
    write_figures()
