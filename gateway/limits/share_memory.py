"""The shares that a gateway has of its limits, in memory that its workers share.

The first worker calls the store (share_keeper.py), and writes here what this gateway may use. All workers read it. Each
of them writes its own requests for more. Nothing is locked: a word of 64 bits is written at once, and a worker that
admits a request counts it first and looks at the share afterwards.
"""

import mmap
import os
import weakref
from contextlib import suppress
from typing import Final

from gateway.contracts.allowance import LIMITS

#: Words of a counter. The shares of requests under way, requests and tokens; the ceiling of the tokens that budgets
#: allow (`ShareKeeper`); until when each of these is known to be used up everywhere; what other gateways use of the
#: first three; a number that grows with each change of a share, the budget that is used up first, a number that grows
#: with each answer; and from `FIGURES` on the limits, each plus 1, as the latest worker found them.
CONCURRENT, REQUESTS, TOKENS, BUDGET = range(4)
FULL: Final = 4
ELSEWHERE: Final = 8
EPOCH, BINDING, ANSWERS, FIGURES = 11, 12, 13, 14
WORDS: Final = -(-(FIGURES + len(LIMITS)) // 8) * 8
#: Words of the gateway, in microseconds of the clock of all workers: until when it may use its shares, when the first
#: worker was last there. Then the number of its latest call, and whether the store cannot be reached.
LEASE, ALIVE, TURN, FAILING = range(4)
_HEADER: Final = 8
#: A request for more, of so many tokens: these are the lower bits.
_TOKEN_BITS: Final = 36
_MOST_TOKENS: Final = (1 << _TOKEN_BITS) - 1
_MASK: Final = (1 << 62) - 1
MICROSECONDS: Final = 1_000_000
_CHUNK: Final = 64


class ShareMemory:
    """The memory of the shares of all counters, made before the workers are."""

    def __init__(self, *, places: int, size: int) -> None:
        self.places = places
        self._size = size
        words = _HEADER + size * WORDS + places * size
        self._words = memoryview(mmap.mmap(-1, 8 * words)).cast("q")
        self.header = self._words[:_HEADER]
        self._asks_at = _HEADER + size * WORDS
        #: One for each worker, by which others wake it; none where there is only one.
        self.bells = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(places)] if places > 1 else []
        for bell in self.bells:
            weakref.finalize(self, os.close, bell)

    def get_words(self, number: int) -> memoryview:
        """Return the words of a counter."""
        start = _HEADER + number * WORDS
        return self._words[start : start + WORDS]

    def clear(self, number: int) -> None:
        """Forget the shares of a counter, which is another's from now on."""
        words = self.get_words(number)
        epoch, answers = words[EPOCH], words[ANSWERS]
        words[:] = memoryview(bytes(8 * WORDS)).cast("q")
        words[EPOCH], words[ANSWERS] = epoch + 1, answers + 1

    def request_more(self, number: int, place: int, *, requests: int, tokens: int) -> None:
        """Ask for more of a counter, for so many requests with so many tokens in all."""
        at = self._asks_at + place * self._size + number
        more = (requests << _TOKEN_BITS) + min(tokens, _MOST_TOKENS)
        self._words[at] = (self._words[at] + more) & _MASK

    def copy_asks(self) -> list[bytes]:
        """Return what each worker has requested until now."""
        starts = range(self._asks_at, self._asks_at + self.places * self._size, self._size)
        return [self._words[start : start + self._size].tobytes() for start in starts]

    def list_asks(self, since: list[bytes], until: list[bytes]) -> dict[int, tuple[int, int]]:
        """Return the requests and the tokens that were requested between two copies, by counter."""
        asked: dict[int, tuple[int, int]] = {}
        for before, after in zip(since, until, strict=True):
            if before == after:
                continue
            for start in range(0, len(after), 8 * _CHUNK):
                old, new = before[start : start + 8 * _CHUNK], after[start : start + 8 * _CHUNK]
                if old == new:
                    continue
                pairs = zip(memoryview(old).cast("q"), memoryview(new).cast("q"), strict=True)
                for number, (then, now) in enumerate(pairs, start // 8):
                    if more := (now - then) & _MASK:
                        requests, tokens = asked.get(number, (0, 0))
                        asked[number] = requests + (more >> _TOKEN_BITS), tokens + (more & _MOST_TOKENS)
        return asked

    def wake_worker(self, place: int) -> None:
        """Wake a worker, which hears its bell."""
        with suppress(BlockingIOError):  # it was rung often enough
            os.eventfd_write(self.bells[place], 1)

    def listen(self, place: int) -> None:
        """Take what was rung for a worker."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.bells[place])
