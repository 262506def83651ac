"""The instructions that a context request executes, by the API of its client and that of its model, in one gateway.

    python -m bench.api_instructions                                    # all pairs, a quarter of an hour
    python -m bench.api_instructions messages:messages chat:responses

Valgrind's callgrind counts them: a busy machine makes it slow, and hardly changes a figure. A ratio is that to a client
of chat completions with a model of chat completions, in the same process.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.api_mock import WORD, ApiMock
from bench.grown import Client, Grown, Json, post
from gateway.contracts.model_apis import MODEL_APIS

#: The API of a client, and that of its model; the first pair is what the others are compared with.
PAIRS: Final = (
    ("chat", "chat"),
    ("messages", "chat"),
    ("messages", "messages"),
    ("responses", "chat"),
    ("chat", "messages"),
    ("chat", "responses"),
)
_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {"chat": "/context/v1/chat/completions", "messages": "/context/v1/messages", "responses": "/context/v1/responses"}
)
_TURNS: Final = 40
_TOOLS: Final = 8
#: Requests of each kind before any is counted, before those of a figure, and of a figure.
_FIRST, _WARM, _REQUESTS, _STREAMS = 100, 10, 30, 6
_FEW, _MANY = 16, 272
_READY_S: Final = 300.0


class Counter:
    """The instructions of a gateway process, as callgrind counts them."""

    def __init__(self, process: int, folder: Path) -> None:
        self._process = str(process)
        self._folder = folder
        self._dumps = count(1)

    def begin(self) -> None:
        """Begin to count, at 0. The process is slow from now on."""
        self._control("--instr=on")
        self._control("--zero")

    def end(self) -> int:
        """Return the instructions since the beginning, and count no more."""
        self._control("--dump")
        self._control("--instr=off")
        text = (self._folder / f"callgrind.out.{next(self._dumps)}").read_text()
        found = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def _control(self, *action: str) -> None:
        subprocess.run(("callgrind_control", *action, self._process), check=True, capture_output=True, timeout=120)


class Measurement:
    """A gateway under callgrind, with a model of each API and a client of each."""

    def __init__(self, gateway: Grown, mock: ApiMock, counter: Counter) -> None:
        self._client = Client(gateway.port)
        self._mock = mock
        self._counter = counter

    def send_first(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Let the interpreter and the gateway learn what comes."""
        for client, model in pairs:
            for turns, streams in ((1, False), (1, True), (_TURNS + 1, False)):
                request = post(_PATHS[client], build_request(client, f"{model}-m", turns=turns, streams=streams))
                for _ in range(_FIRST):
                    self._send(request)

    def list_figures(self, client: str, model: str) -> Iterator[tuple[str, float]]:
        """Yield what is measured of a pair, and its instructions."""
        for turns in (1, _TURNS + 1):
            each = self.count_request(client, model, turns=turns, number=_REQUESTS)
            yield f"a request, messages: {turns}", each
        self._mock.paced = True
        yield "an event that comes alone", self.count_event(client, model)
        self._mock.paced = False
        yield "an event among others", self.count_event(client, model)
        self._mock.one_chunk = True
        yield "an event among others in a chunk", self.count_event(client, model)
        self._mock.one_chunk = False

    def count_request(self, client: str, model: str, *, turns: int, streams: bool = False, number: int) -> float:
        """Return the instructions of one request with so many messages."""
        request = post(_PATHS[client], build_request(client, f"{model}-m", turns=turns, streams=streams))
        for _ in range(_WARM):
            self._send(request)
        self._counter.begin()
        for _ in range(number):
            self._send(request)
        return self._counter.end() / number

    def count_event(self, client: str, model: str) -> float:
        """Return the instructions of one more event of a stream."""
        counts = []
        for self._mock.events in (_FEW, _MANY):
            counts.append(self.count_request(client, model, turns=1, streams=True, number=_STREAMS))
        self._mock.events = _FEW
        return (counts[1] - counts[0]) / (_MANY - _FEW)

    def _send(self, request: bytes) -> None:
        """Send a request, and read its answer. A paced model hears of each event that arrives."""
        self._client.send(request)
        if not self._mock.paced:
            seen = sum(piece.count(WORD) for piece in self._client.read_pieces())
            assert seen >= self._mock.events or b'"stream": true' not in request, f"{seen} events"
            return
        for piece in self._client.read_pieces():
            self._mock.count_seen(piece.count(WORD))


def build_request(client: str, model: str, *, turns: int, streams: bool) -> Json:
    """Return a request in the API of a client. With several turns it has tools, as programs send them."""
    texts = [f"{at} lorem ipsum dolor sit amet " * 4 for at in range(turns - 1)]
    messages: list[Json] = [
        {"role": "assistant" if at % 2 else "user", "content": _build_content(client, text, at)}
        for at, text in enumerate(texts)
    ]
    messages.append({"role": "user", "content": "And then?"})
    tools = [_build_tool(client, f"tool_{at}") for at in range(_TOOLS if turns > 1 else 0)]
    body: Json = {"model": model, "stream": streams, **({"tools": tools} if tools else {})}
    if client == "responses":
        return {**body, "input": messages, "store": False}
    return {**body, "messages": messages, "max_tokens": 1024}


def _build_content(client: str, text: str, at: int) -> object:
    """Return the content of a message, as programs of the API write it."""
    if client == "chat":
        return text
    kind = "text" if client == "messages" else "output_text" if at % 2 else "input_text"
    return [{"type": kind, "text": text}]


def _build_tool(client: str, name: str) -> Json:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}
    described = {"name": name, "description": f"Reads what {name} has."}
    if client == "messages":
        return {**described, "input_schema": schema}
    if client == "responses":
        return {"type": "function", **described, "parameters": schema, "strict": False}
    return {"type": "function", "function": {**described, "parameters": schema}}


@contextmanager
def measuring(folder: Path) -> Iterator[Measurement]:
    """Run the gateway under callgrind, in front of a model of each API."""
    with ApiMock() as mock:
        url = f"http://127.0.0.1:{mock.port}/v1"
        upstreams = [{"name": name, "base_url": url, "api": name, "models": [f"{name}-*"]} for name in MODEL_APIS]
        under = (
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder / 'callgrind.out'}",
        )
        with Grown(folder, {"upstreams": upstreams}, under=under, ready_s=_READY_S) as gateway:
            mock.events = _FEW
            yield Measurement(gateway, mock, Counter(gateway.running.processes[0], folder))


def main() -> None:
    """Print a row for each pair, and the ratio of each figure to that of the first pair."""
    named = [tuple(name.split(":")) for name in sys.argv[1:]]
    pairs = [pair for pair in PAIRS if not named or pair in (PAIRS[0], *named)]
    with tempfile.TemporaryDirectory() as name, measuring(Path(name)) as measurement:
        measurement.send_first(pairs)
        firsts: dict[str, float] = {}
        for client, model in pairs:
            for what, each in measurement.list_figures(client, model):
                bar = each / firsts.setdefault(what, each)
                print(f"{client} -> {model:<10} {what:<38} {each / 1e3:9.1f} thousand {bar:5.2f}x", flush=True)


if __name__ == "__main__":
    main()
