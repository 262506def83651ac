"""The delivery of an answer: late, slowly, whole, or cut off, as its instructions state."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

import orjson
from aiohttp import web

from gateway.demo.conversation import Conversation
from gateway.demo.dialect import DemoDialect
from gateway.demo.script import DemoAnswer, refuse_when_asked
from gateway.demo.words import PromptAsk

Part = TypeVar("Part")

_STREAM: Final[Mapping[str, str]] = MappingProxyType(
    {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
)
_PLAIN: Final[Mapping[str, str]] = MappingProxyType({"Content-Type": "application/json"})


async def deliver(
    request: web.Request, *, dialect: DemoDialect, conversation: Conversation, answer: DemoAnswer
) -> web.StreamResponse:
    """Send the answer; raise RefusalError if the ask wants an error."""
    ask = answer.ask
    await asyncio.sleep(ask.delay_s)
    refuse_when_asked(answer)
    identity = {"x-request-id": f"req_{answer.digest[:24]}"}
    if conversation.stream:
        frames = dialect.frames(answer, conversation)
        stream = web.StreamResponse(headers={**identity, **_STREAM})
        return await _send(
            cut_first_half(list(frames)) if ask.cut else frames, response=stream, request=request, ask=ask
        )
    body = orjson.dumps(dialect.render(answer))
    if not ask.cut:
        return web.Response(body=body, headers={**identity, **_PLAIN})
    broken = web.StreamResponse(headers={**identity, **_PLAIN})
    broken.content_length = len(body)
    return await _send([body[: len(body) // 2]], response=broken, request=request, ask=ask)


async def pace_parts(parts: Iterable[Part], *, gap_s: float) -> AsyncIterator[Part]:
    """Yield the parts, with a pause between each two."""
    for number, part in enumerate(parts):
        if number and gap_s:
            await asyncio.sleep(gap_s)
        yield part


def cut_first_half(whole: Sequence[Part]) -> Sequence[Part]:
    return whole[: len(whole) // 2]


def cut_connection(request: web.Request) -> None:
    """Close the connection under an unfinished answer: send the bytes written so far, then an end of file."""
    if request.transport is not None:
        request.transport.close()


async def _send(
    parts: Iterable[bytes], *, response: web.StreamResponse, request: web.Request, ask: PromptAsk
) -> web.StreamResponse:
    try:
        await response.prepare(request)
        async for part in pace_parts(parts, gap_s=ask.gap_s):
            await response.write(part)
        if ask.cut:
            cut_connection(request)
        else:
            await response.write_eof()
    except ConnectionError:
        pass  # the client has gone; no reader is left
    return response
