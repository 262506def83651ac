"""The page of the gateway's status: versions, upstreams, configuration, problems and the figures of the last hours."""

import platform
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import aiohttp
from aiohttp import web
from msgspec import field

from gateway import __version__
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import Authorise, parse_query
from gateway.api.views import build_json_answer
from gateway.contracts.storage.store import Json
from gateway.contracts.views import UnixTime, View

STATUS: Final = "/context/status"


class UpstreamStatusView(View, frozen=True):
    """An upstream and its connections in all workers. `up`: the last connection attempt of none failed.

    Null: no worker has reported it. `base_url` has the addresses of all its endpoints.
    """

    name: str
    base_url: str
    up: bool | None
    idle: int
    busy: int


class PointView(View, frozen=True):
    """The figures of the `span_s` seconds before `at`. `errors` are answers with 500 or more.

    `overhead_ms` is the mean time that the gateway itself added before the first byte, `approval_wait_s` the mean time
    from the question to the decision; null: there was none. `pending` is the number of pending approvals at `at`.
    """

    at_s: UnixTime = field(name="at")
    span_s: float
    requests: int
    errors: int
    overhead_ms: float | None
    approval_wait_s: float | None
    pending: int


class HistoryView(View, frozen=True, kw_only=True):
    """The figures of the last hours, the oldest first, in steps of `step_s`."""

    step_s: float
    points: list[PointView]


class GatewayStatusView(View, frozen=True, kw_only=True):
    """The status of the gateway. `configuration` has no secrets."""

    object: Literal["status"] = "status"
    version: str = __version__
    python: str = platform.python_version()
    aiohttp: str = aiohttp.__version__
    started_at: UnixTime
    uptime_s: float
    workers: int
    upstreams: list[UpstreamStatusView]
    configuration: Json
    problems: list[str]
    history: HistoryView


class StatusPages:
    """The page of one worker. `status` returns the view of this moment."""

    def __init__(self, status: Callable[[], Awaitable[GatewayStatusView]], *, authorise: Authorise) -> None:
        self._status = status
        self._authorise = authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*build_readable_routes(STATUS, self._serve_status)]

    async def _serve_status(self, request: web.Request) -> web.Response:
        self._authorise(request, "admin")
        parse_query(request)
        return build_json_answer(await self._status())
