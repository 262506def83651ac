"""Counts of the context lane: only what the tables name, in their labels, and a bounded number of series."""

import pytest
from agent.doubles import samples
from metrics_page import busy_context, check_by_promtool, page_of
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.counters import COUNTER_LIMIT, COUNTERS, HISTOGRAM_LIMIT, HISTOGRAMS, ContextCounters


def test_context_counters_without_counts_expose_no_series() -> None:
    """A gateway without context requests has no series of them."""
    assert list(ContextCounters().collect_counts()) == []


def test_every_context_metric_is_exposed_with_name_and_labels() -> None:
    """The page is valid for the parser and for promtool, and holds each metric of the tables, explained."""
    text = page_of(busy_context().collect_counts()).decode()
    check_by_promtool(text.encode())
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families.keys() == {f"gateway_{name}" for name in (*COUNTERS, *HISTOGRAMS)}
    for name, facts in {**COUNTERS, **HISTOGRAMS}.items():
        family = families[f"gateway_{name}"]
        assert family.documentation == facts.help
        assert {label for sample in family.samples for label in sample.labels} - {"le"} == set(facts.labels)


def test_counts_add_up_by_label() -> None:
    """Each combination for itself; the order in which labels are given does not matter."""
    counters = ContextCounters()
    counters.count("tool_calls", tool="a", outcome="ok")
    counters.count("tool_calls", outcome="ok", tool="a")
    counters.count("tool_calls", tool="a", outcome="failed")
    counters.observe("tool_duration_seconds", 0.5, tool="a")
    counters.observe("tool_duration_seconds", 1.5, tool="a")
    found = samples(counters)
    assert found["gateway_tool_calls_total", ("a", "ok")] == 2
    assert found["gateway_tool_calls_total", ("a", "failed")] == 1
    assert found["gateway_tool_duration_seconds_sum", ("a",)] == 2
    assert found["gateway_tool_duration_seconds_count", ("a",)] == 2


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("nope", {}),
        ("tool_calls", {}),
        ("tool_calls", {"tool": "a"}),
        ("tool_calls", {"tool": "a", "result": "ok"}),
        ("prompt_truncations", {"tool": "a"}),
    ],
)
def test_unknown_metric_or_label_fails_at_the_call(name: str, labels: dict[str, str]) -> None:
    """Not later, when the page of all metrics is asked for."""
    counters = ContextCounters()
    with pytest.raises(KeyError):
        counters.count(name, **labels)
    with pytest.raises(KeyError):
        counters.observe("tool_duration_seconds", 1.0, **labels, stage="x")
    assert list(counters.collect_counts()) == []


def test_excess_label_values_share_the_other_series() -> None:
    """However many tools there are: the first have series of their own, all are counted."""
    counters = ContextCounters()
    for i in range(500):
        counters.count("stage_skips", stage=f"s{i}")
        counters.observe("tool_duration_seconds", 0.1, tool=f"t{i}")
    counters.count("stage_skips", stage="s0")
    found = samples(counters)
    skips = {labels: value for (name, labels), value in found.items() if name == "gateway_stage_skips_total"}
    tools = {labels: value for (name, labels), value in found.items() if name == "gateway_tool_duration_seconds_count"}
    assert len(skips) == COUNTER_LIMIT + 1 and len(tools) == HISTOGRAM_LIMIT + 1
    assert sum(skips.values()) == 501 and sum(tools.values()) == 500
    assert skips["s0",] == 2 and skips["other",] == 500 - COUNTER_LIMIT


def test_observing_several_values_equals_observing_each() -> None:
    counters = ContextCounters()
    counters.observe_all("model_duration_seconds", [0.5, 1.5], lane="context", model="m")
    counters.observe("model_duration_seconds", 3.0, lane="context", model="m")
    found = samples(counters)
    assert found["gateway_model_duration_seconds_sum", ("context", "m")] == 5
    assert found["gateway_model_duration_seconds_count", ("context", "m")] == 3


def test_histogram_bounds_are_strictly_increasing() -> None:
    """As Prometheus wants them."""
    for facts in HISTOGRAMS.values():
        assert list(facts.bounds) == sorted(set(facts.bounds)) and facts.bounds
