"""The page of usage: the tokens of each day as a chart, and who used them as a table."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from aiohttp import web

from gateway.console.headers import page_headers
from gateway.console.rendering import shown_amount
from gateway.console.translation import Translate
from gateway.console.visit import ADMIN, VIEWING, Page, Visit
from gateway.contracts.store import Json
from gateway.contracts.usage import COUNTS

#: What the table is summed by, in words.
KINDS: Final[Mapping[str, str]] = {
    "model": "Model",
    "key": "Key",
    "tenant": "Tenant",
    "upstream": "Upstream",
    "lane": "Lane",
}
#: Days of the chart.
SPANS: Final = (7, 30, 90)
USUAL_DAYS: Final = 30
#: So many rows stand on the page, those with the most tokens.
SHOWN: Final = 100
#: The chart, in pixels: the bars, and its line of days below.
HEIGHT_PX: Final = 150
#: The part of its place that a bar fills.
FILLED: Final = 0.8
#: A bar of few tokens is still to be seen.
LEAST_PX: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBar:
    """The bar of a day: its place in percent of the width, and its two parts from the top in pixels."""

    day: str
    left: float
    width: float
    input_top: float
    input_height: float
    output_top: float
    output_height: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayChart:
    """The tokens of each day, the input below the output. `most` is the value of the highest bar, as a text."""

    bars: Sequence[DayBar]
    most: str
    words: str


class UsageReport:
    """The page of usage. `now_s` returns the Unix time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def pages(self) -> tuple[Page, ...]:
        readers = (*VIEWING, *ADMIN)
        return (Page("GET", "/usage", self._usage, readers), Page("GET", "/usage/csv", self._table, readers))

    async def _usage(self, visit: Visit) -> web.Response:
        by, days, span = self._wanted(visit)
        daily = await visit.api.get("context", "usage", by="day", **span)
        found = await visit.api.get("context", "usage", by=by, **span)
        rows = sorted(found["data"], key=lambda row: (-(row["input"] + row["output"]), -row["requests"]))
        return await visit.page(
            "usage.html",
            title="Usage",
            enabled=daily["enabled"],
            chart=chart_of(daily["data"], since=span["from"], days=days, t=visit.t),
            sums=sums_of(daily["data"]),
            costs=costs_of(daily["data"]),
            rows=rows[:SHOWN],
            left_out=max(len(rows) - SHOWN, 0),
            by=by,
            days=days,
            kinds=KINDS,
            spans=SPANS,
        )

    async def _table(self, visit: Visit) -> web.StreamResponse:
        """Pass on the table of the API as it arrives, for a spreadsheet."""
        by, _, span = self._wanted(visit)
        async with visit.api.following("context", "usage", by=by, format="csv", **span) as rows:
            headers = {"Content-Disposition": f'attachment; filename="usage-{span["from"]}-{span["to"]}.csv"'}
            answer = web.StreamResponse(headers={**page_headers(visit.nonce), **headers})
            answer.content_type, answer.charset = "text/csv", "utf-8"
            await answer.prepare(visit.request)
            if visit.request.method != "HEAD":
                async for part in rows.iter_any():
                    await answer.write(part)
            await answer.write_eof()
        return answer

    def _wanted(self, visit: Visit) -> tuple[str, int, Mapping[str, str]]:
        """Return what the query sums by, the number of days, and the first and the last of them."""
        kind = visit.query.get("by", "")
        days = next((span for span in SPANS if str(span) == visit.query.get("days")), USUAL_DAYS)
        until = datetime.fromtimestamp(self._now_s(), UTC).date()
        since = until - timedelta(days=days - 1)
        return kind if kind in KINDS else "model", days, {"from": since.isoformat(), "to": until.isoformat()}


def chart_of(rows: Sequence[Json], *, since: str, days: int, t: Translate) -> DayChart | None:
    """Return the chart of some days from `since` on; None if none has tokens."""
    asked, answered = Counter[str](), Counter[str]()
    for row in rows:
        asked[row["day"]] += row["input"]
        answered[row["day"]] += row["output"]
    begin = date.fromisoformat(since)
    named = [(begin + timedelta(days=number)).isoformat() for number in range(days)]
    top = max(asked[day] + answered[day] for day in named)
    if not top:
        return None
    place = 100 / days
    bars = []
    for number, day in enumerate(named):
        below, above = _height(asked[day], top), _height(answered[day], top)
        input_top = round(HEIGHT_PX - below, 1)
        told = (shown_amount(asked[day]), shown_amount(answered[day]))
        bars.append(
            DayBar(
                day=day,
                left=round(number * place + place * (1 - FILLED) / 2, 3),
                width=round(place * FILLED, 3),
                input_top=input_top,
                input_height=below,
                output_top=round(max(input_top - above, 0), 1),
                output_height=above,
                words=t("{0}: {1} in, {2} out", day, *told),
            )
        )
    most = shown_amount(top)
    words = t("Tokens of each day from {0} to {1}, at most {2}.", named[0], named[-1], most)
    return DayChart(bars=bars, most=most, words=words)


def sums_of(rows: Sequence[Json]) -> Mapping[str, int]:
    """Return the sums of all rows."""
    return {name: sum(row[name] for row in rows) for name in COUNTS}


def costs_of(rows: Sequence[Json]) -> Sequence[tuple[str, float]]:
    """Return the cost in each currency."""
    costs: dict[str, float] = {}
    for row in rows:
        if row["currency"] is not None:
            costs[row["currency"]] = costs.get(row["currency"], 0.0) + row["cost"]
    return sorted(costs.items())


def _height(tokens: int, top: int) -> float:
    return round(max(tokens / top * HEIGHT_PX, LEAST_PX), 1) if tokens else 0.0
