"""The stored usage by day, key, model, upstream and lane, and the store's protocol for it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, get_args

#: What usage can be summed by.
Dimension: TypeAlias = Literal["day", "tenant", "key", "model", "upstream", "lane"]
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)
#: What is counted, besides the cost.
COUNTS: Final = ("requests", "rejected", "cut", "estimated", "input", "cached", "output", "reasoning")
#: Units of cost in one of the currency.
COST_UNITS: Final = 1_000_000_000
#: No count and no cost is more, of a row or of a sum: two of them fit 64 bits. What would be more stays this.
MOST_USAGE: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """The usage of one day (UTC, `2026-11-26`) by one key of one model at one upstream in one lane, or a sum of such.

    In a sum, what it was not summed by is "". `model` is "" also where no answer named one. `currency` is "" for usage
    without a price: its cost is not known, and `cost` is the most that it may be, which budgets count. `rejected`,
    `cut` and `estimated` count requests, as parts of `requests`. `cached` tokens are a part of `input`, and `reasoning`
    of `output`. `cost` counts billionths of the currency.
    """

    day: str
    tenant: str
    key: str
    model: str
    upstream: str
    lane: str
    currency: str
    requests: int = 0
    rejected: int = 0
    cut: int = 0
    estimated: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    cost: int = 0


class UsageStore(Protocol):
    """The store's side. Writes outlive the process, as `kill -9` ends it. Each method is one transaction."""

    async def add_usage(self, usage: Sequence[StoredUsage], *, writer: str, number: int, now_s: float) -> None:
        """Add to the usage that is there, up to `MOST_USAGE`.

        A process, `writer`, numbers its additions from 1. One that is there, or comes behind a later one, adds nothing:
        so it may be repeated after an UncertainError. Mark the process as one that may have more to add.
        """
        ...

    async def end_usage(self, writer: str) -> None:
        """Note that a process has added all that it had."""
        ...

    async def forget_lost_usage(self, *, before_s: float) -> Sequence[float]:
        """Forget the processes that may have had more to add, and added nothing since `before_s` (Unix time).

        Return when each added something for the last time.
        """
        ...

    async def sum_usage(
        self,
        *,
        since: str,
        until: str,
        by: Sequence[Dimension],
        tenant: str | None,
        only: Collection[Sequence[str]] | None = None,
    ) -> Sequence[StoredUsage]:
        """Return the sums of usage from one day to another, both included, in the order of what they are summed by.

        They are summed by the currency, too, and none is more than `MOST_USAGE`. `tenant` None: of all tenants.
        `only`: of these values of all that they are summed by, and of one day, it takes no longer the more others there
        are.
        """
        ...

    async def list_usage_changes(self, *, since: str, until: str) -> Mapping[str, int]:
        """Return of each day with usage, of one day to another, a number that grows with each addition to it.

        It is cheap, however much usage there is. A day that was never added to since the store began to count is left
        out.
        """
        ...

    async def announce_gateway(self, gateway: str, *, now_s: float, until_s: float) -> None:
        """Note that a gateway, which has limits, is at work until then unless it reports so again (Unix times)."""
        ...

    async def count_gateways(self, *, now_s: float) -> int:
        """Return how many gateways that have limits are at work on this store."""
        ...

    async def withdraw_gateway(self, gateway: str) -> None:
        """Note that a gateway is at work no longer. Idempotent."""
        ...

    async def prune_usage(self, *, before: str) -> int:
        """Delete the usage of the days before one; return how many rows there were."""
        ...
