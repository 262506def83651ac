"""The body of a request for one of our own pages, read up to a limit."""

from aiohttp import web

from gateway.errors import GatewayError


async def content_of(request: web.Request, *, limit_bytes: int, limit_name: str) -> bytes:
    """The whole body. Raises GatewayError (request_too_large) that names the limit's key of the configuration."""
    content = bytearray()
    async for piece in request.content.iter_any():
        content += piece
        if len(content) > limit_bytes:
            raise GatewayError(
                "request_too_large", f"The request body is larger than {limit_name} ({limit_bytes} bytes)."
            )
    return bytes(content)
