"""Queries for Prometheus, checked by the table of metrics in docs/operations.md."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from gateway.aio.clock import SystemClock
from gateway.server.store_gauges import Backlog

REPOSITORY = Path(__file__).resolve().parents[2]
OPERATIONS = REPOSITORY / "docs" / "operations.md"
#: What prometheus_client and Prometheus itself have: names, and labels of every series.
OTHERS = ("up", "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes")
EVERYWHERE = {"instance", "job", "le"}
#: What each gateway reports of the one store: a sum over gateways would count it as often as there are gateways.
OF_THE_STORE = {family.name for family in Backlog(SystemClock()).collect_families()} - {"gateway_store_up"}


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


def dashboards() -> Mapping[str, list[str]]:
    """Return the queries of each dashboard, of all gateways."""
    files = sorted((REPOSITORY / "deploy" / "grafana").glob("*.json"))
    boards = {file.stem: json.loads(file.read_text())["panels"] for file in files}
    return {
        name: [_of_all(target["expr"]) for panel in panels for target in panel["targets"]]
        for name, panels in boards.items()
    }


def alert_expressions() -> Mapping[str, str]:
    """Return the expression of each alert."""
    groups = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def _of_all(query: str) -> str:
    """Return a query of a dashboard as Grafana sends it when all gateways are chosen."""
    return query.replace("$instance", ".*").replace("$__rate_interval", "1m")


def counted_twice_in(query: str) -> Iterator[str]:
    """Yield the gauges of the store that a query does not reduce to one value over all gateways."""
    for found in re.finditer(rf"\b({'|'.join(sorted(OF_THE_STORE))})\b", query):
        reduced = re.search(r"\b(?:max|min)(?: by \(([^)]*)\))? ?\($", query[: found.start()])
        if reduced is None or "instance" in (reduced[1] or ""):
            yield found[1]


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
