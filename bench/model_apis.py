"""The CPU time of reading a streamed answer, by the API of its model, in this process: one event a piece.

python -m bench.model_apis

Then that of translating large requests of Messages, at two sizes each: twice the size is to cost twice the time.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Final, cast

import orjson

from gateway.contracts.exchange import Chunk, Pause
from gateway.contracts.model_apis import MODEL_APIS, ApiName
from gateway.contracts.storage.store import Json
from gateway.dialects.messages.dialect import DIALECT as MESSAGES
from gateway.model.adaptation.quirks import NONE
from gateway.model.apis.table import get_model_api
from gateway.model.upstream_client import Target
from gateway.telemetry.metrics import UpstreamTally
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint, ModelAccess
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.upstream.pool import Pool

EVENTS: Final = 20_000
ROUNDS: Final = 9
#: Blocks and bytes of large requests.
REQUESTS: Final = ((5_000, 10 << 10), (10_000, 20 << 10), (100, 5 << 20), (100, 10 << 20))


class _Replay:
    """A call whose answer is here already."""

    given_up = False

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def read_each(self, take: Callable[[bytes], Pause | None]) -> None:
        """Give each piece to `take`."""
        for piece in self._pieces:
            take(piece)

    def leave(self, *, within_s: float) -> None:
        """Do nothing: the rest is here."""


def write_chat(text: Callable[[int], str], events: int = EVENTS) -> list[bytes]:
    """Return the events of an answer in chat completions."""
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": {"content": text(n)}, "finish_reason": None} for n in range(events)]
    ends = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    return [b"data: " + orjson.dumps({**about, "choices": [choice]}) + b"\n\n" for choice in [*choices, *ends]]


def write_messages(text: Callable[[int], str], events: int = EVENTS) -> list[bytes]:
    """Return the events of an answer in Messages."""
    written: list[Json] = [
        {"type": "message_start", "message": {"id": "msg_1", "type": "message", "model": "m", "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    deltas = ({"type": "text_delta", "text": text(n)} for n in range(events))
    written += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    written += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    ]
    return [f"event: {one['type']}\ndata: ".encode() + orjson.dumps(one) + b"\n\n" for one in written]


def write_responses(text: Callable[[int], str], events: int = EVENTS) -> list[bytes]:
    """Return the events of an answer in Responses."""
    about: Json = {"item_id": f"msg_{'0' * 48}", "output_index": 0, "content_index": 0, "logprobs": []}
    written: list[Json] = [{"type": "response.created", "response": {"id": "resp_1", "model": "m"}}]
    written += [
        {"type": "response.output_text.delta", **about, "delta": text(n), "obfuscation": "x" * 8, "sequence_number": n}
        for n in range(events)
    ]
    written.append({"type": "response.completed", "response": {"status": "completed"}})
    return [f"event: {one['type']}\ndata: ".encode() + orjson.dumps(one) + b"\n\n" for one in written]


def measure_event_us(name: ApiName, pieces: list[bytes]) -> float:
    """Return the microseconds of one event of text."""
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"h", models=ModelAccess(api=name))
    pool = Pool(endpoint, clock=perf_counter)
    target = Target(pool, Group("up", [Member(pool, name="a")], tally=UpstreamTally(), clock=perf_counter))
    told: list[Chunk] = []
    times = []
    for _ in range(ROUNDS):
        told.clear()
        began = thread_time()
        asyncio.run(get_model_api(endpoint).emit_stream(cast(UpstreamCall, _Replay(pieces)), target, told.append))
        times.append(thread_time() - began)
    assert sum(isinstance(chunk, str) for chunk in told) == EVENTS
    return min(times) / EVENTS * 1e6


def build_large_request(blocks: int, size_bytes: int) -> bytes:
    """Return a request of Messages with so many blocks in turns of ten, and about so many bytes of text."""
    text = "word " * max(size_bytes // blocks // 5, 1)
    contents = [[{"type": "text", "text": text}] * 10 for _ in range(blocks // 10)]
    messages = [{"role": "assistant" if at % 2 else "user", "content": one} for at, one in enumerate(contents)]
    return orjson.dumps({"model": "m", "max_tokens": 9, "messages": [*messages, {"role": "user", "content": "Hi"}]})


def measure_request_ms(name: ApiName, content: bytes) -> float:
    """Return the milliseconds of reading a request of Messages and writing it for a model of this API."""
    access = ModelAccess(api=name)
    api = get_model_api(Endpoint(name="up", host="h", port=1, authority=b"h", models=access))
    times = []
    for _ in range(ROUNDS):
        began = thread_time()
        body = MESSAGES.parse(content, needs_model=True).body
        orjson.dumps(api.build_body(body, NONE, access))
        times.append(thread_time() - began)
    return min(times) * 1e3


def main() -> None:
    """Print the cost of an event for each API, for plain texts and for texts with escapes, and of large requests."""
    for words, text in (("plain", lambda n: f" word {n}"), ("escaped", lambda n: f'"a\n{n}"')):
        for name, write in zip(MODEL_APIS, (write_chat, write_messages, write_responses), strict=True):
            print(f"{words:<8} {name:<9} {measure_event_us(name, write(text)):.3f} us an event")
    for blocks, size_bytes in REQUESTS:
        content = build_large_request(blocks, size_bytes)
        for name in MODEL_APIS:
            figure = f"{measure_request_ms(name, content):7.1f} ms a request"
            print(f"messages -> {name:<9} {blocks:>6} blocks {len(content) / 1e6:5.1f} MB {figure}")


if __name__ == "__main__":
    main()
