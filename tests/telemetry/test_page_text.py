"""Text in Prometheus' format, as its own parser reads it."""

from metrics_page import check_by_promtool, samples

from gateway.telemetry.metrics import Facts
from gateway.telemetry.page_text import PageText

FACTS = {"a": Facts("A: \\ and\nline", ("x",)), "h": Facts("H", ("x",), (0.5, 1)), "z": Facts("Z")}


def test_counters_and_histograms() -> None:
    """Buckets are cumulative; names come as they are counted, without those that nothing was counted of."""
    odd = 'q"\\\n'
    text = PageText(FACTS).of({("a", (odd,)): (3,), ("h", ("v",)): (1, 2, 4, 9.5)}, ())
    check_by_promtool(text.replace(b"a_total", b"gateway_a_total"))
    assert samples(text) == {
        ("a_total", (("x", odd),)): 3,
        ("h_bucket", (("le", "0.5"), ("x", "v"))): 1,
        ("h_bucket", (("le", "1"), ("x", "v"))): 3,
        ("h_bucket", (("le", "+Inf"), ("x", "v"))): 7,
        ("h_count", (("x", "v"),)): 7,
        ("h_sum", (("x", "v"),)): 9.5,
    }


def test_gauges_of_one_name_stand_together() -> None:
    """In whatever order they come; a page twice is the same page."""
    page = PageText(FACTS)
    gauges = [("g", "G", [("x", "1")], 1.5), ("f", "F", [], 2.0), ("g", "G", [("x", "2")], float("inf"))]
    text = page.of({("z", ()): (1,)}, gauges)
    assert samples(text) == {
        ("z_total", ()): 1,
        ("g", (("x", "1"),)): 1.5,
        ("g", (("x", "2"),)): float("inf"),
        ("f", ()): 2,
    }
    assert text.count(b"# TYPE") == 3 and page.of({("z", ()): (1,)}, gauges) == text
