"""The body of a request for our own pages."""

import pytest
from aiohttp import web

from gateway.api.json_body import read_content
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from tests.lanes.assembled import assembled

CALLER = Caller("ann", "acme", frozenset())
REFUSED = b"request_too_large: The request body is larger than limits.some (1000 bytes)."


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "expected"), [(0, b"0"), (1000, b"1000"), (1001, REFUSED)])
async def test_a_body_is_read_up_to_its_limit(size: int, expected: bytes, *, chunked: bool) -> None:
    """Whole, or not at all, with the name of the limit."""

    async def page(request: web.Request) -> web.Response:
        try:
            content = await read_content(request, CALLER, limit_bytes=1000, limit_name="limits.some")
        except GatewayError as error:
            return web.Response(text=f"{error.code}: {error.message}")
        return web.Response(text=str(len(content)))

    app = web.Application()
    app.router.add_post("/own", page)
    body = b"x" * size
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if size else b"0\r\n\r\n"
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
    async with assembled(pages=app) as lane, lane.client() as client:
        await client.send(b"POST /own HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n%b" % (framing, framed if chunked else body))
        assert (await client.read_response()).payload == expected
