"""Counts and gauges as text, in Prometheus' format or as OpenMetrics, which differ in the lines around the values.

The text in front of each value is written once and cached.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from gateway.contracts.figures import Counts, Key
from gateway.telemetry.metrics import MetricFacts

#: Name, help, labels in their order, value.
Gauge = tuple[str, str, list[tuple[str, str]], float]
_Labels = Iterable[tuple[str, str]]


class PageText:
    """The writer of pages. `facts` names the counts, in the order of the page. It may grow."""

    def __init__(self, facts: Mapping[str, MetricFacts]) -> None:
        self._facts = facts
        self._heads: dict[Key, Sequence[str]] = {}

    def render(self, counts: Counts, gauges: Iterable[Gauge], *, openmetrics: bool = False) -> bytes:
        """Return one page of metrics, in Prometheus' text format or as OpenMetrics."""
        lines: list[str] = []
        by_family: defaultdict[str, list[Key]] = defaultdict(list)
        for key in counts:
            by_family[key[0]].append(key)
        for family, facts in self._facts.items():
            keys = by_family.get(family, ())
            if keys:
                name = family if facts.bounds or openmetrics else f"{family}_total"
                lines.append(
                    _format_title(name, facts.help, "histogram" if facts.bounds else "counter", quote=openmetrics)
                )
            for key in keys:
                heads = self._heads.get(key)
                if heads is None:
                    heads = self._heads[key] = _build_heads(key, facts)
                values: Sequence[float] = counts[key]
                if facts.bounds:
                    *buckets, total = values
                    below = list(accumulate(buckets))
                    values = (*below, below[-1], total)
                lines += [f"{head}{value!r}\n" for head, value in zip(heads, map(float, values), strict=True)]
        end = "# EOF\n" if openmetrics else ""
        return "".join((*lines, *_format_gauge_lines(gauges, quote=openmetrics), end)).encode()


def _format_title(name: str, text: str, kind: str, *, quote: bool) -> str:
    """Return the lines in front of a family. `quote`: quotation marks in its help are escaped, too."""
    return f"# HELP {name} {_escape_text(text, quote=quote)}\n# TYPE {name} {kind}\n"


def _build_heads(key: Key, facts: MetricFacts) -> Sequence[str]:
    """Return the text in front of each value of a counter, or of a histogram's buckets, count and sum."""
    family, values = key
    labels = list(zip(facts.labels, values, strict=True))
    if not facts.bounds:
        return (_format_head(f"{family}_total", labels),)
    bounds = (*map(str, map(float, facts.bounds)), "+Inf")
    buckets = [_format_head(f"{family}_bucket", [*labels, ("le", bound)]) for bound in bounds]
    return (*buckets, _format_head(f"{family}_count", labels), _format_head(f"{family}_sum", labels))


def _format_gauge_lines(gauges: Iterable[Gauge], *, quote: bool) -> Iterable[str]:
    """Return the lines of gauges, grouped by name, each group behind its title."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name, text, labels, value in gauges:
        if name not in by_name:
            by_name[name].append(_format_title(name, text, "gauge", quote=quote))
        by_name[name].append(f"{_format_head(name, labels)}{value!r}\n")
    return (line for lines in by_name.values() for line in lines)


def _format_head(name: str, labels: _Labels) -> str:
    inside = ",".join(f'{label}="{_escape_text(value, quote=True)}"' for label, value in sorted(labels))
    return f"{name}{{{inside}}} " if inside else f"{name} "


def _escape_text(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
