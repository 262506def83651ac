"""Where a gateway is killed: so long after something that can be seen from outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .effects import ASKS, STEPS

#: What happens in a run, in order; a number is a line of the ledger. Each is worth as many kills as any other, so there
#: are more of them where much happens in little time: around a question and its answer.
SEEN: Sequence[str | int] = ("asked", *range(1, ASKS), "question", "approve", *range(ASKS, STEPS + 1))
#: With several gateways at work things take longer than they took when they were measured.
STRETCH = 1.3


@dataclass(frozen=True, slots=True)
class Point:
    """`offset_s` after `seen` was seen."""

    seen: str | int
    offset_s: float


def places(count: int) -> list[float]:
    """Spread over a whole run: which sight, and how far it is from there to the next one."""
    return [(i + 0.5) * len(SEEN) / count for i in range(count)]


def point(place: float, lasts_s: Mapping[str | int, float]) -> Point:
    """`lasts_s` is the time from one sight to the next one."""
    seen = SEEN[int(place)]
    return Point(seen, place % 1 * lasts_s[seen] * STRETCH)
