"""Text in Prometheus' format, as its own parser reads it."""

from metrics_page import check_by_promtool, samples
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gateway.telemetry.metrics import MetricFacts
from gateway.telemetry.page_text import PageText

FACTS = {"a": MetricFacts("A: \\ and\nline", ("x",)), "h": MetricFacts("H", ("x",), (0.5, 1)), "z": MetricFacts("Z")}


def test_counters_and_histograms_render_as_prometheus_text() -> None:
    """Buckets are cumulative; names come as they are counted, without those that nothing was counted of."""
    odd = 'q"\\\n'
    text = PageText(FACTS).render({("a", (odd,)): (3,), ("h", ("v",)): (1, 2, 4, 9.5)}, ())
    check_by_promtool(text.replace(b"a_total", b"gateway_a_total"))
    assert samples(text) == {
        ("a_total", (("x", odd),)): 3,
        ("h_bucket", (("le", "0.5"), ("x", "v"))): 1,
        ("h_bucket", (("le", "1.0"), ("x", "v"))): 3,
        ("h_bucket", (("le", "+Inf"), ("x", "v"))): 7,
        ("h_count", (("x", "v"),)): 7,
        ("h_sum", (("x", "v"),)): 9.5,
    }


def test_openmetrics_has_the_same_series() -> None:
    """By the strict parser of that format: counters are named without `_total` in front of their samples."""
    odd = 'q"\\\n'
    counts = {("a", (odd,)): (3.0,), ("h", ("v",)): (1.0, 2.0, 4.0, 9.5)}
    gauges = [("g", 'G "quoted"', [("x", odd)], 1.5)]
    page = PageText(FACTS)
    text = page.render(counts, gauges, openmetrics=True)
    assert text.endswith(b"# EOF\n")
    families = {family.name: family for family in parse_openmetrics(text.decode())}
    assert {name: family.type for name, family in families.items()} == {"a": "counter", "h": "histogram", "g": "gauge"}
    assert families["g"].documentation == 'G "quoted"'
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found == samples(page.render(counts, gauges))


def test_gauges_of_one_name_stand_together() -> None:
    """In whatever order they come; a page twice is the same page."""
    page = PageText(FACTS)
    gauges = [("g", "G", [("x", "1")], 1.5), ("f", "F", [], 2.0), ("g", "G", [("x", "2")], float("inf"))]
    text = page.render({("z", ()): (1,)}, gauges)
    assert samples(text) == {
        ("z_total", ()): 1,
        ("g", (("x", "1"),)): 1.5,
        ("g", (("x", "2"),)): float("inf"),
        ("f", ()): 2,
    }
    assert text.count(b"# TYPE") == 3 and page.render({("z", ()): (1,)}, gauges) == text
