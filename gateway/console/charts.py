"""The geometry of pictures of the console: numbers that a template draws as SVG.

Across, everything is in percent, so that a picture fits every width and its texts keep their size; down, in pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ROW_PX: Final = 24
#: Below the rows: the times of the axis.
AXIS_PX: Final = 22
#: A bar of no length is still to be seen.
LEAST_PERCENT: Final = 0.4
#: At most so many parts of the axis, so that its times have room on a phone.
PARTS_MOST: Final = 4
#: Lengths of a part of the axis from a minute on, in seconds; above days, a multiple of ten of them.
_STEPS_S: Final = (60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A stretch of time in one row. `kind` is a class of the style sheet."""

    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row of a picture over time, before it has a place."""

    label: str
    number: int
    spans: Sequence[TimeSpan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of time with its place in the picture, in percent of the width."""

    kind: str
    left: float
    width: float
    start_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row with its place from the top, in pixels. `duration_s` is the time of all its bars."""

    label: str
    number: int
    top: int
    bars: Sequence[Bar]
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One time of the axis: its place in percent, and the seconds since the begin."""

    left: float
    offset_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """A picture of rows over time, from `begin_s` for `span_s` seconds, with the kinds of its bars. Heights: pixels."""

    rows: Sequence[Row]
    ticks: Sequence[Tick]
    kinds: frozenset[str]
    begin_s: float
    span_s: float
    height: int
    axis_top: int


def draw_timeline(lanes: Sequence[Lane]) -> OverTime | None:
    """Return the picture of these rows, to scale, from the first begin to the last end; None if nothing has a time."""
    spans = [span for lane in lanes for span in lane.spans]
    if not spans:
        return None
    begin_s = min(span.start_s for span in spans)
    span_s = max(max(span.end_s for span in spans) - begin_s, 0.001)
    rows = [_draw_row(lane, at * ROW_PX, begin_s=begin_s, span_s=span_s) for at, lane in enumerate(lanes)]
    axis_top = len(rows) * ROW_PX
    return OverTime(
        rows=rows,
        ticks=[
            Tick(left=_compute_percent(offset_s, span_s), offset_s=offset_s) for offset_s in _choose_offsets(span_s)
        ],
        kinds=frozenset(span.kind for span in spans),
        begin_s=begin_s,
        span_s=span_s,
        height=axis_top + AXIS_PX,
        axis_top=axis_top,
    )


def _draw_row(lane: Lane, top: int, *, begin_s: float, span_s: float) -> Row:
    bars = [_draw_bar(span, begin_s=begin_s, span_s=span_s) for span in lane.spans]
    duration_s = sum(bar.duration_s for bar in bars)
    return Row(label=lane.label, number=lane.number, top=top, bars=bars, duration_s=duration_s)


def _draw_bar(span: TimeSpan, *, begin_s: float, span_s: float) -> Bar:
    duration_s = max(span.end_s - span.start_s, 0.0)
    width = max(_compute_percent(duration_s, span_s), LEAST_PERCENT)
    left = min(_compute_percent(span.start_s - begin_s, span_s), 100 - width)
    return Bar(kind=span.kind, left=round(left, 2), width=width, start_s=span.start_s, duration_s=duration_s)


def _compute_percent(part_s: float, whole_s: float) -> float:
    return round(100 * part_s / whole_s, 2)


def _choose_offsets(span_s: float) -> Sequence[float]:
    """Return round times from 0 up to the span, whole milliseconds: times that differ have texts that do."""
    step_s = max(_step_s(span_s / PARTS_MOST), 0.001)
    return [round(step_s * at, 6) for at in range(math.floor(span_s / step_s + 1e-9) + 1)]


def _step_s(least_s: float) -> float:
    """Return a round length of at least so many seconds."""
    if least_s <= 30:
        power = 10.0 ** math.floor(math.log10(least_s))
        return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_s * (1 - 1e-9))
    if least_s <= _STEPS_S[-1]:
        return next(step_s for step_s in _STEPS_S if step_s >= least_s)
    return 86400 * 10.0 ** math.ceil(math.log10(least_s / 86400))
