"""A limiter on a clock of the test, for one of several workers that share memory."""

from collections import Counter as Counts
from collections.abc import Callable, Mapping

from gateway.contracts.allowance import BUDGETS, COSTS, Allowance
from gateway.contracts.caller import Caller, KeyBounds
from gateway.limits.budgets import NOTHING_USED, Budgets, BudgetSums, Counted
from gateway.limits.counter import Counter
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import build_key_id
from gateway.limits.limiter import Limiter
from gateway.limits.shared_memory import SharedCounters
from gateway.testing.clock import ManualClock

BEGAN_S = 5000.0
#: What has a budget in some test.
NAMES: tuple[Counted, ...] = (
    ("key", build_key_id("team", "ci")),
    ("tenant", "team"),
    ("model", "m"),
    ("upstream", "up"),
)


class WallClock(ManualClock):
    """A clock whose time of day may be set, also back. `set_s`: by how much it was."""

    set_s = 0.0

    def time(self) -> float:
        return self() + self.set_s


class Counted:
    """`contracts.Counters` that keep what is counted, by name and labels."""

    def __init__(self) -> None:
        self.counts: Counts[tuple[str, ...]] = Counts()

    def count(self, name: str, by: int = 1, /, **labels: str) -> None:
        self.counts[name, *labels.values()] += by

    def observe(self, name: str, value: float, **labels: str) -> None:
        raise AssertionError(f"{name} {value} {labels}")


def spend(**used: float) -> BudgetSums:
    """The sums of budgets, by their names; of others nothing was used."""
    assert used.keys() <= {*BUDGETS}
    return tuple(used.get(limit, nothing) for limit, nothing in zip(BUDGETS, NOTHING_USED, strict=True))


def spend_today(tokens: int, cost: float = 0.0) -> BudgetSums:
    """The sums of budgets of which all was used today, so that each period has it."""
    return tuple(cost if limit in COSTS else tokens for limit in BUDGETS)


def counters(clock: Callable[[], float], *, places: int = 1, memory: SharedCounters | None = None) -> list[Counter]:
    """One counter as each worker sees it."""
    memory = memory or SharedCounters(places=places)
    number = memory.hold_counter("key ci", place=0, now_s=0.0)
    assert number is not None
    return [Counter(lambda _, place=place: memory.get_rows(number, place), clock) for place in range(memory.places)]


def in_dollars() -> Budgets:
    """Budgets where prices are in dollars, and nothing was read yet."""
    return Budgets(lambda: "USD")


class Workers:
    """The limiters of some workers that share memory, a clock, and budgets."""

    def __init__(
        self,
        count: int = 1,
        *,
        clock: ManualClock | None = None,
        budgets: Budgets | None = None,
        has_shares: bool = False,
        **scopes: Mapping[str, Allowance],
    ) -> None:
        self.clock = clock or ManualClock(BEGAN_S)
        self.counters = Counted()
        self.budgets = budgets or in_dollars()
        self.budgets.replace_sums({}, names=NAMES, currency="USD")
        self.memory = SharedCounters(places=count, has_shares=has_shares)
        self._scopes = scopes
        self.meters: list[Meters] = []
        self.limiters = [self.limiter(place) for place in range(count)]

    def limiter(self, place: int) -> Limiter:
        """A worker that starts at this place."""
        meters = Meters(self.memory, place=place, clock=self.clock)
        self.meters.append(meters)
        return Limiter(meters, clock=self.clock, budgets=self.budgets, counters=self.counters, **self._scopes)


def caller(name: str = "ci", tenant: str = "team", **limits: object) -> Caller:
    """A caller with these limits; without any its key has none."""
    bounds = KeyBounds(limits=Allowance(**limits) if limits else None)  # type: ignore[arg-type]
    return Caller(name, tenant, frozenset(("context",)), bounds)
