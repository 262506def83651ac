"""One counter as a worker sees it: what was used in the last minute, and what is under way, in all workers together."""

from typing import Final

from gateway.limits.shared import FIRST, LAST, NOW, OVER, TICK_S, TICKS, SharedCounters

#: The most that one tick of one worker counts. More in a quarter of a second is counted as this.
MOST: Final = (1 << 31) - 1


class Counter:
    """A counter, opened by the worker at `place`. Times are seconds of the clock that all workers share (monotonic).

    Each request counts several times, so what stays the same within a tick is kept: its bounds, and its place.
    """

    __slots__ = ("_at", "_begins_s", "_ends_s", "_mine", "_mine_sum", "_older", "_others", "_tick", "_waits")

    def __init__(self, shared: SharedCounters, number: int, *, place: int) -> None:
        self._mine = shared.row(number, place)
        self._others = tuple(shared.row(number, other) for other in range(shared.places) if other != place)
        self._tick = -TICKS
        self._begins_s = self._ends_s = float("-inf")
        self._at = FIRST
        self._mine_sum = 0
        self._older = 0
        self._waits: tuple[int, dict[int, float]] = -1, {}  # of a tick

    # The window.

    def add(self, amount: int, now_s: float) -> int:
        """Add to what was used. Return what is used with it."""
        if now_s >= self._ends_s:
            self._turn(int(now_s / TICK_S))
        mine, at = self._mine, self._at
        known = mine[at]
        if amount > MOST - known:
            amount = MOST - known
        mine[at] = known + amount
        self._mine_sum += amount
        return self._sum() if self._others else self._mine_sum

    def used(self, now_s: float) -> int:
        """Return what is used."""
        return self.add(0, now_s)

    def correct(self, by: int, since_s: float, now_s: float) -> None:
        """Correct what was added at `since_s`. Of what left the window since, only more than was thought counts."""
        if now_s >= self._ends_s:
            self._turn(int(now_s / TICK_S))
        at = self._at
        if since_s < self._begins_s:
            then = int(since_s / TICK_S)
            if self._tick - then < TICKS:
                at = FIRST + then % TICKS
            elif by < 0:
                return
        mine = self._mine
        known = mine[at]
        if by > MOST - known:
            by = MOST - known
        elif by < -known:
            by = -known
        mine[at] = known + by
        self._mine_sum += by

    def wait_s(self, over: int, now_s: float) -> float:
        """Return when at least `over` of what is used will have left the window, in seconds from now."""
        tick = int(now_s / TICK_S)
        if self._waits[0] != tick:
            self._waits = tick, {}
        waits = self._waits[1]
        if over not in waits:
            waits[over] = self._leaves_s(over, tick)
        return max(waits[over] - now_s, 0.0)

    def empty_s(self, now_s: float) -> float:
        """Return when all that is used will have left the window, in seconds from now."""
        if not self.used(now_s):
            return 0.0
        tick, rows = int(now_s / TICK_S), (self._mine, *self._others)
        for then in range(tick, tick - TICKS, -1):
            if any(_between(row, then, then) for row in rows):
                return max((then + TICKS) * TICK_S - now_s, 0.0)
        return 0.0

    def is_unused(self, since_s: float) -> bool:
        """Return whether this worker has nothing under way, and has neither counted nor looked since then."""
        return not self._mine[NOW] and self._ends_s <= since_s

    # What is under way.

    def enter(self) -> int:
        """Count one more under way. Return how many are."""
        mine = self._mine
        mine[NOW] = present = mine[NOW] + 1
        for row in self._others:
            present += row[NOW]
        return present

    def leave(self) -> None:
        """Count one less under way."""
        self._mine[NOW] -= 1

    def present(self) -> int:
        """Return how many are under way."""
        return self._mine[NOW] + sum(row[NOW] for row in self._others)

    # Requests over a limit, by its number in `LIMITS`.

    def note_over(self, limit: int) -> None:
        """Count a request over a limit."""
        at = OVER + limit
        self._mine[at] = min(self._mine[at] + 1, MOST)

    def over(self, limit: int) -> int:
        """Return how many requests were over a limit since the gateway started."""
        return self._mine[OVER + limit] + sum(row[OVER + limit] for row in self._others)

    def _sum(self) -> int:
        """Return what is used. The latest two ticks of other workers are read anew: they may still write to them."""
        tick, at = self._tick, self._at
        total = self._mine_sum + self._older
        before = FIRST + (tick - 1) % TICKS
        for row in self._others:
            last = row[LAST]
            if last >= tick:
                total += row[at] + row[before]
            elif last == tick - 1:
                total += row[before]
        return total

    def _turn(self, tick: int) -> None:
        """Begin a tick: clear the places of those that have left the window, and sum up the others' once."""
        mine = self._mine
        last = self._mine[LAST]
        for passed in range(max(last + 1, tick - TICKS + 1), tick + 1):
            mine[FIRST + passed % TICKS] = 0
        mine[LAST] = tick
        self._tick, self._at = tick, FIRST + tick % TICKS
        self._begins_s = tick * TICK_S
        self._ends_s = self._begins_s + TICK_S
        self._mine_sum = sum(mine[FIRST:])
        self._older = sum(_between(row, tick - TICKS + 1, tick - 2) for row in self._others)

    def _leaves_s(self, over: int, tick: int) -> float:
        """Return the time at which the oldest `over` of all workers will have left the window."""
        rows = (self._mine, *self._others)
        for then in range(tick - TICKS + 1, tick + 1):
            over -= sum(_between(row, then, then) for row in rows)
            if over <= 0:
                return (then + TICKS) * TICK_S
        return (tick + TICKS) * TICK_S


def _between(row: memoryview, first: int, last: int) -> int:
    """Return what a row counts from one tick to another, of those that it still has."""
    newest = row[LAST]
    first, last = max(first, newest - TICKS + 1), min(last, newest)
    if first > last:
        return 0
    start, end = FIRST + first % TICKS, FIRST + last % TICKS
    if start <= end:
        return sum(row[start : end + 1])
    return sum(row[start:]) + sum(row[FIRST : end + 1])
