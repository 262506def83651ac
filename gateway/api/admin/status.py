"""The page of the gateway's status: versions, upstreams, configuration, problems and the figures of the last hours."""

import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web

from gateway import __version__
from gateway.api.ops_pages import Route, readable
from gateway.api.request import Authorise, parse_query
from gateway.api.views import json_answer
from gateway.contracts.figures import Point
from gateway.contracts.storage.store import Json

STATUS: Final = "/context/status"


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """An upstream and its connections in all workers. `up`: the last connection attempt of none failed.

    None: no worker has reported it. `base_url` has the addresses of all its endpoints.
    """

    name: str
    base_url: str
    up: bool | None
    idle: int
    busy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """The facts of the page. `configuration` has no secrets. Times are Unix seconds.

    A point of the history covers `step_s` seconds, the last one less.
    """

    now_s: float
    started_s: float
    workers: int
    upstreams: Sequence[UpstreamStatus]
    configuration: Json
    problems: Sequence[str]
    points: Sequence[Point]
    step_s: float


class StatusPages:
    """The page of one worker. `status` returns the facts of this moment."""

    def __init__(self, status: Callable[[], Awaitable[GatewayStatus]], *, authorise: Authorise) -> None:
        self._status = status
        self._authorise = authorise

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*readable(STATUS, self._get)]

    async def _get(self, request: web.Request) -> web.Response:
        self._authorise(request, "admin")
        parse_query(request)
        return json_answer(status_view(await self._status()))


def status_view(status: GatewayStatus) -> Json:
    return {
        "object": "status",
        "version": __version__,
        "python": platform.python_version(),
        "aiohttp": aiohttp.__version__,
        "started_at": status.started_s,
        "uptime_s": max(status.now_s - status.started_s, 0.0),
        "workers": status.workers,
        "upstreams": [
            {
                "name": one.name,
                "base_url": one.base_url,
                "up": one.up,
                "idle": one.idle,
                "busy": one.busy,
            }
            for one in status.upstreams
        ],
        "configuration": status.configuration,
        "problems": list(status.problems),
        "history": {"step_s": status.step_s, "points": [_point_view(point) for point in status.points]},
    }


def _point_view(point: Point) -> Json:
    return {
        "at": point.at_s,
        "span_s": point.span_s,
        "requests": point.requests,
        "errors": point.errors,
        "overhead_ms": point.overhead_ms,
        "approval_wait_s": point.approval_wait_s,
        "pending": point.pending,
    }
