"""The state of upstreams for a scrape: their connections, and where there are several, their endpoints."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.upstream.group import Group

#: The breaker's state as a number, so that the worst of all workers is the largest.
_STATES: Final = {"closed": 0, "half-open": 1, "open": 2}


def build_gauges(groups: Iterable[Group]) -> Iterator[Metric]:
    """Yield the gauges of these upstreams. Gauges of endpoints exist for upstreams that are more than a pool."""
    up = GaugeMetricFamily("gateway_upstream_up", "1 unless the last connection attempt failed", labels=["upstream"])
    pool = GaugeMetricFamily(
        "gateway_upstream_pool_connections", "Connections to the upstream", labels=["upstream", "state"]
    )
    labels = ["upstream", "endpoint"]
    able = GaugeMetricFamily("gateway_upstream_endpoint_up", "1 while it may get requests", labels=labels)
    busy = GaugeMetricFamily("gateway_upstream_endpoint_requests", "Requests under way", labels=labels)
    state = GaugeMetricFamily("gateway_upstream_breaker_state", "0 closed, 1 half-open, 2 open", labels=labels)
    wait = GaugeMetricFamily(
        "gateway_upstream_endpoint_wait_seconds", "Until its breaker or its pause may end", labels=labels
    )
    well = GaugeMetricFamily("gateway_upstream_endpoint_healthy", "1 unless its health checks fail", labels=labels)
    queue = GaugeMetricFamily("gateway_upstream_queued_requests", "Requests that wait for a place", labels=["upstream"])
    last = GaugeMetricFamily("gateway_upstream_endpoint_last_status", "Status of its last answer", labels=labels)
    for group in groups:
        pools, now_s = [member.pool for member in group.members], group.clock()
        idle = sum(len(one.idle) for one in pools)
        up.add_metric([group.name], float(any(one.counts.up for one in pools)))
        pool.add_metric([group.name, "idle"], idle)
        pool.add_metric([group.name, "busy"], sum(len(one.open) for one in pools) - idle)
        if group.plain:
            continue
        queue.add_metric([group.name], group.queue_length)
        for member in group.members:
            able.add_metric([group.name, member.name], float(member.find_obstacle(now_s) in (None, "busy")))
            busy.add_metric([group.name, member.name], member.inflight)
            state.add_metric([group.name, member.name], _STATES[member.breaker.get_state(now_s)])
            wait.add_metric([group.name, member.name], member.get_wait_s(now_s))
            if member.answers.last_status.isdecimal():
                last.add_metric([group.name, member.name], int(member.answers.last_status))
            if group.checks is not None:
                well.add_metric([group.name, member.name], float(member.healthy))
    yield from (up, pool, able, busy, state, wait, last, well, queue)
