"""Charts of the usage of each day, split by one dimension: the geometry of stacked bars, and their texts. Pure.

Across, everything is in percent, so that a chart fits every width; down, in pixels.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, TypeAlias

from gateway.console.translation import Translate

#: So many names have a part of their own; the others share one. The style sheet has a colour and a pattern for each.
NAMED_MOST: Final = 6
#: The style of the part of all others.
OTHERS: Final = 0
#: The bars; the axis below them has a pixel more.
HEIGHT_PX: Final = 150
#: The part of its place that a bar fills.
FILLED: Final = 0.8
#: A part of few tokens is still to be seen.
LEAST_PX: Final = 1.5

#: What a name used on each day.
Amounts: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPart:
    """The part of one name. `style` is the number of its colour and pattern; `OTHERS` is that of the rest."""

    name: str
    label: str
    style: int
    amounts: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of the bar of a day: its place from the top and its height, in pixels."""

    style: int
    top: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBar:
    """The bar of a day: its place in percent of the width, its pieces, and the amounts of all parts as texts."""

    day: str
    left: float
    width: float
    pieces: Sequence[Piece]
    amounts: Sequence[str]
    total: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayChart:
    """Bars of days, one part above the other. `most` is the highest bar, `totals` the sum of each part, as texts."""

    title: str
    parts: Sequence[ChartPart]
    totals: Sequence[str]
    bars: Sequence[DayBar]
    most: str
    words: str


def list_days(since: str, days: int) -> Sequence[str]:
    """Return so many days from `since` on."""
    begin = date.fromisoformat(since)
    return [(begin + timedelta(days=number)).isoformat() for number in range(days)]


def rank_parts(
    amounts: Mapping[str, Amounts], *, label_of: Callable[[str], str], others: str, styles: Mapping[str, int]
) -> Sequence[ChartPart]:
    """Return the names that used most, most first, and one part with the label `others` for the rest.

    A name keeps the style that `styles` has for it, so that it looks alike in two charts.
    """
    sums = {name: sum(each.values()) for name, each in amounts.items()}
    names = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))
    named, rest = names[:NAMED_MOST], names[NAMED_MOST:]
    known = {name: styles[name] for name in named if name in styles}
    free = iter(sorted(set(range(1, NAMED_MOST + 1)) - set(known.values())))
    chosen = {name: known[name] if name in known else next(free) for name in named}
    parts = [ChartPart(name=name, label=label_of(name), style=chosen[name], amounts=amounts[name]) for name in named]
    if rest:
        summed: defaultdict[str, float] = defaultdict(float)
        for name in rest:
            for day, amount in amounts[name].items():
                summed[day] += amount
        parts.append(ChartPart(name="", label=others, style=OTHERS, amounts=summed))
    return parts


def build_day_chart(
    title: str, parts: Sequence[ChartPart], days: Sequence[str], *, text_of: Callable[[float], str], t: Translate
) -> DayChart | None:
    """Return the chart of these days, the first part at the bottom; None if none of them has an amount."""
    top = max(sum(part.amounts.get(day, 0.0) for part in parts) for day in days)
    if not top:
        return None
    place = 100 / len(days)
    bars = []
    for number, day in enumerate(days):
        amounts = [part.amounts.get(day, 0.0) for part in parts]
        texts = [text_of(amount) for amount in amounts]
        told = [f"{part.label} {text}" for part, text, amount in zip(parts, texts, amounts, strict=True) if amount]
        bars.append(
            DayBar(
                day=day,
                left=round(number * place + place * (1 - FILLED) / 2, 3),
                width=round(place * FILLED, 3),
                pieces=_build_bar_pieces(parts, amounts, top),
                amounts=texts,
                total=text_of(sum(amounts)),
                words=f"{day}: {', '.join(told)}",
            )
        )
    most = text_of(top)
    totals = [text_of(sum(part.amounts.get(day, 0.0) for day in days)) for part in parts]
    words = t("{0}, from {1} to {2}, at most {3}.", title, days[0], days[-1], most)
    named = ", ".join(f"{part.label} {total}" for part, total in zip(parts, totals, strict=True))
    return DayChart(title=title, parts=parts, totals=totals, bars=bars, most=most, words=f"{words} {named}")


def _build_bar_pieces(parts: Sequence[ChartPart], amounts: Sequence[float], top: float) -> Sequence[Piece]:
    """Return the pieces of a bar from the bottom up. Small ones take from the largest: the bar keeps its height."""
    whole = max(sum(amounts) / top * HEIGHT_PX, LEAST_PX)
    heights = [max(amount / top * HEIGHT_PX, LEAST_PX) if amount else 0.0 for amount in amounts]
    if amounts and sum(heights) > whole:
        largest = max(range(len(heights)), key=heights.__getitem__)
        heights[largest] = max(heights[largest] - (sum(heights) - whole), LEAST_PX)
    pieces, bottom = [], float(HEIGHT_PX)
    for part, height in zip(parts, heights, strict=True):
        if height:
            bottom = max(bottom - height, 0.0)
            pieces.append(Piece(style=part.style, top=round(bottom, 1), height=round(height, 1)))
    return pieces
