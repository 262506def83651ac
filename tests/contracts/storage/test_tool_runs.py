"""The runs of tool calls in a store."""

from gateway.context.tool_calls import LOOK_S
from gateway.contracts.storage.journal import Journal
from gateway.contracts.storage.tool_runs import AWAITED_S, ToolRuns


def test_they_are_a_part_of_the_journal() -> None:
    """A run and the requests that wait for it change in one transaction."""
    assert ToolRuns in Journal.__mro__


def test_a_request_says_several_times_that_it_waits() -> None:
    """One that comes late, on a busy machine, is none that has left."""
    assert AWAITED_S >= 10 * LOOK_S
