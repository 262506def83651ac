"""The page of limits: what is used of them now."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import VIEWING, Authorise, parse_query
from gateway.api.views import list_answer
from gateway.contracts.allowance import LimitUsage
from gateway.contracts.caller import Caller
from gateway.contracts.storage.store import Json

LIMITS: Final = "/context/limits"


class LimitPages:
    """The page of one worker. `used` returns what is used of the limits that a caller may see."""

    def __init__(self, used: Callable[[Caller], list[LimitUsage]], *, authorise: Authorise) -> None:
        self._used = used
        self._authorise = authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*build_readable_routes(LIMITS, self._serve_limits)]

    async def _serve_limits(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, *VIEWING, "admin")
        parse_query(request)
        return list_answer([build_limit_view(one) for one in self._used(caller)])


def build_limit_view(used: LimitUsage) -> Json:
    """Return a limit. `resets_in_s` is None where that depends on requests, a day or a month."""
    return {
        "scope": used.scope,
        "name": used.name,
        "tenant": used.tenant,
        "limit": used.limit,
        "most": used.most,
        "used": used.used,
        "resets_in_s": None if used.resets_s is None else round(used.resets_s, 3),
        "soft": used.soft,
        "over": used.over,
        "obstacle": used.obstacle,
    }
