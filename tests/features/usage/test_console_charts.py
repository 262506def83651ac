"""Charts of days: parts above each other, the largest by name, and every amount as a text."""

import pytest

from gateway.console.rendering import format_amount
from gateway.console.translation import get_translator
from gateway.features.usage.console_charts import (
    HEIGHT_PX,
    LEAST_PX,
    NAMED_MOST,
    OTHERS,
    ChartPart,
    build_day_chart,
    list_days,
    rank_parts,
)

EN = get_translator("en")
DAYS = list_days("2026-11-28", 4)


def part(name: str, style: int, **amounts: float) -> ChartPart:
    """A part with amounts by the number of the day: `d0=5`."""
    return ChartPart(
        name=name, label=name, style=style, amounts={DAYS[int(day[1:])]: one for day, one in amounts.items()}
    )


def test_days_span_the_end_of_a_month() -> None:
    assert DAYS == ["2026-11-28", "2026-11-29", "2026-11-30", "2026-12-01"]


def test_day_chart_stacks_parts_and_keeps_empty_days() -> None:
    """The highest one fills the chart, and each piece stands on the one before; words and texts have the amounts."""
    chart = build_day_chart(
        "Tokens", [part("a", 1, d1=80, d2=1), part("b", 2, d1=20)], DAYS, text_of=format_amount, t=EN
    )
    assert chart is not None
    none, highest, little, _ = chart.bars
    assert none.pieces == [] and none.words == "2026-11-28: "
    below, above = highest.pieces
    assert (below.top, below.height, above.top, above.height) == (30, 120, 0, 30)
    assert [one.height for one in little.pieces] == [LEAST_PX]
    assert [bar.left for bar in chart.bars] == [2.5, 27.5, 52.5, 77.5]
    assert highest.words == "2026-11-29: a 80, b 20" and little.words == "2026-11-30: a 1"
    assert (highest.amounts, highest.total, chart.most, chart.totals) == (["80", "20"], "100", "100", ["81", "20"])
    assert chart.words == "Tokens, from 2026-11-28 to 2026-12-01, at most 100. a 81, b 20"


def test_small_chart_parts_keep_a_minimum_height() -> None:
    parts = [part("a", 1, d0=1_000_000), *(part(f"p{at}", at, d0=1) for at in range(2, 7))]
    chart = build_day_chart("Tokens", parts, DAYS, text_of=format_amount, t=EN)
    assert chart is not None
    pieces = chart.bars[0].pieces
    assert len(pieces) == 6 and min(piece.height for piece in pieces) == LEAST_PX
    assert sum(piece.height for piece in pieces) == pytest.approx(HEIGHT_PX, abs=0.5)
    assert pieces[-1].top == pytest.approx(0, abs=0.5)


def test_usage_chart_without_amounts_is_omitted() -> None:
    assert build_day_chart("Tokens", [part("a", 1, d0=0)], DAYS, text_of=format_amount, t=EN) is None
    assert build_day_chart("Tokens", [], DAYS, text_of=format_amount, t=EN) is None


def test_rank_parts_names_the_largest_and_merges_the_rest() -> None:
    """One that used nothing is no part."""
    amounts = {f"m{at}": {DAYS[0]: float(at), DAYS[1]: 1.0} for at in range(9)} | {"idle": {DAYS[0]: 0.0}}
    found = rank_parts(amounts, label_of=str.upper, others="others", styles={})
    assert [one.label for one in found] == ["M8", "M7", "M6", "M5", "M4", "M3", "others"]
    assert [one.style for one in found] == [*range(1, NAMED_MOST + 1), OTHERS]
    assert found[-1].amounts == {DAYS[0]: 0 + 1 + 2, DAYS[1]: 3}


def test_chart_part_keeps_its_style_across_charts() -> None:
    """Names that are new take the styles that are left."""
    amounts = {name: {DAYS[0]: used} for name, used in (("new", 3.0), ("a", 2.0), ("b", 1.0))}
    found = rank_parts(amounts, label_of=str, others="others", styles={"a": 1, "b": 2, "gone": 3})
    assert [(one.name, one.style) for one in found] == [("new", 3), ("a", 1), ("b", 2)]
