"""The lists that a store returns in pages: their orders, what narrows them, and the counts of what has not ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

#: urgency: pending approvals only, the one that expires first comes first, then by creation and id.
ApprovalOrder = Literal["oldest", "newest", "urgency"]


#: call: the same tool with the same arguments, byte for byte, as they would run.
ApprovalGrouping = Literal["tool", "caller", "call"]


class NarrowedApprovals(TypedDict, total=False):
    """The approvals of a list; a missing or None entry narrows nothing.

    `text` stands in an id, tool, caller, end user, conversation or in the arguments; small ASCII letters are as good as
    capital ones. `equal_to` is the id of an approval with the same call. `since_s` <= begin of the wait < `until_s`.
    """

    state: str | None
    conversation: str | None
    run_id: str | None
    sha256: str | None
    tool: str | None
    caller: str | None
    assigned: str | None
    text: str | None
    equal_to: str | None
    since_s: float | None
    until_s: float | None


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
class ApprovalGroup:
    """Pending approvals of one tool, of one caller, or of one call; the `first` of them expires first, at `next_s`.

    `count` is their number, and `calls` the number of different calls among them.
    """

    first: str
    count: int
    calls: int
    next_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The approvals and runs of one tenant that have not ended. The approval that expires first does at `next_s`.

    `runs` counts the runs by the state that is shown: one that waits for a person in memory waits.
    """

    pending: int = 0
    next_s: float | None = None
    runs: Mapping[str, int] = field(default_factory=dict)
