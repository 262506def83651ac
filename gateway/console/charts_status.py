"""Small charts of how a figure went over time: the geometry of their lines, and their words. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.console.translation import Translate
from gateway.contracts.storage.store import Json

#: The coordinates of a chart. A page stretches it to the width that there is.
WIDTH: Final = 360.0
HEIGHT: Final = 64.0
#: Room above and below the line, so that no stroke is cut off.
MARGIN: Final = 2.0
#: Samples further apart than this many times the usual step have a gap between them.
GAP_STEPS: Final = 2.5


@dataclass(frozen=True, slots=True)
class Sample:
    """One value at a time (Unix seconds); None where nothing was measured."""

    at_s: float
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart. `line` and `area` are paths of SVG; the extremes and the newest value are texts; `words` say it all.

    `begins_s` and `ends_s` are the times at its left and right edge.
    """

    title: str
    line: str
    area: str
    lowest: str
    highest: str
    newest: str
    words: str
    begins_s: float
    ends_s: float


def build_chart(
    title: str, samples: Sequence[Sample], *, step_s: float, text_of: Callable[[float], str], t: Translate
) -> Chart | None:
    """Return the chart of samples in the order of time; None if nothing was measured. Its scale begins at zero."""
    known = [(sample.at_s, sample.value) for sample in samples if sample.value is not None]
    if not known:
        return None
    values = [value for _, value in known]
    begins_s, ends_s = samples[0].at_s, samples[-1].at_s
    top = max(*values, 0.0) if len(values) > 1 else max(values[0], 0.0)
    runs = [
        [(_scale_time(at_s, begins_s, ends_s), _scale_value(value, top)) for at_s, value in run]
        for run in _split_runs(samples, gap_s=step_s * GAP_STEPS)
    ]
    lowest, highest, newest = text_of(min(values)), text_of(max(values)), text_of(values[-1])
    words = t("{0}: at least {1}, at most {2}, most recently {3}.", title, lowest, highest, newest)
    return Chart(
        title=title,
        line=" ".join(_draw_line(run) for run in runs),
        area=" ".join(_draw_area(run) for run in runs if len(run) > 1),
        lowest=lowest,
        highest=highest,
        newest=newest,
        words=words,
        begins_s=begins_s,
        ends_s=ends_s,
    )


def get_samples(points: Sequence[Json], name: str) -> Sequence[Sample]:
    """Return the samples of one figure of a history."""
    return [Sample(point["at"], _read_number(point, name)) for point in points]


def _read_number(point: Mapping[str, object], name: str) -> float | None:
    value = point.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _split_runs(samples: Sequence[Sample], *, gap_s: float) -> Sequence[Sequence[tuple[float, float]]]:
    """Return the stretches without a gap, of times and values."""
    runs: list[list[tuple[float, float]]] = []
    before_s: float | None = None
    for sample in samples:
        if sample.value is None:
            before_s = None
            continue
        if before_s is None or sample.at_s - before_s > gap_s:
            runs.append([])
        runs[-1].append((sample.at_s, sample.value))
        before_s = sample.at_s
    return runs


def _scale_time(at_s: float, begins_s: float, ends_s: float) -> float:
    """Return the place of a time. A single one stands at the right edge: it is the newest."""
    return (
        WIDTH - MARGIN
        if ends_s <= begins_s
        else MARGIN + (WIDTH - 2 * MARGIN) * (at_s - begins_s) / (ends_s - begins_s)
    )


def _scale_value(value: float, top: float) -> float:
    share = value / top if top > 0 else 0.0
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * min(max(share, 0.0), 1.0)


def _draw_line(run: Sequence[tuple[float, float]]) -> str:
    """Return the path of a line; of one place a dot, which a line with round ends draws at no length."""
    begin, *rest = [f"{x:.1f} {y:.1f}" for x, y in run]
    return f"M{begin}" + ("".join(f"L{place}" for place in rest) or "h0")


def _draw_area(run: Sequence[tuple[float, float]]) -> str:
    floor = HEIGHT - MARGIN
    return f"{_draw_line(run)}L{run[-1][0]:.1f} {floor:.1f}L{run[0][0]:.1f} {floor:.1f}Z"
