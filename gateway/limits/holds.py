"""The places of one request in its rules: how they are given back, and how what was reserved is settled.

A hold is a list of places. It has no class, because each request has one, and a list is what the interpreter makes
without a call.
"""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from gateway.limits.rule import LimitMeter

#: Bytes of a request for one token, at least.
BYTES_A_TOKEN: Final = 4
#: The outcome of a passthrough request without room in its limits.
LIMITED: Final = "limited"


class Reservation:
    """The places of some requests in the rule of a `meter`: they were taken in one `tick`, and reserve the same.

    `reserved` are the tokens of each (0: they do not count), and `made` is the requests that each counts as: one, or
    none. `is_held`: a budget counts these tokens as held while their requests are under way. `tokens` are those that
    they used beyond what they reserved, until it is settled, and `used` all of as many `requests` as used any. Further
    requests may share them whose bodies have from `least_bytes` to `most_bytes` (`suit`): they reserve the same.
    """

    __slots__ = (
        "is_held",
        "least_bytes",
        "made",
        "meter",
        "most_bytes",
        "requests",
        "reserved",
        "tick",
        "tokens",
        "used",
    )

    def __init__(
        self, meter: "LimitMeter", tick: int, reserved: int = 0, made: int = 1, *, is_held: bool = False
    ) -> None:
        self.meter = meter
        self.tick = tick
        self.reserved = reserved
        self.made = made
        self.is_held = is_held
        self.tokens = self.used = self.requests = 0
        self.least_bytes, self.most_bytes = 0, -1

    def suit(self, expected: int) -> None:
        """Suit requests that need this many tokens unless their bodies say more; 0: their tokens do not count."""
        reserved = self.reserved
        self.least_bytes, self.most_bytes = 0, -1
        if not self.made or expected > reserved or (reserved and not expected):
            return
        self.most_bytes = reserved * BYTES_A_TOKEN + BYTES_A_TOKEN - 1 if expected else sys.maxsize
        if expected < reserved:
            self.least_bytes = reserved * BYTES_A_TOKEN


Hold: TypeAlias = list[Reservation]
#: A hold that belongs to several requests, so nobody changes it.
Share: TypeAlias = tuple[Reservation, ...]
#: Those of which something is to be settled. They may be there twice.
Owed: TypeAlias = list[Reservation]


def leave(hold: Hold) -> bool:
    """Be under way no longer. Whoever calls this settles the places later, and does not call `end`.

    Return whether that should come at once: a rule has no mean yet to reserve by for the next request.
    """
    is_first = False
    for places in hold:
        meter = places.meter
        if places.made:
            meter.leave()
        if not meter.mean and places.reserved:
            is_first = True
    return is_first


def owe(hold: Hold, used: int) -> Owed:
    """Return the places of which something is to be settled, after so many tokens were used."""
    owed = [places for places in hold if places.reserved]
    for places in owed:
        places.tokens += used - places.reserved
        if places.is_held:
            _release(places, used)
        if used:
            places.used += used
            places.requests += 1
    return owed


def owe_together(hold: Iterable[Reservation], used: int, requests: int, owed: Owed) -> None:
    """Note what some requests used, each of which had all these places, and that something of them is to be settled."""
    for places in hold:
        if places.reserved:
            if not places.requests:
                owed.append(places)
            places.tokens += used - places.reserved * requests
            if places.is_held:
                _release(places, used, requests)
            places.used += used
            places.requests += requests


def end_together(share: Share, used: int, requests: int, owed: Owed) -> None:
    """End so many requests that share a hold, and used so much together; see `owe_together`."""
    for places in share:
        places.meter.leave(requests)
    owe_together(share, used, requests, owed)


def is_urgent(owed: Owed) -> bool:
    """Return whether what is owed may decide about the next request: it is more tokens than are taken ahead."""
    return any(places.tokens > places.meter.ahead_tokens for places in owed)


def settle(owed: Owed) -> None:
    """Correct what was reserved for some requests, and take into the means what they used."""
    for places in owed:
        meter, tokens, used, requests = places.meter, places.tokens, places.used, places.requests
        places.tokens = places.used = places.requests = 0
        meter.settle(places.tick, tokens)
        if requests:
            meter.learn(used / requests, requests)


def end(hold: Hold, tokens: int | None = None) -> None:
    """Give the places back. `tokens` are those that were used; None: not known. Idempotent."""
    leave(hold)
    if tokens is not None:
        settle(owe(hold, tokens))
    else:
        _release_all(hold)
    hold.clear()


def give_back(hold: Hold, outcome: str, tokens: int | None = None) -> None:
    """Give the places of a passthrough request back, by its outcome. `tokens` as for `end`."""
    if outcome == LIMITED:
        withdraw(hold)
    else:
        end(hold, tokens)


def withdraw(hold: Hold) -> None:
    """Take back all that was taken: a limit refuses the request, which so uses nothing. Idempotent."""
    leave(hold)
    _release_all(hold)
    for places in hold:
        places.meter.correct(-places.made, -places.reserved, places.tick)
    hold.clear()


def unreserve(hold: Hold) -> None:
    """Reserve no tokens, and settle none."""
    _release_all(hold)
    for number, places in enumerate(hold):
        places.meter.correct(0, -places.reserved, places.tick)
        hold[number] = Reservation(places.meter, places.tick, 0, places.made)


def let_go(hold: Hold) -> None:
    """Hold no tokens for budgets any longer, because what is used of them will not be counted."""
    _release_all(hold)
    hold[:] = [Reservation(one.meter, one.tick, one.reserved, one.made) for one in hold]


def _release(places: Reservation, used: int, requests: int = 1) -> None:
    """Hold the tokens of so many requests no longer, which used so many together."""
    places.meter.hold(-places.reserved * requests)
    places.meter.use(used)


def _release_all(hold: Hold) -> None:
    """Hold no tokens any longer, of which none count as used."""
    for places in hold:
        if places.is_held:
            places.meter.hold(-places.reserved)
