"""The JSON body of a request for our own pages, read up to a limit, and only once its caller is known.

No other module reads a body of our pages.
"""

import asyncio
import codecs
import zlib
from typing import Final

from aiohttp import web

from gateway.aio.cooperative import run_cooperatively
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.jsontext.value_count import PIECE_BYTES, has_more_values
from gateway.lanes.aiohttp_adapter import Facade

#: The codings of a body that are read, for `Accept-Encoding` of a 415 (RFC 9110 section 12.5.3).
ACCEPTED_CODINGS: Final = "gzip, identity"
#: So much is unpacked between two turns of the loop: some 0.3 ms.
STEP_BYTES: Final = 256 << 10
_GZIP_BITS: Final = 16 + zlib.MAX_WBITS


def check_type(request: web.Request) -> None:
    """Check that a body is JSON by its type. Raises GatewayError (unsupported_media_type).

    A page of another site can send any other type, or none, without a preflight. A client other than a browser may
    leave the type out: a browser names the origin with every body (fetch.spec.whatwg.org, "append a request Origin").
    """
    if request.headers.get("Content-Type") == "application/json":  # as nearly all have it
        return
    if not request.can_read_body or ("Content-Type" not in request.headers and "Origin" not in request.headers):
        return
    kind = request.content_type.lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise GatewayError(
            "unsupported_media_type",
            "The body must be JSON: send 'Content-Type: application/json'.",
            param="content-type",
        )


async def read_content(request: web.Request, caller: Caller, *, limit_bytes: int, limit_name: str) -> bytes:
    """Return the whole body that `caller` sends, unpacked if it is gzip.

    The limit counts unpacked bytes. A packed body may be larger than its content by one step. Raises GatewayError:
    request_too_large, which names the limit; unsupported_media_type or invalid_header for a coding that is not
    supported or does not match the header.
    """
    del caller  # the parameter proves that the key was checked before
    inflater = zlib.decompressobj(_GZIP_BITS) if _is_gzip(request) else None
    if isinstance(request.transport, Facade):
        request.transport.send_continue()
    content = bytearray()
    sent_bytes = 0  # packed ones may hold nothing, without end
    while not request.content.at_eof():
        piece = await request.content.readany()
        sent_bytes += len(piece)
        if inflater is not None:
            await _unpack(piece, inflater, content, limit_bytes=limit_bytes)
        else:
            content += piece
        if len(content) > limit_bytes or sent_bytes > limit_bytes + STEP_BYTES:
            raise GatewayError(
                "request_too_large", f"The request body is larger than {limit_name} ({limit_bytes} bytes)."
            )
    if inflater is not None and not inflater.eof:
        raise _build_gzip_error()
    return bytes(content)


def _is_gzip(request: web.Request) -> bool:
    """Return whether the body is packed. Raises GatewayError (unsupported_media_type)."""
    if "Content-Encoding" not in request.headers:
        return False
    named = ",".join(request.headers.getall("Content-Encoding")).lower()
    codings = [coding for one in named.split(",") if (coding := one.strip()) not in ("", "identity")]
    if codings not in ([], ["gzip"], ["x-gzip"]):
        raise GatewayError(
            "unsupported_media_type",
            f"This 'Content-Encoding' is not supported: send the body as it is, or as one of {ACCEPTED_CODINGS}.",
            param="content-encoding",
        )
    return bool(codings)


async def _unpack(piece: bytes, inflater: "zlib._Decompress", content: bytearray, *, limit_bytes: int) -> None:
    """Unpack a piece into `content`, at most to one step beyond the limit. Other tasks run between the steps.

    Raises GatewayError (invalid_header).
    """
    while piece and not inflater.eof:
        try:
            found = inflater.decompress(piece, STEP_BYTES)
        except zlib.error:
            raise _build_gzip_error() from None
        content += found
        piece = inflater.unconsumed_tail
        if len(content) > limit_bytes:
            return
        if piece:
            await asyncio.sleep(0)
    if piece or inflater.unused_data:
        raise _build_gzip_error()


def _build_gzip_error() -> GatewayError:
    return GatewayError(
        "invalid_header",
        "The body does not match 'Content-Encoding: gzip': send one whole gzip member, or leave the header out.",
        param="content-encoding",
    )


async def check_values(content: bytes, *, limit: int) -> None:
    """Check the number of JSON values in a body, in turns. Raises GatewayError (request_too_large)."""
    if len(content) > limit and await run_cooperatively(has_more_values(content, limit)):
        raise GatewayError(
            "request_too_large",
            f"The request body holds more JSON values than limits.context_values ({limit}): send fewer messages, "
            "parts or keys, or raise the limit.",
        )


async def is_text(content: bytes) -> bool:
    """Return whether bytes are UTF-8, looked at in pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), PIECE_BYTES):
            if start:
                await asyncio.sleep(0)
            decoder.decode(content[start : start + PIECE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
