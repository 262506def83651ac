"""The records of a plan: few and frozen, and without the secrets of the head in their text."""

from dataclasses import FrozenInstanceError, fields

import pytest
from lanes.assembled import endpoint, read, router

from gateway.auth.host_guard import HostGuard
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.passthrough.plan_records import PlannedHead, PlanTarget, RequestPolicy

ASK = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 12"


def planned(*lines: bytes, door: HostGuard | None = None) -> Plan:
    more = {} if door is None else {"door": door}
    raw = b"\r\n".join((ASK, *lines))
    found = router(endpoint(api_key=b"sk-up-1"), **more).route(read(raw + b"\r\n\r\n"), raw)
    assert found is not None
    return found[0]


def test_plan_records_are_small_and_frozen() -> None:
    plan = planned()
    assert sum(len(fields(kind)) for kind in (PlannedHead, PlanTarget, RequestPolicy)) <= 18
    with pytest.raises(FrozenInstanceError):
        plan.head.method = b"GET"  # type: ignore[misc]


def test_upstream_key_is_not_in_the_plan_repr() -> None:
    plan = planned()
    assert b"sk-up-1" in b"".join(plan.target.head) and "sk-up-1" not in repr(plan)


def test_cors_response_fields_are_set_only_for_allowed_origins() -> None:
    """Our own errors name the origin to all, since their text differs by it."""
    door = HostGuard.from_hosts(("gw",), origins=("https://app.example",))
    policy = planned(b"Origin: https://app.example", door=door).policy
    assert policy.response_fields["Access-Control-Allow-Origin"] == "https://app.example"
    other = planned(b"Origin: https://gw", door=door).policy
    assert (other.sharing, other.response_fields) == ({"Vary": "Origin"}, {})
