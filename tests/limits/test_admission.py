"""Admissions of passthrough requests: the tokens that a body announces, and the places that requests share."""

import weakref

import pytest

from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.limits.admission import Admission, estimate_request_tokens
from gateway.limits.counter import AHEAD, BUSY
from gateway.limits.counter_registry import UNUSED_S
from gateway.limits.reservation import SharedReservation

from .limiting import Workers, caller

TEAM = Allowance(requests_per_minute=10**6)


@pytest.mark.parametrize(
    ("body", "guess"),
    [
        (b'{"max_tokens": 40}', 65),
        (b'{"a":1,"max_completion_tokens":7,"max_tokens":40}', 65),
        (b'{"max_output_tokens":9', None),  # it goes on with digits, perhaps
        (b'{"max_tokens": 1e3}', None),
        (b'{"text": "{\\"max_tokens\\": 40}"}', None),
        (b"", None),
    ],
)
def test_token_estimate_adds_max_tokens_to_the_body_size(body: bytes, guess: int | None) -> None:
    """On top of a token for four of its bytes."""
    assert estimate_request_tokens(body, 100) == guess


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("limits", "tenant", "tokens", "told", "shares"),
    [
        ({"tokens_per_minute": 10**9}, "other", True, True, True),
        ({"tokens_per_minute": 10**9}, "other", True, False, False),
        ({"tokens_per_minute": 10**9}, "other", False, False, False),
        ({"tokens_per_minute": 10**9}, "team", True, True, True),
        ({"requests_per_minute": 10**6}, "team", False, False, True),
        ({"concurrent": 10**6}, "other", True, False, True),
        ({"concurrent": 100}, "team", True, False, None),
    ],
)
def test_requests_share_places_only_with_ample_room_and_known_usage(
    workers: int, limits: dict[str, int], tenant: str, tokens: bool, told: bool, shares: bool | None
) -> None:
    """In all their rules. Not those without tokens where a rule counts them; None: only where nobody else wants it."""
    limiter = Workers(workers, tenants={"team": TEAM}).limiters[0]
    admission = Admission(limiter, limiter.list_caller_rules(caller(tenant=tenant, **limits)), takes_tokens=tokens)
    for _ in range(BUSY + 2):
        admission.reserve_places(b"{}", 2).close(tokens=100 if told else None)
    ahead = [rule.meter.ahead for rule in admission.rules]
    share = admission.take_prefetched(2)
    assert (share is not None) is (workers == 1 if shares is None else shares)
    if share is not None:
        assert [places.counter for places in share.places] == [rule.meter for rule in admission.rules]
    assert [rule.meter.ahead for rule in admission.rules] == [before - (share is not None) for before in ahead]


def test_request_takes_no_place_unless_all_its_rules_have_room() -> None:
    """The other has some ahead, and keeps them."""
    limiter = Workers(tenants={"team": TEAM}).limiters[0]
    admission = Admission(limiter, limiter.list_caller_rules(caller(requests_per_minute=10**6)), takes_tokens=False)
    for _ in range(BUSY + 2):
        admission.reserve_places(b"{}", 2).close()
    of_key, of_team = (rule.meter for rule in admission.rules)
    ahead = of_key.ahead
    of_team.give_back_ahead()
    assert admission.take_prefetched(2) is None
    assert of_key.ahead == ahead > 0


def test_lowered_limits_apply_to_requests_that_share_places() -> None:
    """As those of a key that is changed, or of a new configuration."""
    limiter = Workers().limiters[0]
    admission = Admission(limiter, limiter.list_caller_rules(caller(requests_per_minute=10**6)), takes_tokens=False)
    for _ in range(BUSY + 2):
        admission.reserve_places(b"{}", 2).close()
    assert admission.take_prefetched(2) is not None
    lower = Admission(limiter, limiter.list_caller_rules(caller(requests_per_minute=BUSY + 90)), takes_tokens=False)
    assert admission.take_prefetched(2) is None
    for one in (lower, admission, lower):  # a run of the older key may go on for long
        one.reserve_places(b"{}", 2).close()
    assert admission.take_prefetched(2) is lower.take_prefetched(2) is None
    for _ in range(90):
        admission.reserve_places(b"{}", 2).close()
    assert admission.take_prefetched(2) is not None
    assert lower.take_prefetched(2) is None
    with pytest.raises(GatewayError):
        lower.reserve_places(b"{}", 2)


@pytest.mark.parametrize("used", [10, 200, 300])
def test_shared_place_suits_only_requests_with_the_same_reservation(used: int) -> None:
    """A place of 200 tokens, for a body of 800 bytes: others used less, as much, or more than it says."""
    limiter = Workers().limiters[0]
    admission = Admission(limiter, limiter.list_caller_rules(caller(tokens_per_minute=10**9)), takes_tokens=True)
    for _ in range(AHEAD + 1):
        admission.reserve_places(b"{}", 800).close(tokens=used)
    meter = admission.rules[0].meter
    assert meter.ahead
    for now_used in (used, 900, 1):
        # From what is ahead, so the place is the same, and the mean another.
        admission.reserve_places(b"{}", 0).close(tokens=now_used)
        place = meter.usual
        assert place is not None
        for length in range(1400):
            fits = place.least_bytes <= length <= place.most_bytes
            assert fits is (place.reserved == max(length // 4, meter.expected)), length


def test_unused_meters_are_freed_without_garbage_collection() -> None:
    """Not when the collector comes."""
    workers = Workers()
    limiter, meters = workers.limiters[0], []
    for number in range(9):
        rules = limiter.list_caller_rules(caller(f"key {number}", tokens_per_minute=1000))
        limiter.reserve_places(rules, 10).close(tokens=5)
        meters.append(weakref.ref(rules[0].meter))
    del rules
    workers.clock.advance(UNUSED_S + 1)
    workers.meters[0].release_unused()
    assert [one() for one in meters] == [None] * 9


def test_two_shared_reservations_are_joined_once() -> None:
    """So requests that end together are closed together. One of its own is joined each time."""
    limiter = Workers().limiters[0]
    admission = Admission(limiter, limiter.list_caller_rules(caller(requests_per_minute=9)), takes_tokens=False)
    first, second = SharedReservation(()), SharedReservation(())
    both = admission.combine_reservations(first, second)
    assert both.is_shared and admission.combine_reservations(first, second) is both
    own = admission.reserve_places(b"{}", 2)
    joint = admission.combine_reservations(first, own)
    assert (
        joint.places == own.places and not joint.is_shared and admission.combine_reservations(first, own) is not joint
    )
