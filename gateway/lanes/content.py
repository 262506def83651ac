"""The body of a request for one of our own pages: JSON, read up to a limit, and only once its caller is known.

Nothing else reads a body of our pages.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from aiohttp import web

from gateway.caller import Caller
from gateway.errors import GatewayError
from gateway.lanes.own import Facade
from gateway.wire.json_values import PIECE_BYTES, ValueCounter

T = TypeVar("T")

#: A body of this size takes 1 to 3 ms to parse; a thread costs 0.1 ms.
LARGE_BYTES: Final = 256 << 10


def check_type(request: web.Request) -> None:
    """Raises GatewayError (unsupported_media_type) for a body that says that it is something else than JSON.

    A page of another site can send any other type, or none, without asking first. A program that is no browser may
    leave the type out: a browser names the origin with every body (fetch.spec.whatwg.org, "append a request Origin").
    """
    if not request.can_read_body or ("Content-Type" not in request.headers and "Origin" not in request.headers):
        return
    kind = request.content_type.lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise GatewayError(
            "unsupported_media_type",
            "The body must be JSON, and say so: send 'Content-Type: application/json'.",
            param="content-type",
        )


async def content_of(request: web.Request, caller: Caller, *, limit_bytes: int, limit_name: str) -> bytes:
    """The whole body, which `caller` may send. Raises GatewayError (request_too_large) that names the limit."""
    del caller  # who reads a body must have asked for a key before
    if isinstance(request.transport, Facade):
        request.transport.invite()
    content = bytearray()
    async for piece in request.content.iter_any():
        content += piece
        if len(content) > limit_bytes:
            raise GatewayError(
                "request_too_large", f"The request body is larger than {limit_name} ({limit_bytes} bytes)."
            )
    return bytes(content)


async def aside(work: Callable[[], T], *, content: bytes) -> T:
    """Returns what `work` makes of a body. A thread does what takes milliseconds: others go on between its steps."""
    return work() if len(content) < LARGE_BYTES else await asyncio.to_thread(work)


async def check_values(content: bytes, *, limit: int) -> None:
    """Counts what a parser would make of a body, and lets others go on meanwhile. Raises GatewayError
    (request_too_large)."""
    if len(content) <= limit:
        return
    counter = ValueCounter()
    for start in range(0, len(content), PIECE_BYTES):
        counter.feed(content[start : start + PIECE_BYTES])
        if counter.count > limit:
            raise GatewayError(
                "request_too_large",
                f"The request body holds more JSON values than limits.context_values ({limit}): send fewer messages, "
                "parts or keys, or raise the limit.",
            )
        await asyncio.sleep(0)
