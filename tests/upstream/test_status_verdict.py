"""What a status says about the endpoint that answers with it."""

import pytest

from gateway.upstream.endpoint import Endpoint
from gateway.upstream.status_verdict import is_fault, is_suspect

CASES = [
    # status, with the gateway's own key, of a request that only computes, which got its pause: is suspect
    ("401", True, True, False, True),
    ("402", True, False, False, True),
    ("403", True, False, False, True),
    ("401", False, True, False, False),
    ("403", False, True, False, False),
    ("404", False, True, False, True),
    ("404", True, False, False, False),
    ("408", False, False, False, True),
    ("429", True, True, False, True),
    ("429", True, True, True, False),
    ("429", False, True, False, False),
    ("500", False, False, False, True),
    ("400", True, True, False, False),
    ("422", True, True, False, False),
    ("501", True, True, False, False),
]


@pytest.mark.parametrize(("status", "own_key", "computes", "paused", "suspect"), CASES)
def test_status_marks_endpoint_suspect_only_for_its_own_faults(
    status: str, *, own_key: bool, computes: bool, paused: bool, suspect: bool
) -> None:
    """A key that a client brought, a thing that is not there, and a pause are no fault of it."""
    key = b"k" if own_key else None
    endpoint = Endpoint(name="up", host="127.0.0.1", port=1, authority=b"a", api_key=key)
    assert is_suspect(status, endpoint, computes=computes, paused=paused) is suspect


@pytest.mark.parametrize(
    ("reason", "fault"),
    [("connect", True), ("reset", True), ("503", True), ("500", None), ("507", None), ("400", False), ("429", False)],
)
def test_fault_reason_is_a_fault_regardless_of_other_endpoints(reason: str, fault: bool | None) -> None:
    """A 5xx that is no failure of the server says nothing."""
    assert is_fault(reason) is fault
