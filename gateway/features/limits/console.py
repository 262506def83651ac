"""The page of limits: what is used of each now, as a bar, and how many requests were over it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.console.rendering import format_amount
from gateway.console.request import ADMIN, VIEWING, NavigationEntry, Page, Visit
from gateway.console.sorting import Key, sort_rows
from gateway.contracts.allowance import LIMITS, PERIODS
from gateway.contracts.storage.store import Json

#: Scopes and limits, in words.
SCOPES: Final[Mapping[str, str]] = {"key": "Key", "tenant": "Tenant", "model": "Model", "upstream": "Upstream"}
WORDS: Final[Mapping[str, str]] = {
    **{limit: limit.replace("_", " ") for limit in LIMITS},
    "concurrent": "requests under way",
}
#: When a budget begins anew.
RENEWED: Final[Mapping[str, str]] = {
    **{period: f"next {period} (UTC)" for period in PERIODS},
    "day": "tomorrow (UTC)",
}
#: So many limits stand on the page; of more than these, the fullest.
SHOWN: Final = 200
#: From this share on a bar warns.
NEAR: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBar:
    """One limit. `share` is what is used of it, 1 for all; `width` that of its bar, in percent."""

    limit: Json
    share: float
    used: str
    most: str
    renewed: str | None

    @property
    def width(self) -> float:
        return round(min(self.share, 1.0) * 100, 1)

    @property
    def level(self) -> str:
        """Return the class of the bar, by how full it is."""
        return "full" if self.share >= 1 else "near" if self.share >= NEAR else ""


#: What the limits can be sorted by.
COLUMNS: Final[Mapping[str, Key]] = {
    "name": lambda bar: (bar.limit["scope"], bar.limit["name"].casefold()),
    "limit": lambda bar: bar.limit["limit"],
    "used": lambda bar: bar.share,
    "empty": lambda bar: bar.limit["resets_in_s"],
    "over": lambda bar: bar.limit["over"],
}


ENTRIES: Final = (NavigationEntry(path="/limits", name="Limits", scopes=(*VIEWING, *ADMIN), after="/usage"),)


class LimitsPage:
    """The page of limits. `now_s` returns the Unix time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        return (Page("GET", "/limits", self._show_limits, (*VIEWING, *ADMIN)),)

    async def _show_limits(self, visit: Visit) -> web.Response:
        bars = [build_bar(limit) for limit in (await visit.api.get("context", "limits"))["data"]]
        return await visit.render_page_in_parts(
            "limits.html",
            part="limits_now.html",
            title="Limits",
            bars=sort_rows(select_fullest(bars), visit.query.get("sort"), COLUMNS),
            left_out=max(len(bars) - SHOWN, 0),
            read_at=self._now_s(),
            scopes=SCOPES,
            words=WORDS,
        )


def build_pages(now_s: Callable[[], float]) -> Sequence[Page]:
    """Return the pages. `now_s` returns the Unix time."""
    return LimitsPage(now_s).list_pages()


def build_bar(limit: Json) -> LimitBar:
    """Return the bar of a limit of the API. A limit of zero is full."""
    kind, _, period = limit["limit"].partition("_per_")
    used, most = limit["used"], limit["most"]
    told = _format_cost if kind == "cost" else format_amount
    return LimitBar(
        limit=limit,
        share=used / most if most else 1.0,
        used=told(used),
        most=told(most),
        renewed=RENEWED.get(period),
    )


def select_fullest(bars: Sequence[LimitBar]) -> Sequence[LimitBar]:
    """Return the limits that stand on the page: all, in their order, or the fullest of too many."""
    return bars if len(bars) <= SHOWN else sorted(bars, key=lambda bar: -bar.share)[:SHOWN]


def _format_cost(amount: float) -> str:
    return f"{amount:.2f}"
