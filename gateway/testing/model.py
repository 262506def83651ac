"""A model that answers as the test scripted it: the next handler of a stage, or an upstream of a whole gateway."""

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeAlias

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Reply, Stage
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import Dialect
from gateway.dialects.loader import load_dialect
from gateway.testing.messages import Request
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_head, serve
from gateway.testing.upstream import FakeUpstream

#: The dialect in which the gateway calls models.
_CHAT: Dialect = load_dialect("chat")

#: One answer: its text, its chunks, or the error in its place.
Answer: TypeAlias = str | Sequence[Chunk] | Exception


class ScriptedModel:
    """Return the first answer to the first request, the second to the second; a request too many is an AssertionError.

    For a stage it is the next handler: `await stage(exchange, model)`; `exchanges` is what it got, `n_released` how
    many replies were released. For a gateway, `async with ScriptedModel("Hi.") as model` serves it as an upstream at
    `model.base_url`; `requests` is what it got, as parsed JSON. There an exception is an answer with status 500.
    """

    def __init__(self, *answers: Answer) -> None:
        self.exchanges: list[Exchange] = []
        self.requests: list[Json] = []
        self.n_released = 0
        self._answers = answers
        self._upstream = FakeUpstream(serve(self._build_response))

    def __repr__(self) -> str:
        return f"<ScriptedModel {len(self._answers)} answers, {self._n_asked} of them used>"

    async def __call__(self, exchange: Exchange) -> Reply:
        self.exchanges.append(exchange)
        said = self._take_next()
        if isinstance(said, Exception):
            raise said

        async def stream(emit: Emit) -> None:
            for one in _list_chunks(said):
                if (pause := emit(one)) is not None:
                    await pause()

        return Reply(stream, self._release)

    @property
    def base_url(self) -> str:
        """Return the `base_url` of an entry of `upstreams`; it is known within `async with`."""
        return f"{self._upstream.base_url}/v1"

    async def __aenter__(self) -> Self:
        await self._upstream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._upstream.__aexit__(kind, error, trace)

    @property
    def _n_asked(self) -> int:
        return len(self.exchanges) + len(self.requests)

    def _take_next(self) -> Answer:
        if self._n_asked > len(self._answers):
            raise AssertionError(
                f"the model got request {self._n_asked} and the test scripted {len(self._answers)} answers: "
                "pass one more to ScriptedModel, or find out why the plugin asks again"
            )
        return self._answers[self._n_asked - 1]

    async def _release(self) -> None:
        self.n_released += 1

    def _build_response(self, request: Request) -> bytes:
        body: Json = json.loads(request.payload)
        self.requests.append(body)
        said = self._take_next()
        if isinstance(said, Exception):
            error = {"error": {"message": str(said), "type": "server_error"}}
            return build_answer(500, json.dumps(error).encode(), [("Content-Type", "application/json")])
        asked = _CHAT.parse(request.payload, needs_model=False)
        written = _CHAT.build_writer(asked, run_id=f"run_{self._n_asked}", created_s=0.0)
        if not asked.streams:
            return build_answer(200, written.build_whole(_list_chunks(said)), [("Content-Type", "application/json")])
        frames = written.build_stream_writer()
        parts = [frames.build_first_frame(), *map(frames.build_frames, _list_chunks(said)), frames.finish()]
        headers = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]
        return build_head(200, headers) + b"".join(map(build_chunk, parts)) + LAST_CHUNK


def make_exchange(*messages: str | Json, body: Json | None = None, **facts: object) -> Exchange:
    """Return the request of a test. A message that is a text is the user's; `facts` are further fields of Exchange.

    `make_exchange("Hello?", notes=("first",))`; `body` adds keys to the request, such as `{"stream": True}`.
    """
    said = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages or ("Hello?",)]
    caller = Caller("tester", "local", frozenset({"context"}))
    given: dict[str, object] = {"id": "run_1", "caller": caller, "chain": "assistant", **facts}
    return Exchange(body={"model": "m", "messages": said, **(body or {})}, **given)  # type: ignore[arg-type]


async def collect_answer(stage: Stage, exchange: Exchange, model: Handler) -> list[Chunk]:
    """Send a request through a stage to the model, and return the chunks that its client gets."""
    chunks: list[Chunk] = []

    def emit(one: Chunk) -> None:
        chunks.append(one)

    reply = await stage(exchange, model)
    try:
        await reply.stream(emit)
    finally:
        await reply.release()
    return chunks


def _list_chunks(said: str | Sequence[Chunk]) -> Sequence[Chunk]:
    return (said,) if isinstance(said, str) else said
