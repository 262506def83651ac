"""The admission of equal passthrough requests: one that has room in its rules nearly always costs a look at each."""

import re
from typing import Final

from gateway.limits.limit_rule import LimitMeter, LimitRule
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import (
    BYTES_A_TOKEN,
    AnyReservation,
    Reservation,
    RulePlaces,
    SharedReservation,
    join_reservations,
)

#: So many further rules are remembered: those of the upstreams and the models that requests go to.
MORE: Final = 64
#: How long an answer may be, at whatever depth: nothing in a text looks like that, because its quotes are escaped.
_MOST: Final = re.compile(rb'[{,]\s*"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})(?=[\s,}])')


class Admission:
    """The rules of a plan's requests, and the way to those of the upstream and the model that a request goes to (`of`).

    `takes_tokens`: a model answers the requests.
    """

    __slots__ = (
        "_clock",
        "_counts",
        "_is_new",
        "_joined",
        "_looks",
        "_may_share",
        "_more",
        "_usual",
        "limiter",
        "rules",
        "takes_tokens",
    )

    def __init__(self, limiter: Limiter, rules: tuple[LimitRule, ...], *, takes_tokens: bool) -> None:
        self.limiter = limiter
        self.rules = rules
        self.takes_tokens = takes_tokens
        self._clock = limiter.clock
        #: The places of a request for which there were some ahead in all rules: requests like it may share them.
        self._usual: SharedReservation | None = None
        self._looks: tuple[tuple[LimitMeter, RulePlaces], ...] = ()  # at the meter of each of its places
        #: Two that were shared, and both as one.
        self._joined: tuple[AnyReservation, ...] = (SharedReservation(()),) * 3
        self._more: dict[tuple[LimitRule, ...], Admission] = {}
        # Whether a rule counts the tokens of these requests, and whether perhaps none has told yet what it used.
        self._counts = self._is_new = takes_tokens and any(rule.most_tokens for rule in rules)
        self._update_sharing()

    def _update_sharing(self) -> None:
        """Update whether requests may share reservations: each token limit has a mean to reserve by."""
        self._is_new = self._is_new and any(rule.most_tokens and not rule.meter.mean for rule in self.rules)
        # A place that reserves tokens is for no request without any.
        self._may_share = not self._is_new and (self.takes_tokens or not any(rule.most_tokens for rule in self.rules))

    def with_rules(self, rules: tuple[LimitRule, ...]) -> "Admission":
        """Return the admission of the same requests by further rules."""
        found = self._more.get(rules)
        if found is None:
            if len(self._more) >= MORE:
                self._more.clear()
            found = self._more[rules] = Admission(self.limiter, rules, takes_tokens=self.takes_tokens)
        return found

    def take_prefetched(self, length: int) -> SharedReservation | None:
        """Take prefetched places in all rules, for a body of `length` bytes; None: use `reserve_places`."""
        usual, clock = self._usual, self._clock
        if usual is None:
            return None
        now_s = clock()
        for meter, places in self._looks:
            if (
                not meter.ahead
                or places is not meter.usual
                or now_s >= meter.ends_s
                or not places.least_bytes <= length <= places.most_bytes
            ):
                for taken, _ in self._looks[: usual.places.index(places)]:
                    taken.ahead += 1
                return None
            meter.ahead -= 1
        return usual

    def combine_reservations(self, before: AnyReservation, further: AnyReservation) -> AnyReservation:
        """Return one reservation of both; the same object for the same two shared ones."""
        known, shared, both = self._joined
        if before is known and further is shared:
            return both
        both = join_reservations(before, further)
        if both.is_shared:
            self._joined = before, further, both
        return both

    def reserve_places(self, body: bytes, length: int) -> Reservation:
        """Take a place in all rules for a request with what is here of its body, and its length in bytes.

        Raises GatewayError as `Limiter.reserve_places`.
        """
        if not self._counts:
            reservation = self.limiter.reserve_places(self.rules)
        else:
            if self._is_new:
                self._update_sharing()
            guess = estimate_request_tokens(body, length) if self._is_new else None
            reservation = self.limiter.reserve_places(self.rules, length // BYTES_A_TOKEN, guess=guess)
        places = reservation.places
        if self._may_share and all(map(_has_places_ahead, places, self.rules)):
            self._usual = SharedReservation(places)
            self._looks = tuple(zip((rule.meter for rule in self.rules), places, strict=True))
        return reservation


def _has_places_ahead(places: RulePlaces, rule: LimitRule) -> bool:
    """Return whether more prefetched places like these are left, by the limits of the rule."""
    meter = rule.meter
    return meter.ahead > 0 and places is meter.usual and meter.looked_by is rule.most


def estimate_request_tokens(body: bytes, length: int) -> int | None:
    """Return the most tokens that a request's body allows; None: it states no limit."""
    found = _MOST.findall(body)
    return length // BYTES_A_TOKEN + max(map(int, found)) if found else None
