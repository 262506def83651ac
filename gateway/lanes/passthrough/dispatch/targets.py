"""The targets that the requests of a plan may go to: each is made when it is first used, and kept with the plan."""

from collections.abc import Callable, Sequence
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.model_names import is_listed_model
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group

#: A plan remembers the targets of so many models, with names of so many characters: clients use a few of them.
KNOWN_MODELS: Final = 8
KNOWN_CHARS: Final = 100


class Targets:
    """The targets of a request: the endpoints of its upstream and of the fallbacks.

    The target at each is made when it is first used, and kept; `first` is the one at the first endpoint. `twice`:
    sending the request twice does no harm. `computes`: see `Tries`. `sticky`: what belongs at the same endpoint
    (`balance: sticky`). `fallbacks` are those that the caller may use.
    """

    __slots__ = ("_by_member", "_make", "computes", "fallbacks", "first", "group", "sticky", "twice")

    def __init__(
        self,
        group: Group,
        first: PlanTarget,
        make: Callable[[Group, Member], PlanTarget],
        *,
        twice: bool,
        sticky: bytes,
        computes: bool = False,
    ) -> None:
        self.group = group
        self.first = first
        self.twice = twice
        self.computes = computes
        self.sticky = sticky
        self._make = make
        self._by_member: dict[Member, PlanTarget] = {group.members[0]: first}
        self.fallbacks = tuple(fallback for fallback in group.fallbacks if self._is_allowed(fallback))

    def find(self, group: Group, member: Member) -> PlanTarget:
        """Return the target at an endpoint."""
        target = self._by_member.get(member)
        if target is None:
            target = self._by_member[member] = self._make(group, member)
        return target

    @property
    def count(self) -> int:
        """Return how many targets there can be."""
        return sum(len(group.members) for group in (self.group, *self.fallbacks))

    def _is_allowed(self, group: Group) -> bool:
        try:
            self.find(group, group.members[0])
        except GatewayError:
            return False
        return True


class ModelTargets:
    """The targets of a request by its model. `served` are upstreams with the patterns of their models, in their order.

    A request for a model that none of them names goes to the `usual` upstream.
    """

    __slots__ = ("_by_group", "_by_model", "_served", "_targets_at", "usual")

    def __init__(
        self, usual: Group, served: Sequence[tuple[Group, tuple[str, ...]]], targets_at: Callable[[Group], Targets]
    ) -> None:
        self.usual = usual
        self._served = served
        self._targets_at = targets_at
        self._by_group: dict[Group, Targets] = {}
        self._by_model: dict[str | None, Targets] = {}  # of the first few models

    @property
    def count(self) -> int:
        """Return how many targets there can be, without those of fallbacks, which mostly are among them."""
        return sum(len(group.members) for group in {self.usual, *(group for group, _ in self._served)})

    def find(self, model: str | None) -> Targets:
        """Return the targets of a request for a model; None: it names none. Raises GatewayError: the caller may not."""
        targets = self._by_model.get(model)
        if targets is not None:
            return targets
        group = self.usual
        if model is not None:
            named = (g for g, patterns in self._served if is_listed_model(model, patterns))
            group = next(named, group)
        targets = self._by_group.get(group)
        if targets is None:
            targets = self._by_group[group] = self._targets_at(group)
        if len(self._by_model) < KNOWN_MODELS and len(model or "") <= KNOWN_CHARS:
            self._by_model[model] = targets
        return targets
