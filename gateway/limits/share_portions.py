"""The portions of a gateway in the limits of a counter: what it has and uses, as its first worker sees it.

A portion is lowered here first, for all workers. Then what is used is looked at again: a request counts itself before
it looks at the share, so either it is seen here, or it sees the lower share.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Final, Protocol

from gateway.contracts.allowance import BUDGETS, COSTS
from gateway.contracts.storage.quota import ShareGrant
from gateway.contracts.storage.usage import COST_UNITS
from gateway.limits.budgets import Budgets, Counted
from gateway.limits.counter import MOST, Counter, get_stored, sum_window
from gateway.limits.share_memory import BINDING, BUDGET, CONCURRENT, ELSEWHERE, EPOCH, FULL, REQUESTS
from gateway.limits.shared_memory import HELD, NOW, TICK_S, TICKS, USED, WINDOW_S
from gateway.limits.shared_memory import REQUESTS as REQUESTS_RING
from gateway.limits.shared_memory import TOKENS as TOKENS_RING

#: A share of what is used in a window counts for so long after its gateway is gone, that of a budget until it is
#: stored, and that of requests under way not at all.
_WINDOW_LAPSE_S: Final = WINDOW_S + 1.0
_BUDGET_LAPSE_S: Final = 30.0
#: The most that a ceiling is above what was used.
_MOST_LEFT: Final = MOST // 2


class CounterUse:
    """The use of a counter by all workers of a gateway. `own` is the counter as this worker has it, if it uses it."""

    def __init__(self, rows: Sequence[memoryview], words: memoryview) -> None:
        self._rows = rows
        self.words = words
        self.own: Counter | None = None

    def count_present(self) -> int:
        """Return the requests under way, with those taken ahead."""
        first, *others = self._rows
        own = first[NOW] if self.own is None else self.own.under_way
        return int(own + sum(row[NOW] for row in others))

    def count_window(self, slot: int, now_s: float) -> int:
        """Return the requests or the tokens of the window."""
        ring = REQUESTS_RING if slot == REQUESTS else TOKENS_RING
        first = int(now_s / TICK_S) - TICKS + 1
        return sum(sum_window(row, ring, first) for row in self._rows)

    def list_stored(self, stored: Sequence[int] | None, read_s: float) -> Sequence[int]:
        """Return what each worker's tokens were that were read from the store; see `Counter.get_pending_tokens`."""
        return [get_stored(row, read_s) for row in self._rows] if stored is None else stored

    def count_pending(self, stored: Sequence[int]) -> int:
        """Return the tokens that all workers hold, and have used beyond those that were stored."""
        return sum(row[HELD] + ((row[USED] - then) & MOST) for row, then in zip(self._rows, stored, strict=True))


class Portion(Protocol):
    """A limit of a counter: its name in the store, and what this gateway has of it."""

    name: str
    limit: int
    grant: ShareGrant | None  # the latest
    sent: tuple[int, int] | None  # what the store knows of the use and the share

    @property
    def share(self) -> int: ...
    @property
    def base(self) -> int: ...
    @property
    def lapse_s(self) -> float: ...
    def observe_now(self) -> None:
        """Take what is known now, for all that follows."""
        ...

    def count_used(self, now_s: float) -> int: ...
    def convert_demand(self, requests: int, tokens: int) -> int:
        """Return what so many requests with so many tokens need."""
        ...

    def publish_room(self, share: int) -> None:
        """Let the workers use so much."""
        ...

    def note_full(self, until: int) -> None:
        """Let requests be refused at once until then: no gateway has any left."""
        ...


