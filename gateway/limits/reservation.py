"""The places of a request in its rules, from `Limiter.reserve` to `Reservation.close`.

Tokens are reserved at the beginning, by an estimate, and corrected at the end. The answer that says them may be read
later: then the reservation is closed twice, first with `LATER`, and again with the tokens. What has been closed once
and for all may be closed again, which does nothing.

A busy worker takes places ahead (counter.py). Requests for which there were such places in all rules share a
reservation (`SharedReservation`), and those that end together are closed together (`Settlement`).
"""

import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, Protocol, TypeAlias

#: Bytes of a request for one token, at least.
BYTES_A_TOKEN: Final = 4
#: The outcome of a request without room in its limits: it has used nothing.
LIMITED: Final = "limited"


class Tokens(Enum):
    """The tokens of a request that are not a number: they follow, or the request goes on and they never will."""

    LATER = "later"
    NEVER = "never"


LATER: Final = Tokens.LATER
NEVER: Final = Tokens.NEVER
#: The tokens that a request used; None: they are not known.
Used: TypeAlias = int | Tokens | None


class WindowCounter(Protocol):
    """The counts of a rule, as a reservation needs them."""

    mean: float

    @property
    def ahead_tokens(self) -> int: ...
    def end_requests(self, requests: int = 1) -> None: ...
    def correct_tick(self, requests: int, tokens: int, tick: int) -> None: ...
    def hold_tokens(self, tokens: int) -> None: ...
    def use_tokens(self, tokens: int) -> None: ...
    def settle_tokens(self, tick: int, tokens: int) -> None: ...
    def learn_tokens(self, used: float, requests: int) -> None: ...


class RulePlaces:
    """The places of some requests in the rule of a `counter`: they were taken in one `tick`, and reserve the same.

    `reserved` are the tokens of each (0: they do not count), and `made` is the requests that each counts as: one, or
    none. `is_held`: a budget counts these tokens as held while their requests are under way. `tokens` are those that
    they used beyond what they reserved, until it is settled, and `used` all of as many `requests` as used any. Further
    requests may share them whose bodies have from `least_bytes` to `most_bytes` (`fit_token_estimate`): they reserve
    the same.
    """

    __slots__ = (
        "counter",
        "is_held",
        "least_bytes",
        "made",
        "most_bytes",
        "requests",
        "reserved",
        "tick",
        "tokens",
        "used",
    )

    def __init__(
        self, counter: WindowCounter, tick: int, reserved: int = 0, made: int = 1, *, is_held: bool = False
    ) -> None:
        self.counter = counter
        self.tick = tick
        self.reserved = reserved
        self.made = made
        self.is_held = is_held
        self.tokens = self.used = self.requests = 0
        self.least_bytes, self.most_bytes = 0, -1

    def fit_token_estimate(self, expected: int) -> None:
        """Suit requests that need this many tokens unless their bodies say more; 0: their tokens do not count."""
        reserved = self.reserved
        self.least_bytes, self.most_bytes = 0, -1
        if not self.made or expected > reserved or (reserved and not expected):
            return
        self.most_bytes = reserved * BYTES_A_TOKEN + BYTES_A_TOKEN - 1 if expected else sys.maxsize
        if expected < reserved:
            self.least_bytes = reserved * BYTES_A_TOKEN

    def note_used(self, used: int, requests: int = 1) -> None:
        """Add tokens that some requests used together; `settle_tokens` counts them later."""
        self.tokens += used - self.reserved * requests
        if self.is_held:
            self.counter.hold_tokens(-self.reserved * requests)
            self.counter.use_tokens(used)
        if used:
            self.used += used
            self.requests += requests

    def settle_tokens(self) -> None:
        """Correct what was reserved for requests, and take into the mean what they used."""
        tokens, used, requests = self.tokens, self.used, self.requests
        self.tokens = self.used = self.requests = 0
        self.counter.settle_tokens(self.tick, tokens)
        if requests:
            self.counter.learn_tokens(used / requests, requests)

    def drop_tokens(self) -> "RulePlaces":
        """Return the same place without reserved tokens, which it gives back."""
        self.counter.correct_tick(0, -self.reserved, self.tick)
        return RulePlaces(self.counter, self.tick, 0, self.made)


