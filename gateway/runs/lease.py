"""The lease of a run and its age, and the errors of runs that end for their worker's or client's sake."""

import time
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import UntoldError

#: A run belongs to its owner for so long after the last renewal.
LEASE_S: Final = 5.0
#: The reason to cancel a task whose run has another owner by now, or was ended by a person.
LOST: Final = "lost"


class Age:
    """The age of a lease. Its clocks cannot be set, and one of them goes on while the machine sleeps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = self._read_clocks()

    def begin(self) -> None:
        """Set the age of the lease to zero."""
        self._since = self._read_clocks()

    def has_expired(self) -> bool:
        """Return whether another owner may have taken the run since, unless the store contradicts it."""
        return any(now_s - since_s >= LEASE_S for now_s, since_s in zip(self._read_clocks(), self._since, strict=True))

    def _read_clocks(self) -> tuple[float, float]:
        return self._clock.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)


def build_lost_error(run_id: str) -> GatewayError:
    """Return the error of a run that was cancelled or that another process drives."""
    return GatewayError(
        "run_cancelled", f"The run {run_id} was cancelled or is driven by another process; look at it with its id."
    ).mark_after_effects()


def is_lost(error: BaseException | None) -> bool:
    """Return whether this error means that the run was cancelled or has another owner."""
    return isinstance(error, GatewayError) and error.code == "run_cancelled"


def build_interrupted_error(run_id: str) -> GatewayError:
    """Return the error for a request that repeats a run which was stopped after it had an effect."""
    return GatewayError(
        "run_interrupted",
        f"The run {run_id} lost its client and was stopped; what its tools had done stays done. Look at what there is "
        "before you ask again.",
    ).mark_after_effects()


def build_client_wait_error(run_id: str) -> GatewayError:
    """Return the error for a request that followed a run until that needed the credential of its client."""
    return GatewayError(
        "run_interrupted",
        f"The run {run_id} needs its client's credential. What its tools did is kept, and nothing of it runs again: "
        "send the same request again with the credential, and it goes on from there.",
    ).mark_after_effects()


def build_handover_error(run_id: str) -> UntoldError:
    """Return the error of an answer that ends with its process, whose run is on record, or may be."""
    text = f"The gateway stops, and the run {run_id} goes on with its next start: do not send the request again, look"
    return UntoldError("run_interrupted", f"{text} at it with its id.")


def build_stopping_error() -> GatewayError:
    """Return the error of an answer that ends with its process."""
    text = "The gateway stops, and ends this answer with it: send the request again."
    return GatewayError("gateway_stopping", text, retry_after_s=1)
