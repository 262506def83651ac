"""The runs of MCP clients in a store: results that clients still want, and the requests that wait for one run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NotRequired, Protocol, TypedDict

if TYPE_CHECKING:
    from gateway.contracts.storage.journal import AuditLine, RunEvent, StoredRun

#: A request counts as one that waits for so long after it has last said so: its worker may have died since.
AWAITED_S: Final = 60.0


class Cancellation(TypedDict):
    """The facts of a cancellation. `waiter` is one of the requests that may wait for the run: the others spare it."""

    tenant: str
    now_s: float
    events: "Sequence[RunEvent]"
    audit: "Sequence[AuditLine]"
    waiter: NotRequired[str | None]


class ToolRuns(Protocol):
    """The part of the journal that is about MCP clients. Each method raises StoreError when it fails."""

    async def undelivered_run(self, fingerprint: str, *, tenant: str) -> "StoredRun | None":
        """Return the run with this fingerprint whose result its MCP client still wants, or None."""

    async def mark_delivered(self, fingerprint: str, *, tenant: str, run_id: str) -> None:
        """Record that the client of an `undelivered` run has its result, or will not get it any more."""

    async def awaits(self, run_id: str, *, tenant: str, waiter: str, until_s: float) -> None:
        """Record that a request waits for a run until then (Unix time); one that waits no longer says 0.

        A new run of an MCP client that asks a person is awaited by the request of its own id for `AWAITED_S`.
        """
