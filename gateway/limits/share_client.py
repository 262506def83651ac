"""The shares of a gateway's limits, as one of its workers sees them: whether they are valid, and the way to more.

A request may find no room in the share, though its limit may have some. Then its worker requests more from the first
one, and the request waits for the answer (`UndecidedError`). While no gateway has any left, requests are refused at
once.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.contracts.allowance import BUDGETS, COSTS, Allowance, Limit
from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.contracts.storage.quota import QUOTA_LEASE_S
from gateway.contracts.storage.usage import COST_UNITS
from gateway.limits.share_memory import (
    ALIVE,
    ANSWERS,
    BUDGET,
    CONCURRENT,
    FAILING,
    FIGURES,
    FULL,
    LEASE,
    MICROSECONDS,
    REQUESTS,
    TOKENS,
    ShareMemory,
)

#: How long a request waits for an answer before it looks by itself whether the first worker still answers.
LONGEST_S: Final = QUOTA_LEASE_S
#: When a client should come again whose gateway cannot reach the store.
AGAIN_S: Final = 1.0
#: The limits with a share of their own, in the order of their words.
SHARED: Final[tuple[Limit, ...]] = ("concurrent", "requests_per_minute", "tokens_per_minute")
_WORDS: Final = {"concurrent": CONCURRENT, "requests_per_minute": REQUESTS, "tokens_per_minute": TOKENS}


class ShareClient:
    """One worker's way to the shares. `clock` is that of all workers (monotonic)."""

    def __init__(self, memory: ShareMemory, *, place: int, clock: Callable[[], float]) -> None:
        self.memory = memory
        self.place = place
        self.clock = clock
        self._header = memory.header
        self._waiting: dict[int, tuple[int, list[asyncio.Future[None]]]] = {}
        #: Set when a worker needs more (only that of the first worker).
        self.has_asks = asyncio.Event()

    def open(self) -> None:
        """Listen to the other workers, on the running loop."""
        if self.memory.bells:
            asyncio.get_running_loop().add_reader(self.memory.bells[self.place], self._receive_answers)

    def close(self) -> None:
        """Listen no more."""
        if self.memory.bells:
            asyncio.get_running_loop().remove_reader(self.memory.bells[self.place])

    def wake_answered(self) -> None:
        """Wake those of all workers whose requests for more are answered."""
        self._wake_waiters()
        for place in range(1, len(self.memory.bells)):
            self.memory.wake_worker(place)

    def has_lease(self, now_s: float) -> bool:
        """Return whether this gateway may use its shares."""
        return self._header[LEASE] > now_s * MICROSECONDS

    @property
    def is_failing(self) -> bool:
        """Return whether the store cannot be reached, or none has tried lately. At the start, none has yet."""
        failing, alive = self._header[FAILING], self._header[ALIVE]
        return bool(failing or (alive and (self.clock() - QUOTA_LEASE_S) * MICROSECONDS > alive))

    def wait_for_more(self, number: int, refusal: GatewayError, *, requests: int, tokens: int) -> UndecidedError:
        """Ask for more of a counter. Return the error of a request that waits for the answer."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()
        answers = self.memory.get_words(number)[ANSWERS]
        known, waiting = self._waiting.setdefault(number, (answers, []))
        if known != answers:  # it was answered just now
            waiting = []
            self._waiting[number] = answers, waiting
        waiting.append(answered)
        loop.call_later(LONGEST_S, _resolve_answer, answered)
        self.request_more(number, requests=requests, tokens=tokens)
        return UndecidedError(refusal, answered)

    def request_more(self, number: int, *, requests: int, tokens: int) -> None:
        """Ask for more of a counter, and wait for nothing."""
        self.memory.request_more(number, self.place, requests=requests, tokens=tokens)
        if self.place:
            self.memory.wake_worker(0)
        else:
            self.has_asks.set()

    def _receive_answers(self) -> None:
        self.memory.listen(self.place)
        if self.place:
            self._wake_waiters()
        else:
            self.has_asks.set()

    def _wake_waiters(self) -> None:
        for number, (answers, waiting) in list(self._waiting.items()):
            if self.memory.get_words(number)[ANSWERS] != answers:
                del self._waiting[number]
                for answered in waiting:
                    _resolve_answer(answered)


def _resolve_answer(answered: "asyncio.Future[None]") -> None:
    if not answered.done():
        answered.set_result(None)


def write_figures(words: memoryview, allowance: Allowance) -> None:
    """Write the limits of a counter, for the first worker."""
    for at, figure in enumerate(_list_figures(allowance), FIGURES):
        if words[at] != figure + 1:
            words[at] = figure + 1


def read_figures(words: memoryview) -> tuple[int | None, ...]:
    """Return the limits of a counter: those with shares of their own, then budgets; costs are in `COST_UNITS`."""
    figures = words[FIGURES : FIGURES + len(SHARED) + len(BUDGETS)].tolist()
    return tuple(figure - 1 if figure else None for figure in figures)


def _list_figures(allowance: Allowance) -> Sequence[int]:
    figures = [getattr(allowance, limit) for limit in SHARED]
    for limit in BUDGETS:
        figure = getattr(allowance, limit)
        figures.append(figure if figure is None or limit not in COSTS else round(figure * COST_UNITS))
    return [-1 if figure is None else figure for figure in figures]


def is_used_up(words: memoryview, limit: Limit, now_s: float) -> bool:
    """Return whether it is known that no gateway has any left of a limit."""
    return bool(words[FULL + _WORDS.get(limit, BUDGET)] > now_s * MICROSECONDS)


def build_sharing_error(scope: str, name: str) -> GatewayError:
    """Return the error of a request whose limits cannot be counted together with those of other gateways."""
    return GatewayError(
        "overloaded",
        f"The {scope} {name!r} has limits that several gateways share, and this one cannot reach the store in which "
        "they do: try again in a second.",
        retry_after_s=AGAIN_S,
    )
