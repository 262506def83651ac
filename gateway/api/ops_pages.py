"""Our own pages: liveness, readiness, metrics, and the guard in front of all of them.

`lanes/host_guard.py` checks host names and origins before.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, Literal

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from gateway.api.cors import CorsHeaders
from gateway.api.front_page import FRONT_PAGE, FRONT_PAGE_HEADERS, wants_html
from gateway.api.json_body import ACCEPTED_CODINGS, check_type
from gateway.auth.host_guard import HostGuard
from gateway.contracts.errors import GatewayError, build_not_allowed_error
from gateway.contracts.storage.store import StoreError, build_unwritten_error
from gateway.contracts.tools import TOOL_HEADER
from gateway.contracts.tracing.context import CURRENT
from gateway.dialects.loader import find_error_style
from gateway.http.error_response import generate_request_id
from gateway.lanes.aiohttp_adapter import Facade, add_log_facts, restore_connection_header
from gateway.lanes.auth_failures import WrongKeys

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text"
log = logging.getLogger("gateway")

ROOT, CONSOLE = "/", "/console"
#: Pages without a key. `/metrics` checks by itself: the configuration may open it.
METRICS: Final = "/metrics"
OPEN = frozenset((ROOT, "/openapi.json", "/health/live", "/health/ready", METRICS))

#: The list of models of the context lane, and single ones below it.
MODEL_PATHS: Final = ("/context/models", "/context/v1/models")

#: Methods whose answers caches store, and the status that opens a WebSocket.
_STORED_BY_CACHES: Final = frozenset(("GET", "HEAD"))
_SWITCHING: Final = 101
#: Where a page that has given its request an id leaves it for error answers.
REQUEST_ID = web.RequestKey("request_id", str)
#: Where a page leaves further header fields for an error answer.
ERROR_FIELDS = web.RequestKey("error_fields", dict[str, str])

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Route = tuple[str, str, Handler]
#: The answer of /health/ready: 200 for the first, 503 for the others.
Readiness = Literal["ready", "draining", "store_lost"]

_NOT_ALLOWED: Final = "This page does not support the method: GET /openapi.json lists those it has."
#: The code and the text for each other refusal by aiohttp, by its status.
_REFUSALS: Final = {
    404: ("unknown_route", "The gateway has no page at this path: GET /openapi.json lists all pages."),
    413: ("request_too_large", "The request body is larger than this page accepts: shorten it."),
}


class Site:
    """The pages of one worker. `exposition` returns the metrics of all workers, with True as OpenMetrics.

    `ready` returns the readiness. `console` answers what lies below `/console`. `recognise` raises GatewayError for a
    request without a key, before any page except the ones at `apart` and below, which accept other callers as well.
    `read_metrics` raises it for a caller that may not read metrics. Each page checks its own scopes. `further` are its
    other pages, and `later` resolves all other paths.
    """

    def __init__(
        self,
        *,
        exposition: Callable[[bool], Awaitable[bytes]] | None,
        ready: Callable[[], Awaitable[Readiness]],
        door: Callable[[], HostGuard],
        recognise: Callable[[web.Request], None],
        read_metrics: Callable[[web.Request], None],
        wrong_keys: WrongKeys,
        console: Handler | None = None,
        further: Sequence[Route] = (),
        later: web.AbstractResource | None = None,
        apart: Sequence[str] = (),
    ) -> None:
        self._exposition = exposition
        self._ready = ready
        self._sharing = CorsHeaders(door)
        self._recognise = recognise
        self._read_metrics = read_metrics
        self._wrong_keys = wrong_keys
        self._console = console
        self._further = further
        self._later = later
        self._apart = apart
        self._below_apart = tuple(one + "/" for one in apart)

    def build_application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard_request])
        app.router.add_get(ROOT, self._serve_root)
        app.router.add_get("/health/live", self._serve_live)
        app.router.add_get("/health/ready", self._serve_readiness)
        if self._exposition is not None:
            app.router.add_get(METRICS, self._serve_metrics)
        if self._console is not None:
            for path in (CONSOLE, CONSOLE + "/{rest:.*}"):
                app.router.add_route("*", path, self._serve_console)  # without a route, aiohttp's 404 leaves a cycle
        for method, path, handler in self._further:
            app.router.add_route(method, path, handler)
        if self._later is not None:
            app.router.register_resource(self._later)
        app.on_response_prepare.append(keep_from_caches)
        app.on_response_prepare.append(self._sharing.add_cors_headers)
        app.on_response_prepare.append(restore_connection_header)
        return app

    async def _serve_root(self, request: web.Request) -> web.Response:
        if wants_html(",".join(request.headers.getall("Accept", ()))):
            return web.Response(body=FRONT_PAGE, headers=FRONT_PAGE_HEADERS)
        return _build_json_answer({"status": "ok"})

    async def _serve_live(self, _request: web.Request) -> web.Response:
        return _build_json_answer({"status": "ok"})

    async def _serve_readiness(self, _request: web.Request) -> web.Response:
        status = await self._ready()
        return _build_json_answer({"status": status}, status=200 if status == "ready" else 503)

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        self._read_metrics(request)
        assert self._exposition is not None
        _, kind = choose_encoder(",".join(request.headers.getall("Accept", ())))
        is_open = kind.startswith(OPENMETRICS_TYPE)
        headers = {"Content-Type": kind if is_open else EXPOSITION_TYPE}
        return web.Response(body=await self._exposition(is_open), headers=headers)

    async def _serve_console(self, request: web.Request) -> web.StreamResponse:
        assert self._console is not None
        return await self._console(request)

    @web.middleware
    async def _guard_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if isinstance(facade := request.transport, Facade) and facade.trace is not None:
            CURRENT.set(facade.trace)
        try:
            preflight = self._sharing.answer_preflight(request)
            if preflight is not None:
                return preflight
            if request.path != ROOT:
                _check_tool(request)
            if self._console is not None and (request.path == CONSOLE or request.path.startswith(CONSOLE + "/")):
                return await self._serve_console(request)  # it checks its callers by itself
            if request.path not in OPEN:
                if not self._is_apart(request.path):
                    self._recognise(request)
                check_type(request)
            return await handler(request)
        except web.HTTPMethodNotAllowed as refusal:
            return _build_error_answer(request, build_not_allowed_error(_NOT_ALLOWED, refusal.allowed_methods))
        except (web.HTTPNotFound, web.HTTPRequestEntityTooLarge) as refusal:
            return _build_error_answer(request, GatewayError(*_REFUSALS[refusal.status]))
        except GatewayError as error:
            peer = None if request.transport is None else request.transport.get_extra_info("peername")
            self._wrong_keys.record_refusal(error, peer=peer, method=request.method, path=request.rel_url.raw_path)
            return _build_error_answer(request, error)
        except StoreError as error:
            log.error("the store failed: %s", error)
            nothing = build_unwritten_error(
                error, "The gateway's store failed, so nothing was done: its log has the reason."
            )
            return _build_error_answer(request, nothing)
        except ConnectionResetError:
            raise  # the client left, so no answer can reach it, and there is nothing to log: see `build_page_log`
        except Exception:
            failure = GatewayError("internal_error", "The gateway failed: look for this request id in its log.")
            answer = _build_error_answer(request, failure)
            log.exception("a page failed, request id %s", answer.headers["x-request-id"])
            return answer

    def _is_apart(self, path: str) -> bool:
        return path in self._apart or path.startswith(self._below_apart)


async def keep_from_caches(request: web.Request, response: web.StreamResponse) -> None:
    """Forbid caches to store an answer that is for the holder of a key. This is an `on_response_prepare` hook.

    By themselves they skip only requests with `Authorization`, and keys come in other headers, too.
    """
    is_for_all = request.path in OPEN and request.path != METRICS  # which names models, upstreams and tools
    if request.method in _STORED_BY_CACHES and not is_for_all and response.status != _SWITCHING:
        response.headers.setdefault("Cache-Control", "no-store")


def build_readable_routes(path: str, handler: Handler) -> Sequence[Route]:
    """Return the routes of a page that answers GET and HEAD alike."""
    return [(method, path, handler) for method in ("GET", "HEAD")]


def build_page_log() -> logging.Logger:
    """Return the log of aiohttp's handlers. It drops aiohttp's errors about clients that left."""
    found = logging.getLogger("gateway.server.api")
    found.addFilter(_is_not_client_disconnect)
    return found


def _is_not_client_disconnect(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ConnectionResetError))


def _check_tool(request: web.Request) -> None:
    """Refuse requests of our own tools: a model could approve its own calls. Raises GatewayError."""
    if TOOL_HEADER in request.headers:
        raise GatewayError(
            "origin_not_allowed",
            "The gateway's own tools cannot use its pages: send the request from another program.",
            param=TOOL_HEADER,
        )


def _build_json_answer(content: dict[str, str], *, status: int = 200) -> web.Response:
    return web.json_response(content, status=status)


def requests_messages_models(request: web.Request) -> bool:
    """Return whether a client of Messages requests models: it sends the version of its API, and OpenAI's do not."""
    return "anthropic-version" in request.headers and request.path.startswith(MODEL_PATHS)


def _build_error_answer(request: web.Request, error: GatewayError) -> web.Response:
    request_id = request.get(REQUEST_ID) or generate_request_id()
    add_log_facts(request, error_code=error.code, request_id=request_id)
    headers = {"Content-Type": "application/json", "x-request-id": request_id}
    if error.facts.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.param == "content-encoding":
        headers["Accept-Encoding"] = ACCEPTED_CODINGS
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
        if error.retry_after_s % 1:
            headers["retry-after-ms"] = str(math.ceil(error.retry_after_s * 1000))
    if error.settled:
        headers["x-should-retry"] = "false"
    headers.update(error.fields)
    headers.update(request.get(ERROR_FIELDS, {}))
    style = find_error_style(request.path, of="messages" if requests_messages_models(request) else None)
    if style.id_header is not None:
        headers[style.id_header] = request_id
    body = style.write(error, request_id=request_id)
    return web.Response(status=error.facts.status, body=body, headers=headers)
