"""The page of usage: sums of requests, tokens and costs, as JSON or as a table for spreadsheets."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from aiohttp import web

from gateway.api.admin.csv_export import FORMATS, write_table
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import VIEWING, Authorise, parse_query, parse_query_choice
from gateway.api.views import build_json_answer
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Json, Store
from gateway.contracts.storage.usage import COST_UNITS, COUNTS, DIMENSIONS, Dimension, StoredUsage

USAGE: Final = "/context/usage"
#: Days of an answer that names none, today included.
DAYS: Final = 30
#: More rows are nothing to read.
ROWS_MOST: Final = 20_000


class UsagePages:
    """The page of one worker, on which `admin` sees the usage of all tenants. `flush` stores what it has recorded."""

    def __init__(
        self,
        *,
        store: Store,
        flush: Callable[[], Awaitable[None]],
        is_enabled: Callable[[], bool],
        authorise: Authorise,
        clock: Clock,
    ) -> None:
        self._store = store
        self._flush = flush
        self._is_enabled = is_enabled
        self._authorise = authorise
        self._clock = clock

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*build_readable_routes(USAGE, self._get)]

    async def _get(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, *VIEWING, "admin")
        query = parse_query(request, "from", "to", "by", "format")
        today = datetime.fromtimestamp(self._clock.time(), UTC).date()
        until = _parse_day(query.get("to"), "to") or today
        since = _parse_day(query.get("from"), "from") or until - timedelta(days=DAYS - 1)
        if since > until:
            raise GatewayError("invalid_field", "The first day comes after the last: exchange the two.", param="from")
        by = _parse_dimensions(query.get("by", "day"))
        shape = parse_query_choice(query, "format", FORMATS) or "json"
        await self._flush()
        tenant = None if "admin" in caller.scopes else caller.tenant
        found = await self._store.sum_usage(since=since.isoformat(), until=until.isoformat(), by=by, tenant=tenant)
        if len(found) > ROWS_MOST:
            text = f"These are more than {ROWS_MOST} rows: sum by less, or name fewer days with 'from' and 'to'."
            raise GatewayError("invalid_field", text, param="by")
        if shape == "csv":
            return _answer_table(found, by)
        return build_json_answer(
            {
                "object": "usage",
                "enabled": self._is_enabled(),
                "from": since.isoformat(),
                "to": until.isoformat(),
                "by": by,
                "data": [build_usage_view(one, by) for one in found],
            }
        )


def build_usage_view(usage: StoredUsage, by: Sequence[Dimension]) -> Json:
    """Return a sum. `cost` and `currency` are None for usage without a price."""
    return {
        **{name: getattr(usage, name) for name in by},
        **{name: getattr(usage, name) for name in COUNTS},
        "cost": usage.cost / COST_UNITS if usage.currency else None,
        "currency": usage.currency or None,
    }


def _answer_table(found: Sequence[StoredUsage], by: Sequence[Dimension]) -> web.Response:
    rows: list[list[object]] = [[*by, *COUNTS, "cost", "currency"]]
    for usage in found:
        view = build_usage_view(usage, by)
        cost = None if view["cost"] is None else f"{view['cost']:.9f}"
        rows.append([*(view[name] for name in (*by, *COUNTS)), cost, view["currency"]])
    headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
    return web.Response(body=write_table(rows), content_type="text/csv", charset="utf-8", headers=headers)


def _parse_dimensions(text: str) -> list[Dimension]:
    """Return what to sum by. Raises GatewayError (invalid_field)."""
    words = text.split(",")
    by = [name for name in DIMENSIONS if name in words]
    if len(by) != len(words):
        known = ", ".join(DIMENSIONS)
        raise GatewayError(
            "invalid_field", f"Sum by some of these, each once, with commas between them: {known}.", param="by"
        )
    return by


def _parse_day(text: str | None, name: str) -> date | None:
    """Return a day, or None if none is named. Raises GatewayError (invalid_field)."""
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise GatewayError(
            "invalid_field", f"The value of {name!r} is not a day: send one such as 2026-11-26.", param=name
        ) from None
