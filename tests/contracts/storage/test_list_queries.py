"""The words of lists."""

from typing import get_args

from gateway.contracts.storage.journal import Approval, StoredRun
from gateway.contracts.storage.list_queries import ApprovalOrder, NarrowedApprovals, NarrowedRuns, Tally


def test_list_filters_match_fields_of_their_records() -> None:
    """And by their time, and approvals by a text and by equal calls."""
    beside = {"text", "equal_to", "since_s", "until_s"}
    assert NarrowedApprovals.__annotations__.keys() - beside <= set(Approval.__slots__)
    assert NarrowedRuns.__annotations__.keys() - {"since_s", "until_s"} <= set(StoredRun.__slots__)


def test_empty_approval_tally_counts_nothing() -> None:
    """Until something waits there is no next expiry."""
    assert (Tally().pending, Tally().next_s, Tally().runs) == (0, None, {})
    assert get_args(ApprovalOrder) == ("oldest", "newest", "urgency")
