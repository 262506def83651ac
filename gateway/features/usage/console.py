"""The page of usage: tokens and costs of each day as charts, split by one dimension, and the sums as a table."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Final

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.rendering import format_amount, format_line
from gateway.console.request import ADMIN, VIEWING, NavigationEntry, Page, Visit
from gateway.console.sorting import Key, sort_rows
from gateway.console.translation import Translate
from gateway.contracts.storage.store import Json
from gateway.contracts.storage.usage import COUNTS
from gateway.features.usage.console_charts import (
    OTHERS,
    Amounts,
    ChartPart,
    DayChart,
    build_day_chart,
    list_days,
    rank_parts,
)

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
#: So many rows stand on the page, the ones with the most tokens.
SHOWN: Final = 100
#: What the rows can be sorted by, besides what they are summed by.
COLUMNS: Final[Mapping[str, Key]] = {
    **{name: itemgetter(name) for name in ("requests", "rejected", "cut", "estimated", "input", "cached", "output")},
    "cost": itemgetter("cost"),
}


ENTRIES: Final = (NavigationEntry(path="/usage", name="Usage", scopes=(*VIEWING, *ADMIN), after="/keys"),)


class UsageReport:
    """The page of usage. `now_s` returns the Unix time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        readers = (*VIEWING, *ADMIN)
        return (Page("GET", "/usage", self._show_usage, readers), Page("GET", "/usage/csv", self._build_table, readers))

    async def _show_usage(self, visit: Visit) -> web.Response:
        by, days, span = self._parse_query(visit)
        daily = await visit.api.get("context", "usage", by="day", **span)
        found = await visit.api.get("context", "usage", by=by, **span)
        largest = sorted(found["data"], key=lambda row: (-(row["input"] + row["output"]), -row["requests"]))
        rows = sort_rows(largest, visit.query.get("sort"), {by: lambda row: row[by].casefold(), **COLUMNS})
        return await visit.render_page(
            "usage.html",
            title="Usage",
            enabled=daily["enabled"],
            charts=await _build_charts(visit, daily["data"], by, days=list_days(span["from"], days), span=span),
            sums=sum_counts(daily["data"]),
            costs=sum_costs(daily["data"]),
            rows=rows[:SHOWN],
            left_out=max(len(rows) - SHOWN, 0),
            by=by,
            days=days,
            kinds=KINDS,
            spans=SPANS,
        )

    async def _build_table(self, visit: Visit) -> web.StreamResponse:
        """Return the table of the API with all of its rows."""
        by, _, span = self._parse_query(visit)
        return await visit.stream_table(
            "context", "usage", file=f"usage-{span['from']}-{span['to']}.csv", by=by, **span
        )

    def _parse_query(self, visit: Visit) -> tuple[str, int, Mapping[str, str]]:
        """Return what the query sums by, the number of days, and the first and the last of them."""
        kind = visit.query.get("by", "")
        days = next((span for span in SPANS if str(span) == visit.query.get("days")), USUAL_DAYS)
        until = datetime.fromtimestamp(self._now_s(), UTC).date()
        since = until - timedelta(days=days - 1)
        return kind if kind in KINDS else "model", days, {"from": since.isoformat(), "to": until.isoformat()}


def build_pages(now_s: Callable[[], float]) -> Sequence[Page]:
    """Return the pages. `now_s` returns the Unix time."""
    return UsageReport(now_s).list_pages()


async def _build_charts(
    visit: Visit, daily: Sequence[Json], by: str, *, days: Sequence[str], span: Mapping[str, str]
) -> Sequence[DayChart]:
    """Return the charts of the page; only the first one if the API has too many rows for the others."""
    whole = build_token_chart(daily, days, t=visit.t)
    if whole is None:
        return ()
    try:
        split = await visit.api.get("context", "usage", by=f"day,{by}", **span)
    except ApiError as error:
        if error.param != "by":
            raise
        return (whole,)
    return (whole, *build_split_charts(split["data"], by, days, t=visit.t))


def build_token_chart(rows: Sequence[Json], days: Sequence[str], *, t: Translate) -> DayChart | None:
    """Return the chart of the tokens of these days, the input below the output; None if none has tokens."""
    parts = [
        ChartPart(name=name, label=t(word), style=style, amounts=_sum_by_day((row["day"], row[name]) for row in rows))
        for name, word, style in (("input", "Input", 1), ("output", "Output", 3))
    ]
    return build_day_chart(t("Tokens of each day"), parts, days, text_of=format_amount, t=t)


def build_split_charts(rows: Sequence[Json], by: str, days: Sequence[str], *, t: Translate) -> Sequence[DayChart]:
    """Return the charts of the tokens and of the costs of these days, split by `by`; one for each currency.

    A name has one style in all of them.
    """
    kind = t(KINDS[by])
    tokens = _sum_by_name((row[by], row["day"], row["input"] + row["output"]) for row in rows)
    parts = rank_parts(tokens, label_of=_format_name, others=t("others"), styles={})
    charts = [build_day_chart(t("Tokens of each day by {0}", kind), parts, days, text_of=format_amount, t=t)]
    styles = {part.name: part.style for part in parts if part.style != OTHERS}
    for currency in sorted({row["currency"] for row in rows if row["currency"] is not None}):
        costs = _sum_by_name((row[by], row["day"], row["cost"]) for row in rows if row["currency"] == currency)
        title = t("Cost of each day by {0}, in {1}", kind, format_line(currency))
        parts = rank_parts(costs, label_of=_format_name, others=t("others"), styles=styles)
        charts.append(build_day_chart(title, parts, days, text_of=_format_cost, t=t))
    return [chart for chart in charts if chart is not None]


def sum_counts(rows: Sequence[Json]) -> Mapping[str, int]:
    """Return the sums of all rows."""
    return {name: sum(row[name] for row in rows) for name in COUNTS}


def sum_costs(rows: Sequence[Json]) -> Sequence[tuple[str, float]]:
    """Return the cost in each currency."""
    costs: dict[str, float] = {}
    for row in rows:
        if row["currency"] is not None:
            costs[row["currency"]] = costs.get(row["currency"], 0.0) + row["cost"]
    return sorted(costs.items())


def _sum_by_name(amounts: Iterable[tuple[str, str, float]]) -> Mapping[str, Amounts]:
    """Return the amounts of each day by name, of (name, day, amount)."""
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, day, amount in amounts:
        found[name][day] += amount
    return found


def _sum_by_day(amounts: Iterable[tuple[str, float]]) -> Amounts:
    found: defaultdict[str, float] = defaultdict(float)
    for day, amount in amounts:
        found[day] += amount
    return found


def _format_name(name: str) -> str:
    """Return the text of a name. Upstreams choose the names of models, so one may be ""."""
    return format_line(name) if name else "–"


def _format_cost(cost: float) -> str:
    return f"{cost:.2f}" if cost >= 1 or not cost else f"{cost:.4f}"
