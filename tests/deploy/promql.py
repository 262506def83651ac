"""Queries for Prometheus, checked by the table of metrics in docs/operations.md."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
OPERATIONS = REPOSITORY / "docs" / "operations.md"
#: What prometheus_client and Prometheus itself have: names, and labels of every series.
OTHERS = ("up", "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes")
EVERYWHERE = {"instance", "job", "le"}


def metrics() -> Mapping[str, tuple[set[str], str]]:
    """Return the labels and the row of each metric that is documented; a test holds it against what is there."""
    rows = re.findall(r"^\| `(gateway_\w+)(?:\{([\w,]+)\})?` \| (\w+) \| (.*)$", OPERATIONS.read_text(), re.MULTILINE)
    found: dict[str, tuple[set[str], str]] = {name: (set(), "") for name in OTHERS}
    for name, labels, kind, row in rows:
        for suffix in ("_bucket", "_count", "_sum") if kind == "histogram" else ("",):
            found[name + suffix] = set(filter(None, labels.split(","))), row
    return found


def answers() -> Mapping[int, list[str]]:
    """Return the queries of each question in the table of docs/operations.md, as an operator copies them."""
    page = OPERATIONS.read_text()
    rows = re.findall(r"^\| (\d+) \| [^|]*\| ([^|]*)\|", page[page.index("## At night") :], re.MULTILINE)
    return {int(number): re.findall(r"`([^`]+)`", cell) for number, cell in rows}


def wrong_in(query: str) -> Iterator[str]:
    """Yield what a query names that is not there: metrics, labels, values of labels that are closed words."""
    known = metrics()
    query = query.replace("$__rate_interval", "5m")
    labels = set(EVERYWHERE)
    for name, selectors in re.findall(r"\b((?:gateway|process)_\w+|up)\b(?:\{([^}]*)\})?", query):
        if name not in known:
            yield name
            continue
        own, row = known[name]
        labels |= own
        for label, sign, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', selectors):
            if label not in own | EVERYWHERE:
                yield f"{name}: {label}"
            words = re.split(r"[|()]+|_per_", value) if sign in ("=~", "!~") else [value]
            told = row.replace("_", " ").split() if label == "limit" else re.findall(r"[\w-]+", row)
            yield from (f"{name}: {word}" for word in words if label in own and word and not _is_told(word, told))
    for listed in re.findall(r"\b(?:by|without) \(([^)]*)\)", query):
        yield from (label for label in re.split(r",\s*", listed) if label not in labels)


def _is_told(word: str, told: list[str]) -> bool:
    return word in told or word in ("5..", "day", "month", "cost", "tokens", "ci")
