"""Charts of figures over time: the line that a reader sees, its extremes, and the words for who does not see it."""

import re

from gateway.console.charts_status import HEIGHT, MARGIN, WIDTH, Sample, build_chart, get_samples
from gateway.console.rendering import format_amount
from gateway.console.translation import get_translator

EN = get_translator("en")


def places(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_chart_line_scales_from_zero_to_the_highest_value() -> None:
    samples = [Sample(0, 0.0), Sample(60, 5.0), Sample(120, 10.0)]
    chart = build_chart("Requests", samples, step_s=60, text_of=format_amount, t=EN)
    assert chart is not None
    assert places(chart.line) == [(MARGIN, HEIGHT - MARGIN), (WIDTH / 2, HEIGHT / 2), (WIDTH - MARGIN, MARGIN)]
    assert (chart.lowest, chart.highest, chart.newest) == ("0", "10", "10")
    assert chart.words == "Requests: at least 0, at most 10, most recently 10."
    assert (chart.begins_s, chart.ends_s) == (0, 120)


def test_chart_of_zeros_is_a_line_at_the_bottom() -> None:
    chart = build_chart("Errors", [Sample(0, 0.0), Sample(60, 0.0)], step_s=60, text_of=format_amount, t=EN)
    assert chart is not None
    assert {y for _, y in places(chart.line)} == {HEIGHT - MARGIN}


def test_chart_of_a_single_sample_is_a_dot_at_the_right() -> None:
    chart = build_chart("Requests", [Sample(7, 3.0)], step_s=60, text_of=format_amount, t=EN)
    assert chart is not None
    assert chart.line == f"M{WIDTH - MARGIN:.1f} {MARGIN:.1f}h0"
    assert chart.area == ""


def test_chart_line_breaks_at_a_gap() -> None:
    samples = [Sample(0, 1.0), Sample(60, 1.0), Sample(120, None), Sample(180, 1.0), Sample(900, 1.0), Sample(960, 1.0)]
    chart = build_chart("Requests", samples, step_s=60, text_of=format_amount, t=EN)
    assert chart is not None
    assert chart.line.count("M") == 3
    assert chart.area.count("Z") == 2  # the lone sample in the middle is a dot


def test_chart_without_measurements_is_omitted() -> None:
    assert build_chart("Requests", [], step_s=60, text_of=format_amount, t=EN) is None
    assert build_chart("Requests", [Sample(0, None)], step_s=60, text_of=format_amount, t=EN) is None


def test_chart_keeps_negative_values_inside_its_area() -> None:
    chart = build_chart("Odd", [Sample(0, -4.0), Sample(60, 2.0)], step_s=60, text_of=format_amount, t=EN)
    assert chart is not None
    assert all(0 <= y <= HEIGHT for _, y in places(chart.line))


def test_get_samples_returns_numbers_or_none() -> None:
    points = [{"at": 1.0, "n": 2}, {"at": 2.0, "n": None}, {"at": 3.0}, {"at": 4.0, "n": True}]
    assert [sample.value for sample in get_samples(points, "n")] == [2.0, None, None, None]
