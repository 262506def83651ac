"""Whose a run is: the lease that its owner renews, who keeps it, and what is said when it is lost."""

import asyncio
import time
from typing import Final, Protocol

from gateway.contracts.journal import Change
from gateway.contracts.plugin import Clock
from gateway.errors import GatewayError

#: A run is its owner's for so long after it was last heard of.
LEASE_S: Final = 5.0
#: Why a task is cancelled whose run is another owner's by now, or was ended by a person.
LOST: Final = "lost"


class Holder(Protocol):
    """Whoever keeps the leases of this worker's runs."""

    @property
    def owner(self) -> str: ...

    def hold(self, run_id: str, task: "asyncio.Task[None]") -> None:
        """`task` drives the run from here on; it is cancelled if somebody else takes the run."""
        ...

    def drop(self, run_id: str, task: "asyncio.Task[None] | None") -> None:
        """`task` drives the run no more."""
        ...

    def owe(self, change: Change) -> None:
        """This end of a run could not be written."""
        ...


class Age:
    """How old a lease is. Nobody sets these clocks, and one of them goes on while the machine sleeps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = self._now()

    def begin(self) -> None:
        """The lease begins anew."""
        self._since = self._now()

    def is_over(self) -> bool:
        """Another owner may have taken the run since, unless the store says otherwise."""
        return any(now_s - since_s >= LEASE_S for now_s, since_s in zip(self._now(), self._since, strict=True))

    def _now(self) -> tuple[float, float]:
        return self._clock.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)


def lost(run_id: str) -> GatewayError:
    """The run was cancelled, or another process drives it."""
    return GatewayError(
        "run_cancelled", f"The run {run_id} was cancelled or is driven by another process; look at it with its id."
    ).after_effects()
