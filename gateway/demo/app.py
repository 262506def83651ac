"""The demo model as an HTTP server: its routes, its errors, and the way to start and stop it."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import orjson
from aiohttp import web

from gateway.demo.chat import CHAT
from gateway.demo.completions import COMPLETIONS
from gateway.demo.conversation import Json, RefusalError, read_body
from gateway.demo.delivery import deliver
from gateway.demo.dialect import DemoDialect
from gateway.demo.embeddings import embed
from gateway.demo.files import upload
from gateway.demo.messages import MESSAGES
from gateway.demo.models import describe_model, list_models
from gateway.demo.realtime import serve_realtime
from gateway.demo.responses import RESPONSES
from gateway.demo.script import build_answer, count_tokens

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_JSON_BYTES: Final = 64 * 1024 * 1024  # uploads are streamed and have no limit
MAX_FIELD_BYTES: Final = 64 * 1024  # a header line; aiohttp's 8 KiB is less than a gateway lets through
MAX_HEADERS: Final = 1024
SHUTDOWN_S: Final = 0.2  # twice: aiohttp waits for answers, then for their cancellation

_RETRY_AFTER: Final[Mapping[str, str]] = MappingProxyType({"Retry-After": "1"})
_ANTHROPIC_TYPES: Final[Mapping[int, str]] = MappingProxyType({413: "request_too_large", 529: "overloaded_error"})


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A running demo model; `base_url` has no path, so OpenAI's clients want `base_url + "/v1"`."""

    base_url: str
    runner: web.AppRunner

    async def close(self) -> None:
        """Stop listening and end the open answers; closing again does nothing."""
        await self.runner.cleanup()


async def start_demo(*, host: str = "127.0.0.1", port: int = 0) -> DemoModel:
    """Listen on `host`; port 0 takes a free one."""
    runner = web.AppRunner(
        create_app(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_S,
        max_line_size=MAX_FIELD_BYTES,
        max_field_size=MAX_FIELD_BYTES,
        max_headers=MAX_HEADERS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    address, bound_port = runner.addresses[0][:2]
    return DemoModel(f"http://{f'[{address}]' if ':' in address else address}:{bound_port}", runner)


def create_app() -> web.Application:
    app = web.Application(client_max_size=MAX_JSON_BYTES, middlewares=[_shape_errors])
    app.add_routes(
        [
            web.post("/v1/chat/completions", _build_answer_handler(CHAT)),
            web.post("/v1/completions", _build_answer_handler(COMPLETIONS)),
            web.post("/v1/responses", _build_answer_handler(RESPONSES)),
            web.post("/v1/messages", _build_answer_handler(MESSAGES)),
            web.post("/v1/messages/count_tokens", _count_tokens),
            web.post("/v1/embeddings", _serve_embeddings),
            web.post("/v1/files", _serve_files),
            web.get("/v1/models", _serve_models),
            web.get("/v1/models/{name:.+}", _serve_model),
            web.get("/v1/realtime", serve_realtime),
            web.get("/health", _serve_health),
        ]
    )
    return app


def _build_answer_handler(dialect: DemoDialect) -> Handler:
    """Return the handler of a route that answers a conversation in this dialect."""

    async def handle(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        conversation = dialect.read(read_body(raw))
        answer = build_answer(conversation, digest=hashlib.sha256(raw).hexdigest())
        return await deliver(request, dialect=dialect, conversation=conversation, answer=answer)

    return handle


async def _count_tokens(request: web.Request) -> web.Response:
    return _build_json_answer({"input_tokens": count_tokens(MESSAGES.read(read_body(await request.read())))})


async def _serve_embeddings(request: web.Request) -> web.Response:
    return _build_json_answer(embed(read_body(await request.read())))


async def _serve_files(request: web.Request) -> web.Response:
    return _build_json_answer(await upload(request))


async def _serve_models(_: web.Request) -> web.Response:
    return _build_json_answer(list_models())


async def _serve_model(request: web.Request) -> web.Response:
    return _build_json_answer(describe_model(request.match_info["name"]))


async def _serve_health(_: web.Request) -> web.Response:
    return _build_json_answer({"status": "ok"})


@web.middleware
async def _shape_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Send every error in the shape of the API it belongs to."""
    headers: Mapping[str, str] = {}
    try:
        return await handler(request)
    except RefusalError as error:
        refusal = error
        headers = _RETRY_AFTER if error.status in (429, 503) else {}
    except web.RequestPayloadError as error:
        refusal = RefusalError(f"The request body could not be read: {error}.", code="unreadable_body")
    except web.HTTPException as error:
        refusal = _translate_error(error, request=request)
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    return _build_json_answer(_build_error_body(refusal, path=request.path), status=refusal.status, headers=headers)


def _translate_error(error: web.HTTPException, *, request: web.Request) -> RefusalError:
    match error.status:
        case 404:
            message = f"The demo model has no route {request.method} {request.path!r}. Its routes begin with /v1/."
            return RefusalError(message, status=404, code="unknown_route")
        case 405:
            message = f"{request.path!r} does not take the method {request.method!r}."
            return RefusalError(message, status=405, code="method_not_allowed")
        case 413:
            message = f"The body is longer than {MAX_JSON_BYTES} bytes. Only /v1/files takes more."
            return RefusalError(message, status=413, code="request_too_large")
        case status:
            return RefusalError(error.text or error.reason, status=status)


def _build_error_body(refusal: RefusalError, *, path: str) -> Json:
    """Return the error in OpenAI's shape, or Anthropic's on Anthropic's routes."""
    error = refusal.build_error()
    if not path.startswith("/v1/messages"):
        return {"error": error}
    kind = _ANTHROPIC_TYPES.get(refusal.status, "api_error" if refusal.status >= 500 else error["type"])
    return {"type": "error", "error": {"type": kind, "message": refusal.message}}


def _build_json_answer(payload: Json, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(payload), content_type="application/json", status=status, headers=headers)
