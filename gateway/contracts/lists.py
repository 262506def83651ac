"""The lists that a store returns in pages: their orders, what narrows them, and the counts of what has not ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

#: urgency: pending approvals only, the one that expires first comes first, then by creation and id.
ApprovalOrder = Literal["oldest", "newest", "urgency"]


class NarrowedApprovals(TypedDict, total=False):
    """The approvals of a list; a missing or None entry narrows nothing."""

    state: str | None
    conversation: str | None
    run_id: str | None
    sha256: str | None


class NarrowedRuns(TypedDict, total=False):
    """The runs of a list; a missing or None entry narrows nothing. `since_s` <= begin of the run < `until_s`."""

    state: str | None
    conversation: str | None
    kind: str | None
    caller: str | None
    workflow: str | None
    since_s: float | None
    until_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The approvals and runs of one tenant that have not ended. The approval that expires first does at `next_s`.

    `runs` counts the runs by the state that is shown: one that waits for a person in memory waits.
    """

    pending: int = 0
    next_s: float | None = None
    runs: Mapping[str, int] = field(default_factory=dict)