class Reservation:
    """The places of one request. `places` are those in each of its rules."""

    __slots__ = ("_has_left", "places")

    #: Whether other requests have the same places.
    is_shared = False

    def __init__(self, places: list[RulePlaces]) -> None:
        self.places = places
        self._has_left = False

    def close(self, outcome: str = "ok", tokens: Used = None) -> "Reservation":
        """Give the places back, after so many tokens were used. Return the reservation, as it is from now on.

        `outcome` is that of the exchange (`LIMITED`: it has used nothing). `tokens` LATER: the request has ended, and
        its tokens follow, by another `close`. NEVER: it goes on, but its tokens are not counted.
        """
        if tokens is NEVER:
            _release_tokens(self.places)
            self.places = [RulePlaces(one.counter, one.tick, one.reserved, one.made) for one in self.places]
            return self
        if not self._has_left:
            self._has_left = True
            for one in self.places:
                if one.made:
                    one.counter.end_requests()
        if tokens is LATER:
            return self
        places, self.places = self.places, []
        if outcome == LIMITED:
            _cancel_places(places)
        elif isinstance(tokens, int):
            for one in places:
                if one.reserved:
                    one.note_used(tokens)
                    one.settle_tokens()
        else:
            _release_tokens(places)
        return self

    @property
    def is_urgent(self) -> bool:
        """Return whether the tokens should come at once: a rule has no mean yet to reserve by for the next request."""
        return any(one.reserved and not one.counter.mean for one in self.places)

    def drop_tokens(self) -> None:
        """Release the held tokens, and reserve none: parts of the request take their own."""
        _release_tokens(self.places)
        self.places = [one.drop_tokens() for one in self.places]


_CLOSED: Final = Reservation([])


class SharedReservation:
    """The places of several requests, each of which closes it once."""

    __slots__ = ("places",)

    is_shared = True

    def __init__(self, places: Iterable[RulePlaces]) -> None:
        self.places = tuple(places)

    def close(self, outcome: str = "ok", tokens: Used = None) -> Reservation:
        """Close the reservation for one of its requests; see `Reservation.close`."""
        if outcome == LIMITED or isinstance(tokens, Tokens):
            return Reservation([*self.places]).close(outcome, tokens)
        for one in self.places:
            one.counter.end_requests()
            if tokens is None:
                if one.is_held:
                    one.counter.hold_tokens(-one.reserved)
            elif one.reserved:
                one.note_used(tokens)
                one.settle_tokens()
        return _CLOSED


AnyReservation: TypeAlias = Reservation | SharedReservation


def join_reservations(first: AnyReservation, *others: AnyReservation) -> AnyReservation:
    """Return one reservation of the places of several, in their place."""
    if not others:
        return first
    places, is_shared = [*first.places], first.is_shared
    for one in others:
        places += one.places
        is_shared = is_shared and one.is_shared
    return SharedReservation(places) if is_shared else Reservation(places)


class Settlement:
    """Closes the reservations of requests whose tokens were read together, and counts what they used at once."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[RulePlaces] = []  # those of which something is to be settled

    def close(self, reservation: AnyReservation, used: int, requests: int = 1) -> None:
        """Close a reservation for so many requests, which used so many tokens together.

        One that is not shared was closed with `LATER` before.
        """
        is_shared = reservation.is_shared
        for one in reservation.places:
            if is_shared:
                one.counter.end_requests(requests)
            if one.reserved:
                if not one.requests:
                    self._open.append(one)
                one.note_used(used, requests)

    @property
    def is_urgent(self) -> bool:
        """Return whether what is not counted yet may decide about the next request: it is more than is taken ahead."""
        return any(one.tokens > one.counter.ahead_tokens for one in self._open)

    def settle(self) -> None:
        """Count what the requests used."""
        places, self._open = self._open, []
        for one in places:
            one.settle_tokens()


def _release_tokens(places: Sequence[RulePlaces]) -> None:
    """Release the held tokens; none of them count as used."""
    for one in places:
        if one.is_held:
            one.counter.hold_tokens(-one.reserved)


def _cancel_places(places: Sequence[RulePlaces]) -> None:
    """Take back all that was taken: the request used nothing."""
    _release_tokens(places)
    for one in places:
        one.counter.correct_tick(-one.made, -one.reserved, one.tick)
