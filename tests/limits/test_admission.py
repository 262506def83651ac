"""Admissions of passthrough requests: the tokens that a body announces, and the places that requests share."""

import weakref

import pytest

from gateway.contracts.allowance import Allowance
from gateway.limits.admission import Admission, guess_of
from gateway.limits.counter import AHEAD
from gateway.limits.holds import end
from gateway.limits.meters import UNUSED_S

from .limiting import Workers, caller

TEAM = Allowance(requests_per_minute=1000)


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
def test_a_request_may_use_what_it_says(body: bytes, guess: int | None) -> None:
    """On top of a token for four of its bytes."""
    assert guess_of(body, 100) == guess


def test_requests_share_where_they_have_one_rule_and_their_use_is_known() -> None:
    workers = Workers(tenants={"team": TEAM})
    limiter = workers.limiters[0]
    alone = Admission(limiter, limiter.of_caller(caller(tenant="other", tokens_per_minute=9000)), takes_tokens=True)
    with_team = Admission(limiter, limiter.of_caller(caller(tokens_per_minute=9000)), takes_tokens=True)
    without_tokens = Admission(limiter, alone.rules, takes_tokens=False)
    of_requests = Admission(limiter, limiter.of_caller(caller("x", "other", concurrent=5)), takes_tokens=True)
    assert alone.only is with_team.only is without_tokens.only is None
    assert of_requests.only is of_requests.rules[0].meter
    for one in (alone, with_team, without_tokens):
        end(one.admit(b"{}", 2), 100 if one.takes_tokens else None)
        end(one.admit(b"{}", 2), 100 if one.takes_tokens else None)
    assert alone.only is alone.rules[0].meter
    assert with_team.only is without_tokens.only is None


@pytest.mark.parametrize("used", [10, 200, 300])
def test_a_place_suits_requests_that_reserve_the_same(used: int) -> None:
    """A place of 200 tokens, for a body of 800 bytes: others used less, as much, or more than it says."""
    limiter = Workers().limiters[0]
    admission = Admission(limiter, limiter.of_caller(caller(tokens_per_minute=10**9)), takes_tokens=True)
    for _ in range(AHEAD + 1):
        end(admission.admit(b"{}", 800), used)
    meter = admission.only
    assert meter is not None
    assert meter.ahead
    for now_used in (used, 900, 1):
        end(admission.admit(b"{}", 0), now_used)  # from what is ahead, so the place is the same, and the mean another
        place = meter.usual
        assert place is not None
        for length in range(1400):
            fits = place.least_bytes <= length <= place.most_bytes
            assert fits is (place.reserved == max(length // 4, meter.expected)), length


def test_meters_that_nobody_uses_are_gone_at_once() -> None:
    """Not when the collector comes."""
    workers = Workers()
    limiter, meters = workers.limiters[0], []
    for number in range(9):
        rules = limiter.of_caller(caller(f"key {number}", tokens_per_minute=1000))
        end(limiter.admit(rules, 10), 5)
        meters.append(weakref.ref(rules[0].meter))
    del rules
    workers.clock.advance(UNUSED_S + 1)
    workers.meters[0].tidy()
    assert [one() for one in meters] == [None] * 9
