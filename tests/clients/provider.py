"""A provider under observation: the demo model in a thread of its own, which wants a key and remembers what reached it.

It has two routes more (`/v1/echo`, `/v1/ws`), sends the headers that providers send, and fails at first when asked to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from multidict import CIMultiDict

from gateway.demo.app import Handler, create_app
from tests.clients.in_thread import InThread

PROVIDER_KEY: Final = "provider-secret"
#: A request with this header gets 429 in its first N tries, told apart by `x-stainless-retry-count`.
FAILURES: Final = "X-Test-Failures"
_QUESTIONS: Final = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
LIMITS: Final[Mapping[str, str]] = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "59",
    "anthropic-ratelimit-requests-remaining": "59",
    "openai-processing-ms": "7",
    "request-id": "req_of_the_provider",
}
RETRY: Final[Mapping[str, str]] = {"retry-after": "20", "retry-after-ms": "5", "x-should-retry": "true"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it reached the provider; `target` is the path with the query, `body` that of a question."""

    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes

    @property
    def credentials(self) -> set[str]:
        """Every secret in it."""
        values = (self.headers.get(name) for name in ("Authorization", "x-api-key", "X-Gateway-Key"))
        return {value.removeprefix("Bearer ") for value in values if value is not None}


class Provider(InThread):
    """`with Provider() as provider` serves on `provider.base_url` (which has no path) until it is left."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []

    @property
    def keyed(self) -> list[dict[str, str]]:
        """The section `upstreams` of a gateway that has a key of its own."""
        return [{"name": "provider", "base_url": f"{self.base_url}/v1", "api_key": PROVIDER_KEY}]

    def _app(self) -> web.Application:
        app = create_app()
        app.middlewares.insert(0, self._watch)
        app.on_response_prepare.append(_add_limits)
        app.add_routes([web.route("*", "/v1/echo", _echo), web.get("/v1/ws", _echo_messages)])
        return app

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        body = await request.read() if request.path in _QUESTIONS else b""
        seen = Seen(request.method, request.path_qs, CIMultiDict(request.headers), body)
        self.seen.append(seen)
        if PROVIDER_KEY not in seen.credentials:
            return _refusal(401, kind="authentication_error", message="Incorrect API key provided.")
        if int(seen.headers.get("x-stainless-retry-count", "0")) < int(seen.headers.get(FAILURES, "0")):
            return _refusal(429, kind="rate_limit_error", message="Slow down.", headers=RETRY)
        return await handler(request)


async def _add_limits(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(LIMITS)


async def _echo(request: web.Request) -> web.StreamResponse:
    """The body, with its type, as it arrives."""
    response = web.StreamResponse(headers={"Content-Type": request.headers.get("Content-Type", "text/plain")})
    await response.prepare(request)
    async for data in request.content.iter_any():
        await response.write(data)
    return response


async def _echo_messages(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=("echo",), max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.data == "close":
            await socket.close(code=4001, message=b"as you wish")
        elif message.type is web.WSMsgType.TEXT:
            await socket.send_str(message.data)
        else:
            await socket.send_bytes(message.data)
    return socket


def _refusal(status: int, *, kind: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error that OpenAI's and Anthropic's clients both read."""
    body = {"type": "error", "error": {"type": kind, "message": message, "param": None, "code": None}}
    return web.json_response(body, status=status, headers=headers)
