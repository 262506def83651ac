"""One counter as a worker sees it: requests and tokens of the last minute, and what is under way, in all workers.

Each request counts, so what stays the same within a tick is kept: its bounds, its place, and the sums of the window.
Where a lot of room is left, a busy worker takes some places ahead, so that the next requests need not look
(`Limiter.reserve`). What is left of them is given back before this worker looks at the sums. Others see them as taken:
all of them together are at most half a percent of the room, so nobody is refused for more than that.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from gateway.contracts.allowance import LIMITS, Limit
from gateway.limits.share_memory import ELSEWHERE
from gateway.limits.shared_memory import (
    BEFORE,
    HELD,
    LAST,
    NOW,
    OVER,
    REQUESTS,
    STORED,
    STORED_AT,
    TICK_S,
    TICKS,
    TOKENS,
    USED,
)

#: What is counted in the window of a minute.
Kind: TypeAlias = Literal["requests", "tokens"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
#: What is under way, and what was made and used in the window; or the most of each.
Sums: TypeAlias = tuple[int, int, int]
#: The row of the worker, and those of the others (`SharedCounters.rows`).
Rows: TypeAlias = tuple[memoryview, tuple[memoryview, ...]]
#: The most that one tick of one worker counts. More in a quarter of a second is counted as this.
MOST: Final = (1 << 31) - 1
#: So many requests in a tick, or in the one before it, are enough for places to be taken ahead.
BUSY: Final = 64
#: So many places are taken ahead, at most.
AHEAD: Final = 256
#: One of so many places that are left may be taken ahead, by all workers together.
ENOUGH: Final = 200
#: So many requests of a worker may have ended without having left, at most.
LATE: Final = 32
#: Less than any sums.
LEAST: Final[Sums] = (-1, -1, -1)
_RINGS: Final[Mapping[Kind, int]] = {"requests": REQUESTS, "tokens": TOKENS}


class Counter:
    """A counter, opened by one worker. Times are seconds of the `clock` that all workers share (monotonic).

    `opened` returns its rows, and raises GatewayError if there is no room for them. A counter that nobody uses gives
    them back (`close`), and has them again when it is used.
    """

    __slots__ = (
        "_at",
        "_clock",
        "_is_open",
        "_mine",
        "_older_requests",
        "_older_tokens",
        "_opened",
        "_tick_requests",
        "_tick_tokens",
        "_waits",
        "_was_busy",
        "ahead",
        "ahead_each",
        "ahead_spare",
        "ends_s",
        "looked_by",
        "number",
        "others",
        "share_words",
        "tick",
        "under_way",
    )

    _mine: memoryview
    #: The rows of the others.
    others: tuple[memoryview, ...]
    #: The requests of this worker that are under way, and those that are `ahead`.
    under_way: int
    #: The number of its rows and the words of its shares, where the gateway has some in common with others.
    number: int
    share_words: memoryview
    #: The end of the latest tick in which this worker counted or looked, in seconds of the clock.
    ends_s: float

    def __init__(self, opened: Callable[["Counter"], Rows], clock: Callable[[], float]) -> None:
        self._opened = opened
        self._clock = clock
        self.share_words = _NO_ROW
        #: The number of that tick.
        self.tick = -TICKS
        #: Requests that are counted in that tick and as under way, but are not made yet, the tokens that are counted
        #: for each, and some more for those that need more.
        self.ahead = self.ahead_each = self.ahead_spare = 0
        #: The figures, this very tuple, by which a request looked last: what is ahead is for requests by these only.
        self.looked_by: Sums = LEAST
        self._at = REQUESTS
        # Of this worker in the latest tick. Nobody else writes to its row.
        self._tick_requests = self._tick_tokens = 0
        self._was_busy = False  # in the tick before
        # In the rest of the window, but for the latest two ticks of the others.
        self._older_requests = self._older_tokens = 0
        self._waits: tuple[int, dict[tuple[Kind, int], float]] = -1, {}  # of a tick
        self._open()

    def close(self) -> None:
        """Have no rows until it is used again."""
        self.give_back_ahead()
        self._mine, self.others = _NO_ROW, ()
        self._is_open = False
        self.ends_s = float("-inf")

    def open_shares(self, number: int, words: memoryview) -> None:
        """Have shares, with the rows of this number."""
        self.number, self.share_words = number, words

    def is_unused(self, since_s: float) -> bool:
        """Return whether this worker has nothing under way, and has neither counted nor looked since then."""
        return self._is_open and self.under_way == self.ahead and self.ends_s <= since_s

    def count_requests(self, requests: int, tokens: int, now_s: float, most: Sums = LEAST) -> Sums | None:
        """Count requests as made and as under way, and tokens as used.

        Return the sums with them, if one to which they add is more than `most`; None: they have room.
        """
        self.give_back_ahead()
        if most is not self.looked_by:
            self._set_thresholds(most)
        if now_s >= self.ends_s:
            self._begin_tick(now_s)
        mine, at = self._mine, self._at
        most_present, most_made, most_used = most
        self.under_way = present = self.under_way + requests
        self._tick_requests = mine[at] = made = self._tick_requests + requests
        made += self._older_requests
        used = -1
        if tokens:
            used = self._tick_tokens + tokens
            if used > MOST:
                used = MOST
            self._tick_tokens = mine[at + TICKS] = used
            used += self._older_tokens
        if self.others:  # else nobody reads it
            mine[NOW] = present
            present, made, used = self._with_others(present, made, used)
        if present > most_present or made > most_made or used > most_used:
            return self._read_sums()
        if self._was_busy or self._tick_requests >= BUSY:
            self._take_ahead(tokens, most_present - present, most_made - made, most_used - used)
            if self.others:  # which may have added since
                present, made, used = self._read_sums()
                if present > most_present or made > most_made or (tokens and used > most_used):
                    self.give_back_ahead()
        return None

    def _set_thresholds(self, most: Sums) -> None:
        """Take places ahead for requests by these figures, from now on."""
        self.looked_by = most

    def give_back_ahead(self) -> None:
        """Give back what is left of the places that were taken ahead."""
        ahead, tokens = self.ahead, self.ahead_tokens
        if ahead or tokens:
            self.ahead = self.ahead_spare = 0
            self._count(-ahead, -tokens)
            self.end_requests(ahead)

    @property
    def ahead_tokens(self) -> int:
        """Return the tokens of all places that were taken ahead and are left."""
        return self.ahead * self.ahead_each + self.ahead_spare

    def sum_all(self) -> Sums:
        """Return what is under way, and what was made and used in the window, without what was taken ahead."""
        self.give_back_ahead()
        return self._read_sums()

    def end_requests(self, requests: int = 1) -> None:
        """Subtract finished requests from those under way, and publish the count to the other workers."""
        self.under_way -= requests
        if self.others:
            self._mine[NOW] = self.under_way

    def correct_tick(self, requests: int, tokens: int, tick: int) -> None:
        """Correct what was counted in a tick. Of what left the window since, only more than was thought counts."""
        now_s = self._clock()
        if now_s >= self.ends_s:
            self._begin_tick(now_s)
        if requests > 0 or tokens > 0:
            self.give_back_ahead()
        now = self.tick
        if now - tick >= TICKS:
            requests, tokens = max(requests, 0), max(tokens, 0)
        elif tick != now:
            at = REQUESTS + tick % TICKS
            self._older_requests += self._add_to_word(at, requests)
            self._older_tokens += self._add_to_word(at + TICKS, tokens)
            return
        self._count(requests, tokens)

    def get_used(self, kind: Kind, now_s: float) -> int:
        """Return what was made or used in the window."""
        self.give_back_ahead()
        if now_s >= self.ends_s:
            self._begin_tick(now_s)
        _, made, used = self._read_sums()
        return made if kind == "requests" else used

    def peek_used(self, kind: Kind, now_s: float) -> int:
        """Return what was made or used in the window, with what was taken ahead.

        A look is no use: a counter that nobody uses gives its rows back all the same.
        """
        tick = int(now_s / TICK_S)
        rows = (self._mine, *self.others) if self._is_open else ()
        return sum(_count_between(row, _RINGS[kind], tick - TICKS + 1, tick) for row in rows)

    def estimate_most(self, kind: Kind) -> int:
        """Return the most that `seen` may return, which costs less: what has left the window since is in it."""
        if not self._is_open:
            return 0
        _, made, used = self._read_sums()
        return made if kind == "requests" else used

    def count_under_way(self) -> int:
        """Return how many are under way."""
        _, *others = self._list_rows()
        return self.under_way - self.ahead + sum(row[NOW] for row in others)

    def get_used_elsewhere(self, at: int) -> int:
        """Return what other gateways use of one of the limits that they share, in their order."""
        return int(self.share_words[ELSEWHERE + at]) if self._is_open and self.share_words else 0

    def wait_s(self, kind: Kind, over: int, now_s: float) -> float:
        """Return when at least `over` of what was made or used will have left the window, in seconds from now."""
        tick = int(now_s / TICK_S)
        if self._waits[0] != tick:
            self._waits = tick, {}
        waits = self._waits[1]
        if (kind, over) not in waits:
            waits[kind, over] = self._get_window_exit_s(_RINGS[kind], over, tick)
        return max(waits[kind, over] - now_s, 0.0)

    def measure_time_until_empty_s(self, kind: Kind, now_s: float) -> float:
        """Return when all that was made or used will have left the window, in seconds from now."""
        if not self.get_used(kind, now_s):
            return 0.0
        tick = int(now_s / TICK_S)
        for then in range(tick, tick - TICKS, -1):
            if any(_count_between(row, _RINGS[kind], then, then) for row in self._list_rows()):
                return max((then + TICKS) * TICK_S - now_s, 0.0)
        return 0.0

    def count_exceeded(self, limit: Limit) -> None:
        """Count a request over a limit."""
        mine, *_ = self._list_rows()
        at = OVER + LIMITS.index(limit)
        mine[at] = min(mine[at] + 1, MOST)

    def get_exceeded_count(self, limit: Limit) -> int:
        """Return how many requests were over a limit since the gateway started."""
        at = OVER + LIMITS.index(limit)
        return sum(row[at] for row in self._list_rows())

    # For budgets: what is held and used, but not read from the store yet.

    def hold_tokens(self, tokens: int) -> None:
        """Count tokens as held by a request under way; less than 0: no longer."""
        mine, *_ = self._list_rows()
        mine[HELD] = min(max(mine[HELD] + tokens, 0), MOST)

    def use_tokens(self, tokens: int) -> None:
        """Count tokens as used, until they are read from the store."""
        mine, *_ = self._list_rows()
        mine[USED] = (mine[USED] + tokens) & MOST

    def get_pending_tokens(self, stored: Sequence[int] | None, read_s: float) -> int:
        """Return the tokens that all workers hold, and those used that are not `stored` yet (`read_all_stored`).

        `stored` None: none were read since it has rows. Then those count which were stored after `read_s`, when the
        latest read began.
        """
        rows = self._list_rows()
        known = [get_stored(row, read_s) for row in rows] if stored is None else stored
        return sum(row[HELD] + ((row[USED] - then) & MOST) for row, then in zip(rows, known, strict=True))

    def get_budgeted_tokens(self) -> int:
        """Return the tokens that all workers hold and have used since the gateway began, up to `MOST` and again."""
        return sum(row[HELD] + row[USED] for row in self._list_rows()) & MOST

    def read_all_stored(self) -> Sequence[int] | None:
        """Return what each worker has stored until now; None: this one has no rows."""
        return [row[STORED] for row in self._list_rows()] if self._is_open else None

    def note_stored(self, used: int) -> None:
        """Note that what this worker had used at a time (`own_use`) is stored."""
        if self._is_open:
            mine = self._mine
            mine[BEFORE], mine[STORED], mine[STORED_AT] = mine[STORED], used, int(self._clock() / TICK_S)

    @property
    def own_use(self) -> int | None:
        """Return what this worker has used, if that is not stored; None: all of it is."""
        if not self._is_open or self._mine[USED] == self._mine[STORED]:
            return None
        return self._mine[USED]

    def _open(self) -> None:
        """Have rows. Raises GatewayError (overloaded) if there is no room for them."""
        self.close()
        self._mine, self.others = self._opened(self)
        self._is_open = True
        self.under_way = self._mine[NOW]

    def _list_rows(self) -> tuple[memoryview, ...]:
        """Return all rows, that of this worker first."""
        if not self._is_open:
            self._open()
        return self._mine, *self.others

    def _add_to_word(self, at: int, by: int) -> int:
        """Add to a word. Return what was added: no more than fits, and no less than leaves nothing."""
        mine = self._mine
        known = mine[at]
        mine[at] = changed = min(max(known + by, 0), MOST)
        return changed - known

    def _count(self, requests: int, tokens: int) -> None:
        """Count more in the latest tick, or less."""
        self._tick_requests += self._add_to_word(self._at, requests)
        self._tick_tokens += self._add_to_word(self._at + TICKS, tokens)

    def _take_ahead(self, tokens: int, room_present: int, room: int, room_tokens: int) -> None:
        """Take places ahead, for requests that use so many tokens each, from the room that is left.

        What is under way is given back when it ends, so all that is left of that may be taken where nobody else wants
        it. Others see those that have not left as well.
        """
        enough = ENOUGH * (1 + len(self.others))
        if self.others:
            room_present = room_present // enough - LATE
        ahead, spare = min(room // enough, room_present, AHEAD), 0
        if tokens:
            most_tokens = min(room_tokens // enough, MOST - self._tick_tokens)
            ahead = min(ahead, most_tokens // tokens)
            spare = min(ahead * tokens, most_tokens - ahead * tokens)
        if ahead > 0:
            self._count(ahead, ahead * tokens + spare)
            self.end_requests(-ahead)
            self.ahead, self.ahead_each, self.ahead_spare = ahead, tokens, spare

    def _read_sums(self) -> Sums:
        made, used = self._older_requests + self._tick_requests, self._older_tokens + self._tick_tokens
        return self._with_others(self.under_way, made, used)

    def _with_others(self, present: int, made: int, used: int) -> Sums:
        """Return sums with the latest of the others: they may still write to two ticks."""
        tick, at = self.tick, self._at
        before = REQUESTS + (tick - 1) % TICKS
        for row in self.others:
            present += row[NOW]
            last = row[LAST]
            if last > tick:  # this worker came to its tick before, and was stopped since
                made += _count_between(row, REQUESTS, tick - 1, last)
                used += _count_between(row, TOKENS, tick - 1, last)
            elif last == tick:
                made += row[at] + row[before]
                used += row[at + TICKS] + row[before + TICKS]
            elif last == tick - 1:
                made += row[before]
                used += row[before + TICKS]
        return present, made, used

    def _begin_tick(self, now_s: float) -> None:
        """Begin a tick: clear the places of those that have left the window, and sum up the others' once."""
        self.give_back_ahead()
        if not self._is_open:
            self._open()
        tick, mine = int(now_s / TICK_S), self._mine
        for passed in range(max(mine[LAST] + 1, tick - TICKS + 1), tick + 1):
            at = REQUESTS + passed % TICKS
            mine[at] = mine[at + TICKS] = 0
        mine[LAST] = tick
        self._was_busy = self._tick_requests >= BUSY and self.tick == tick - 1
        self.tick, self._at = tick, REQUESTS + tick % TICKS
        self.ends_s = (tick + 1) * TICK_S
        self._tick_requests, self._tick_tokens = mine[self._at], mine[self._at + TICKS]
        first, last = tick - TICKS + 1, tick - 2
        self._older_requests = sum(mine[REQUESTS:TOKENS].tolist()) - self._tick_requests
        self._older_tokens = sum(mine[TOKENS:].tolist()) - self._tick_tokens
        for row in self.others:
            self._older_requests += _count_between(row, REQUESTS, first, last)
            self._older_tokens += _count_between(row, TOKENS, first, last)

    def _get_window_exit_s(self, ring: int, over: int, tick: int) -> float:
        """Return the time at which the oldest `over` of all workers will have left the window."""
        rows = self._list_rows()
        for then in range(tick - TICKS + 1, tick + 1):
            over -= sum(_count_between(row, ring, then, then) for row in rows)
            if over <= 0:
                return (then + TICKS) * TICK_S
        return (tick + TICKS) * TICK_S


_NO_ROW: Final = memoryview(bytearray()).cast("i")


def get_stored(row: memoryview, read_s: float) -> int:
    """Return what a worker had stored when a read began."""
    return row[BEFORE] if (row[STORED_AT] + 1) * TICK_S > read_s else row[STORED]


def sum_window(row: memoryview, ring: int, first: int) -> int:
    """Return what a row counts since a tick."""
    return _count_between(row, ring, first, row[LAST])


def _count_between(row: memoryview, ring: int, first: int, last: int) -> int:
    """Return what a row counts from one tick to another, of those that it still has."""
    newest = row[LAST]
    first, last = max(first, newest - TICKS + 1), min(last, newest)
    if first > last:
        return 0
    start, end = ring + first % TICKS, ring + last % TICKS
    if start <= end:
        return sum(row[start : end + 1].tolist())
    return sum(row[start : ring + TICKS].tolist()) + sum(row[ring : end + 1].tolist())