class WindowPortion:
    """The portion of a gateway in requests or tokens of a minute, or in requests under way."""

    base = 0
    grant: ShareGrant | None = None
    sent: tuple[int, int] | None = None

    def __init__(self, use: CounterUse, slot: int, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self._use = use
        self._slot = slot
        self.lapse_s = 0.0 if slot == CONCURRENT else _WINDOW_LAPSE_S

    @property
    def share(self) -> int:
        return int(self._use.words[self._slot])

    def observe_now(self) -> None:
        pass  # it is always known

    def count_used(self, now_s: float) -> int:
        return self._use.count_present() if self._slot == CONCURRENT else self._use.count_window(self._slot, now_s)

    def convert_demand(self, requests: int, tokens: int) -> int:
        return tokens if self._slot > REQUESTS else requests

    def publish_room(self, share: int) -> None:
        words = self._use.words
        if words[self._slot] != share:
            words[self._slot] = share
            words[EPOCH] += 1

    def note_full(self, until: int) -> None:
        self._use.words[FULL + self._slot] = until

    def note_elsewhere(self, used: int) -> None:
        """Let the workers know what other gateways use."""
        self._use.words[ELSEWHERE + self._slot] = used


class BudgetCeiling:
    """The tokens that the budgets of a counter allow this gateway: the least of what each of them does.

    It is a sum since the gateway began, so it stays the same while usage goes from memory to the store.
    """

    def __init__(
        self, use: CounterUse, budgets: Budgets, rule: Counted, stored: Callable[[], Sequence[int] | None]
    ) -> None:
        self.use = use
        self.budgets = budgets
        self.rule = rule
        self._stored = stored
        self._ceilings: dict[int, int] = {}  # of each budget

    def list_stored(self) -> Sequence[int]:
        """Return what each worker's tokens were that were read from the store last."""
        return self.use.list_stored(self._stored(), self.budgets.read_s)

    def put(self, at: int, tokens: int, *, stored: int) -> None:
        """Let the workers use so many tokens of a budget beyond those stored, and of all what each of them allows."""
        self._ceilings[at] = (stored + min(tokens, _MOST_LEFT)) & MOST
        left = {one: self.get_left(one, stored=stored) for one in self._ceilings}
        words = self.use.words
        words[BINDING] = least = min(left, key=left.__getitem__)
        words[BUDGET] = (stored + left[least]) & MOST

    def get_left(self, at: int, *, stored: int) -> int:
        """Return the tokens that a budget allows beyond those stored."""
        left = (self._ceilings[at] - stored) & MOST
        return left if left <= _MOST_LEFT else 0


class BudgetPortion:
    """The portion of a gateway in a budget, in tokens or in `COST_UNITS`, beyond what was read from the store.

    All figures are of the latest look: meanwhile the store may be read again, and an answer of the store is about what
    was known before the call.
    """

    lapse_s = _BUDGET_LAPSE_S
    grant: ShareGrant | None = None
    sent: tuple[int, int] | None = None

    def __init__(self, ceiling: BudgetCeiling, at: int, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.base = 0
        self._at = at
        self._ceiling = ceiling
        self._unit = 1.0
        self._stored: Sequence[int] = ()
        self.observe_now()
        self.publish_room(0)

    def observe_now(self) -> None:
        ceiling, is_cost = self._ceiling, BUDGETS[self._at] in COSTS
        self._stored = ceiling.list_stored()
        self._unit = ceiling.budgets.get_token_cost(*ceiling.rule) * COST_UNITS if is_cost else 1.0
        self.base = round(ceiling.budgets.get_spent(*ceiling.rule)[self._at] * (COST_UNITS if is_cost else 1))

    @property
    def share(self) -> int:
        return ceil(self._ceiling.get_left(self._at, stored=sum(self._stored)) * self._unit)

    def count_used(self, now_s: float) -> int:
        del now_s
        return ceil(self._ceiling.use.count_pending(self._stored) * self._unit)

    def convert_demand(self, requests: int, tokens: int) -> int:
        del requests
        return ceil(tokens * self._unit)

    def publish_room(self, share: int) -> None:
        tokens = int(share / self._unit) if self._unit else _MOST_LEFT
        self._ceiling.put(self._at, tokens, stored=sum(self._stored))

    def note_full(self, until: int) -> None:
        self._ceiling.use.words[FULL + BUDGET] = until
