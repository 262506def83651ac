"""The views of upstreams: from the configuration, and the numbers of all workers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gateway.api.admin.upstreams import ConnectionsView, EndpointState, EndpointView, UpstreamView
from gateway.config import Settings
from gateway.config.schema import upstreams as schema
from gateway.contracts.figures import Counts
from gateway.model.adaptation.quirks import LearntQuirks
from gateway.server.lanes.upstreams import get_endpoint_name, list_given_endpoints, list_upstreams_in_use
from gateway.telemetry.metrics import ANSWERS, EJECTIONS, OUTCOMES, REFUSED, RETRIES, TRIES
from gateway.telemetry.page_text import Gauge

_PREFIX: Final = "gateway_upstream_"
#: States of a breaker that is not closed, as its gauge has them.
_BREAKER: Final[Mapping[float, EndpointState]] = {1.0: "half-open", 2.0: "open"}

#: Outcomes of requests that were not sent, and outcomes that do not count as a failure of an upstream.
_NOT_SENT: Final = ("unavailable", "limited")
_HARMLESS: Final = ("ok", "cancelled", *_NOT_SENT)


class UpstreamNumbers:
    """The numbers of upstreams that all workers have reported: gauges of this moment, and counts."""

    def __init__(self, counts: Counts, gauges: Iterable[Gauge]) -> None:
        self._gauges = {
            (name.removeprefix(_PREFIX), *(value for _, value in sorted(labels, reverse=True))): number
            for name, _, labels, number in gauges
            if name.startswith(_PREFIX)
        }
        self._counts: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for (family, labels), values in counts.items():
            if family in (OUTCOMES, RETRIES, REFUSED, EJECTIONS, TRIES, ANSWERS):
                *whose, what = labels
                self._counts[family, *whose][what] += int(values[0])

    def read_gauge(self, name: str, *labels: str) -> float | None:
        """Return a gauge by upstream, then endpoint or state; None: no worker has one."""
        return self._gauges.get((name, *labels))

    def get_counts(self, family: str, *whose: str) -> Mapping[str, int]:
        """Return the counts of an upstream, or of one endpoint, by the last label."""
        return self._counts[family, *whose]


def iterate_upstream_facts(
    settings: Settings, *, demo_url: str | None, numbers: UpstreamNumbers, learnt: LearntQuirks
) -> Iterator[UpstreamView]:
    """Yield each upstream of a configuration. `demo_url`: the address of the demo model, for one without any."""
    for upstream in list_upstreams_in_use(settings, demo_url=demo_url):
        name = upstream.name
        requests = numbers.get_counts(OUTCOMES, name)
        not_sent = sum(requests.get(outcome, 0) for outcome in _NOT_SENT)
        busy, idle = (int(numbers.read_gauge("pool_connections", name, state) or 0) for state in ("busy", "idle"))
        yield UpstreamView(
            name=name,
            connections=ConnectionsView(busy, idle),
            sent=sum(requests.values()) - not_sent,
            failed=sum(count for outcome, count in requests.items() if outcome not in _HARMLESS),
            not_sent=not_sent,
            queued=int(numbers.read_gauge("queued_requests", name) or 0),
            balance=upstream.balance,
            fallback=upstream.fallback,
            requests=requests,
            retries=numbers.get_counts(RETRIES, name),
            refused=numbers.get_counts(REFUSED, name),
            endpoints=[_build_endpoint_view(one, upstream, numbers, learnt) for one in list_given_endpoints(upstream)],
        )


def _build_endpoint_view(
    endpoint: schema.EndpointSettings, upstream: schema.UpstreamSettings, numbers: UpstreamNumbers, learnt: LearntQuirks
) -> EndpointView:
    name = get_endpoint_name(endpoint)
    place = upstream.name, name
    under_way, last_status = (numbers.read_gauge(f"endpoint_{kind}", *place) for kind in ("requests", "last_status"))
    is_counted = under_way is not None
    wait_s = numbers.read_gauge("endpoint_wait_seconds", *place) or None
    return EndpointView(
        name=name,
        url=endpoint.url,
        state=_find_state(numbers, *place),
        retry_in_s=None if wait_s is None else round(wait_s, 3),
        under_way=None if under_way is None else int(under_way),
        concurrent=endpoint.concurrent,
        weight=endpoint.weight,
        models=endpoint.models,
        tries=numbers.get_counts(TRIES, *place) if is_counted else None,
        ejections=numbers.get_counts(EJECTIONS, *place) if is_counted else None,
        answers=dict(sorted(numbers.get_counts(ANSWERS, *place).items())) if is_counted else None,
        last_status=None if last_status is None else int(last_status),
        quirks=upstream.quirks,
        learnt_quirks=learnt.get_endpoint_quirks(*place),
    )


def _find_state(numbers: UpstreamNumbers, upstream: str, endpoint: str) -> EndpointState:
    place = upstream, endpoint
    up = numbers.read_gauge("endpoint_up", *place)
    if up is None:  # the single endpoint of an upstream without rules
        reached = numbers.read_gauge("up", upstream)
        return "unknown" if reached is None else "up" if reached else "unreachable"
    if numbers.read_gauge("endpoint_healthy", *place) == 0:
        return "unhealthy"
    if (state := _BREAKER.get(numbers.read_gauge("breaker_state", *place) or 0.0)) is not None:
        return state
    return "up" if up else "pausing"
