"""The records of runs: what their words promise to each other."""

from dataclasses import fields
from typing import get_args

from gateway.context.tool_calls import LOOK_S
from gateway.contracts.storage.journal import (
    APPROVED,
    AWAITED_S,
    ENDED,
    ApprovalState,
    Journal,
    RunState,
    StoredRun,
    ToolRuns,
)


def test_ended_run_states_exclude_waiting_states() -> None:
    """Nothing follows an ended state; every other one is either driven or waits for somebody."""
    assert set(get_args(RunState)) - ENDED == {"running", "awaiting_approval", "awaiting_client", "unknown"}


def test_approved_states_exclude_pending_and_refused_states() -> None:
    """None of them can be decided on any more, and none is a refusal."""
    assert set(get_args(ApprovalState)) - APPROVED == {"pending", "rejected", "expired", "cancelled"}


def test_no_record_has_room_for_a_credential() -> None:
    """A run on record is what its client asked for, and nothing that would let somebody be its client."""
    names = {field.name for field in fields(StoredRun)}
    assert not names & {"header", "headers", "credential", "authorization", "api_key"}


def test_tool_runs_are_a_part_of_the_journal() -> None:
    """A run and the requests that wait for it change in one transaction."""
    assert ToolRuns in Journal.__mro__


def test_awaited_limit_covers_several_polling_intervals() -> None:
    """One that comes late, on a busy machine, is none that has left."""
    assert AWAITED_S >= 10 * LOOK_S
