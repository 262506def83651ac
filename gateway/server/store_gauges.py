"""Gauges of the store: pending approvals, unfinished runs, and `gateway_store_up`.

All workers share one store, so each reports the same values, as of its last look.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Store, StoreBacklog, StoreError

#: A look goes over all that waits: it is not made more often.
LOOK_S: Final = 2.0
#: A run whose lease ended so long ago is stuck: others take a run over within 7 s, where they can.
STUCK_S: Final = 30.0
STATES: Final = ("running", "awaiting_approval", "awaiting_client", "unknown")


class Backlog:
    """The last look of one worker at its store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_s = float("-inf")
        self._works = True
        self._seen = StoreBacklog()

    async def read_state(self, store: Store) -> None:
        """Read the store's state, if the last look was at least `LOOK_S` ago. Raises StoreError."""
        if self._clock.monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = self._clock.monotonic()
        try:
            self._seen = await store.count_backlog(stuck_before_s=self._clock.time() - STUCK_S)
            self._works = await store.find_loss_reason() is None
        except StoreError:
            self._works = False
            raise

    def count_pending(self) -> int:
        """Return the number of pending approvals of all tenants, as of the last look."""
        return self._seen.pending

    def collect_families(self) -> Iterator[Metric]:
        """Yield the gauges with the values of the last look."""
        seen = self._seen
        yield GaugeMetricFamily("gateway_store_up", "1 while the store answers and is not replaced", value=self._works)
        yield GaugeMetricFamily("gateway_store_bytes", "Size of the store's database", value=seen.size_bytes)
        yield GaugeMetricFamily("gateway_approvals_pending", "Approvals that wait for a person", value=seen.pending)
        age_s = 0.0 if seen.oldest_s is None else max(self._clock.time() - seen.oldest_s, 0.0)
        yield GaugeMetricFamily(
            "gateway_approvals_oldest_seconds", "Age of the approval that waits and expires first", value=age_s
        )
        runs = GaugeMetricFamily("gateway_runs", "Runs that have not ended, by what they wait for", labels=["state"])
        for state in STATES:
            runs.add_metric([state], seen.runs.get(state, 0))
        yield runs
        yield GaugeMetricFamily("gateway_runs_stuck", "Runs under way that no worker drives", value=seen.stuck)
