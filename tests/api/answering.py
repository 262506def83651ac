"""Errors of pages in tests: told as the gateway tells them, under one request id."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.contracts.errors import GatewayError
from gateway.http.error_response import build_error_body


@web.middleware
async def errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except GatewayError as error:
        body = build_error_body(error, request_id="req_1")
        return web.Response(status=error.facts.status, body=body, content_type="application/json")
