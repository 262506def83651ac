"""The geometry of pictures over time."""

import pytest

from gateway.console.charts import AXIS_PX, LEAST_PERCENT, ROW_PX, Lane, OverTime, TimeSpan, draw_timeline
from gateway.console.rendering import format_seconds


def drawn(*spans: tuple[str, float, float]) -> OverTime:
    """The picture of these stretches of time, a row each."""
    lanes = [
        Lane(label=kind, number=at, spans=[TimeSpan(kind=kind, start_s=start_s, end_s=end_s)])
        for at, (kind, start_s, end_s) in enumerate(spans)
    ]
    picture = draw_timeline(lanes)
    assert picture is not None
    return picture


def test_bars_are_to_scale() -> None:
    """From the first begin to the last end, a row each."""
    picture = drawn(("model", 100.0, 101.0), ("approval", 101.0, 108.0), ("tool", 108.0, 110.0))
    assert [(row.top, row.bars[0].left, row.bars[0].width, row.duration_s) for row in picture.rows] == [
        (0, 0.0, 10.0, 1.0),
        (ROW_PX, 10.0, 70.0, 7.0),
        (2 * ROW_PX, 80.0, 20.0, 2.0),
    ]
    assert (picture.begin_s, picture.span_s, picture.kinds) == (100.0, 10.0, {"model", "approval", "tool"})
    assert (picture.axis_top, picture.height) == (3 * ROW_PX, 3 * ROW_PX + AXIS_PX)


def test_instant_spans_are_drawn_with_minimum_width() -> None:
    """Also at the very end, and where nothing took any time; an end before its begin is none."""
    picture = drawn(("model", 0.0, 1000.0), ("tool", 1000.0, 1000.0), ("bad", 500.0, 400.0))
    assert [(row.bars[0].left, row.bars[0].width) for row in picture.rows[1:]] == [
        (100 - LEAST_PERCENT, LEAST_PERCENT),
        (50.0, LEAST_PERCENT),
    ]
    (only,) = drawn(("tool", 5.0, 5.0)).rows
    assert (only.bars[0].left, only.bars[0].width) == (0.0, LEAST_PERCENT)


def test_timeline_without_spans_is_omitted() -> None:
    assert draw_timeline([]) is None
    assert draw_timeline([Lane(label="planned", number=0, spans=[])]) is None


def test_timeline_row_without_a_time_has_no_bar() -> None:
    picture = draw_timeline(
        [
            Lane(label="a", number=0, spans=[TimeSpan(kind="tool", start_s=0, end_s=1)]),
            Lane(label="b", number=1, spans=[]),
        ]
    )
    assert picture is not None
    assert [len(row.bars) for row in picture.rows] == [1, 0]


@pytest.mark.parametrize(
    ("span_s", "offsets"),
    [
        (0.002, [0, 0.001, 0.002]),
        (0.004, [0, 0.001, 0.002, 0.003, 0.004]),
        (0.2, [0, 0.05, 0.1, 0.15, 0.2]),
        (2.2, [0, 1, 2]),
        (10.0, [0, 5, 10]),
        (47.0, [0, 20, 40]),
        (100.0, [0, 50, 100]),
        (200.0, [0, 60, 120, 180]),
        (3600.0, [0, 1200, 2400, 3600]),
        (86400.0, [0, 21600, 43200, 64800, 86400]),
        (30 * 86400.0, [0, 864000, 1728000, 2592000]),
    ],
)
def test_timeline_axis_has_few_round_times(span_s: float, offsets: list[float]) -> None:
    picture = drawn(("approval", 7.0, 7.0 + span_s))
    assert [tick.offset_s for tick in picture.ticks] == pytest.approx(offsets)
    assert all(0 <= tick.left <= 100 for tick in picture.ticks)
    assert len({format_seconds(tick.offset_s) for tick in picture.ticks}) == len(offsets)
