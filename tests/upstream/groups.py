"""Groups of endpoints that nobody connects to, on a clock that is moved by hand."""

from collections.abc import Sequence

from gateway.telemetry.metrics import UpstreamTally
from gateway.testing.clock import ManualClock
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group, GroupRules
from gateway.upstream.pool import Pool


def member(name: str, clock: ManualClock, *, api_key: bytes | None = None, **facts: object) -> Member:
    """An endpoint of this name."""
    endpoint = Endpoint(name="up", host="127.0.0.1", port=1, authority=name.encode(), api_key=api_key)
    return Member(Pool(endpoint, clock=clock), name=name, **facts)  # type: ignore[arg-type]


def group_of(*members: Member, clock: ManualClock, name: str = "up", **rules: object) -> Group:
    """A group of these, under these rules."""
    return Group(name, members, tally=UpstreamTally(), clock=clock, rules=GroupRules(**rules))  # type: ignore[arg-type]


def group(names: str, clock: ManualClock, *, breaker: BreakerRules | None = None, **rules: object) -> Group:
    """A group of endpoints with names of one letter."""
    members: Sequence[Member] = [member(name, clock, breaker=breaker) for name in names]
    return group_of(*members, clock=clock, breaker=breaker, **rules)
