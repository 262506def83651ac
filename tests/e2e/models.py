"""A scripted model: an upstream that answers chat completions in order, in pieces, as its script says."""

import asyncio
import json
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_event, build_head
from gateway.testing.upstream import FakeUpstream

Json = dict[str, Any]


class Cut:
    """The type of CUT."""


#: The connection ends here, in the middle of the answer.
CUT: Final = Cut()
#: A text is content, a dict another delta, bytes the data of an event as it stands, an asyncio.Event is waited for.
Piece = str | Json | bytes | asyncio.Event | Cut

STREAM = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
#: Prompt and completion tokens of an answer, unless it says otherwise.
USAGE = (11, 7)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. With `content`, or a `status` other than 200, that is its body, and it is no stream."""

    pieces: tuple[Piece, ...] = ()
    finish: str | None = "stop"
    usage: tuple[int, int] | None = USAGE
    done: bool = True
    status: int = 200
    content: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()  # of an error answer
    #: Waited for before the head goes out.
    before: asyncio.Event | None = None

    def but(self, **changes: Any) -> "Answer":
        return replace(self, **changes)


def says(*pieces: Piece, **facts: Any) -> Answer:
    """Text, in these pieces."""
    return Answer(pieces, **facts)


def calls(tool: str, *, terminate: bool = False, risk_level: str | None = "low", **parameters: object) -> Answer:
    """A tool call as the prompt asks for it, in one piece; the model says itself that its risk is low."""
    return says(json.dumps(call(tool, terminate=terminate, risk_level=risk_level, **parameters)))


def call(tool: str, *, terminate: bool = False, risk_level: str | None = "low", **parameters: object) -> Json:
    """The JSON of a call."""
    level = {} if risk_level is None else {"risk_level": risk_level}
    return {"tool": tool, "parameters": {**parameters, **level}, "terminate": terminate}


def native(*functions: tuple[str, Json | str], text: str = "") -> Answer:
    """Tool calls in the API's own field: (name, arguments); the arguments come in two pieces."""
    pieces: list[Piece] = [text] if text else []
    for index, (name, arguments) in enumerate(functions):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        middle = len(written) // 2
        first = {"id": f"call_model_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        pieces.append({"tool_calls": [{"index": index, **first}]})
        pieces += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in (written[:middle], written[middle:])
        ]
    return Answer(tuple(pieces), finish="tool_calls")


def refuses(status: int, message: str = "no") -> Answer:
    """An error answer in OpenAI's shape."""
    return Answer(status=status, content=json.dumps({"error": {"message": message, "type": "x"}}).encode())


class Model:
    """`async with Model(says("Hello")) as model`: request n gets answer n; one request too many fails the test."""

    def __init__(self, *answers: Answer) -> None:
        self.upstream = FakeUpstream(self._serve)
        self._answers = list(answers)
        self._given = 0

    async def __aenter__(self) -> Self:
        await self.upstream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.upstream.__aexit__(kind, error, trace)

    def then(self, *answers: Answer) -> None:
        """Further answers, that need what became of earlier ones."""
        self._answers += answers

    @property
    def asked(self) -> list[Json]:
        """The JSON body of every request, in order of arrival."""
        return [json.loads(request.payload) for request in self.upstream.requests]

    @property
    def prompts(self) -> list[str]:
        """The system message of every request, "" where there is none."""
        first = [body["messages"][0] for body in self.asked]
        return [message["content"] if message["role"] == "system" else "" for message in first]

    def behind(self, sent: int = 1) -> list[Json]:
        """What the last request says behind the system message and the `sent` messages of the client."""
        messages: list[Json] = self.asked[-1]["messages"]
        return messages[1 + sent :]

    async def _serve(self, peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            assert self._given < len(self._answers), "the model was asked once more than it has answers"
            given = self._answers[self._given]
            self._given += 1
            if given.before is not None:
                await _wait(peer, given.before)
            if given.status != 200 or given.content:
                await peer.send(
                    build_answer(given.status, given.content, [("Content-Type", given.content_type), *given.headers])
                )
            elif not await _stream(peer, given):
                return


async def _stream(peer: Peer, given: Answer) -> bool:
    """Sends an answer; whether the connection goes on."""
    await peer.send(STREAM)
    for piece in given.pieces:
        if isinstance(piece, Cut):
            return False
        if isinstance(piece, asyncio.Event):
            await _wait(peer, piece)
        elif isinstance(piece, bytes):
            await peer.send(build_chunk(build_event(piece)))
        else:
            await peer.send(_frame({"content": piece} if isinstance(piece, str) else piece))
    if given.finish is not None:
        await peer.send(_frame({}, finish=given.finish))
    if given.usage is not None:
        prompt, completion = given.usage
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        await peer.send(_chunk(choices=[], usage=usage))
    await peer.send((build_chunk(build_event("[DONE]")) if given.done else b"") + LAST_CHUNK)
    return True


async def _wait(peer: Peer, event: asyncio.Event) -> None:
    """For the event, or until the other side leaves: raises EOFError."""
    waits = [asyncio.create_task(event.wait()), asyncio.create_task(peer.wait_end(timeout_s=None))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if waits[1].done():
            raise EOFError
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _frame(delta: Json, *, finish: str | None = None) -> bytes:
    return _chunk(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def _chunk(**facts: object) -> bytes:
    meta = {"id": "chatcmpl-upstream", "object": "chat.completion.chunk", "created": 1, "model": "upstream-model"}
    return build_chunk(build_event(json.dumps({**meta, **facts})))
