"""A metrics page, read by Prometheus's own parser and linter; and a process that has counted everything."""

import shutil
import subprocess
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from gateway.contracts.figures import Counted
from gateway.telemetry.counters import CONTEXT_FACTS, COUNTERS, HISTOGRAMS, ContextCounters
from gateway.telemetry.metrics import HTTP_FACTS, Metrics
from gateway.telemetry.page_text import PageText

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    """(name, sorted labels) -> value. A series that comes twice is an error."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def page_of(counted: Iterable[Counted]) -> bytes:
    """What was counted, as text."""
    text = PageText({**HTTP_FACTS, **CONTEXT_FACTS})
    return text.render({key: tuple(values) for key, values in counted}, ())


def check_by_promtool(text: bytes) -> None:
    """Prometheus's own linter has nothing to say, where it is installed."""
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def busy() -> Metrics:
    """Every kind of number, counted at least once."""
    metrics = Metrics()
    tally = metrics.route("/v1/", "passthrough")
    tally.count_codes("POST")[200] += 3
    tally.answered.observe(0.5)
    tally.streamed.observe(100.0)
    tally.overhead.observe(0.0002)
    upstream = metrics.get_upstream("openai")
    upstream.outcomes["ok"] += 2
    upstream.retries["stale"] += 1
    upstream.first_byte.observe(0.02)
    metrics.client_disconnects += 4
    metrics.deadlines["head"] += 5
    metrics.reloads["failure"] += 1
    metrics.last_reload_success_s = 1_700_000_000.5
    metrics.log_line_dropped()
    metrics.loop_lag.observe(0.001)
    metrics.further.append(busy_context().collect_counts)
    return metrics


def busy_context(*, values: int = 1) -> ContextCounters:
    """Every count of the context lane, with so many values of each label."""
    counters = ContextCounters()
    for i in range(values):
        for name, facts in COUNTERS.items():
            counters.count(name, **{label: f"{label} {i}" for label in facts.labels})
        for name, facts in HISTOGRAMS.items():
            counters.observe(name, i, **{label: f"{label} {i}" for label in facts.labels})
    return counters
