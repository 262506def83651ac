"""Targets are made once, and a caller has those only that it may use."""

import pytest
from lanes.assembled import alone, endpoint

from gateway.auth.keyring import Identity
from gateway.contracts.caller import LOCAL
from gateway.contracts.errors import GatewayError
from gateway.lanes.passthrough.dispatch.targets import KNOWN_MODELS, ModelTargets, Targets
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.testing.clock import ManualClock
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.upstream.pool import Pool


def group(name: str) -> Group:
    return alone(Pool(endpoint(name=name), clock=ManualClock()))


class Making:
    """Makes targets, but none at some upstreams."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.made: list[str] = []

    def target(self, group: Group, member: Member) -> PlanTarget:
        if group.name in self.refused:
            raise GatewayError("upstream_not_allowed", "This key may not use the upstream: use another one.")
        self.made.append(group.name)
        return PlanTarget(group, member, (b"", b""), Identity(LOCAL, frozenset()))

    def targets(self, group: Group) -> Targets:
        first = self.target(group, group.members[0])
        return Targets(group, first, self.target, twice=True, sticky=b"")


def test_target_of_an_endpoint_is_built_once() -> None:
    making, home = Making(), group("home")
    targets = making.targets(home)
    assert targets.find(home, home.members[0]) is targets.first is targets.find(home, home.members[0])
    assert (making.made, targets.count) == (["home"], 1)


def test_fallback_forbidden_to_the_caller_is_omitted() -> None:
    home, allowed, other = group("home"), group("allowed"), group("other")
    home.fallbacks = (allowed, other)
    targets = Making("other").targets(home)
    assert (targets.fallbacks, targets.count) == ((allowed,), 2)


def test_first_upstream_serving_a_model_is_its_target() -> None:
    """Any other model, and a body without one, goes to the usual upstream."""
    usual, llama, mine = group("usual"), group("llama"), group("mine")
    served = [(llama, ("llama*",)), (mine, ("llama3", "mine"))]
    found = ModelTargets(usual, served, Making().targets)
    names = [found.find(model).group.name for model in ("llama3", "mine", "other", None)]
    assert (names, found.count) == (["llama", "mine", "usual", "usual"], 3)


def test_model_target_cache_is_bounded() -> None:
    making = Making("closed")
    found = ModelTargets(group("usual"), [(group("closed"), ("closed",))], making.targets)
    for number in range(3 * KNOWN_MODELS):
        assert found.find(f"m{number}") is found.find(f"m{number}")
    assert making.made == ["usual"] and len(found._by_model) == KNOWN_MODELS
    with pytest.raises(GatewayError):
        found.find("closed")
