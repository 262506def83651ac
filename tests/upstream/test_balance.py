"""Which endpoint is next: by weight, by load, or always the same for a conversation."""

from collections import Counter

from upstream.groups import member

from gateway.testing.clock import ManualClock
from gateway.upstream.balance import KNOWN_BYTES, choose
from gateway.upstream.breaker import BreakerRules

CLOCK = ManualClock()


def test_weighted_balance_interleaves_endpoints_by_weight() -> None:
    """No endpoint gets its share in one go."""
    members = [member("a", CLOCK, weight=5), member("b", CLOCK), member("c", CLOCK)]
    assert "".join(choose(members, "weighted", b"").name for _ in range(14)) == "aabacaa" * 2


def test_least_loaded_balance_chooses_fewest_requests_per_weight() -> None:
    """Equal ones take turns."""
    one, two = member("a", CLOCK, weight=2), member("b", CLOCK)
    one.inflight, two.inflight = 3, 2
    assert choose([one, two], "least_loaded", b"") is one
    one.inflight = 4
    assert {choose([one, two], "least_loaded", b"") for _ in range(3)} == {one, two}


def test_sticky_conversation_keeps_its_endpoint_when_others_are_removed() -> None:
    """With shares as the weights are."""
    members = [member(name, CLOCK, weight=weight) for name, weight in (("a", 1), ("b", 2), ("c", 1))]
    keys = [b"conversation-%d" % n + b"-" * (n % 2 * KNOWN_BYTES) for n in range(4000)]
    before = {key: choose(members, "sticky", key) for key in keys}
    assert before == {key: choose(members, "sticky", key) for key in keys}
    shares = Counter(found.name for found in before.values())
    assert 900 < shares["a"] < 1100 and 1880 < shares["b"] < 2120
    left = members[:2]
    assert all(choose(left, "sticky", key) is before[key] for key in keys if before[key] in left)
    assert {choose(left, "sticky", key).name for key in keys if before[key] is members[2]} == {"a", "b"}


def test_sticky_balance_without_a_conversation_takes_turns() -> None:
    """A request of nobody belongs nowhere."""
    members = [member("a", CLOCK), member("b", CLOCK)]
    assert "".join(choose(members, "sticky", b"").name for _ in range(4)) == "abab"


def test_endpoint_failures_count_as_load() -> None:
    """An endpoint that fails fast is not idle. A good answer, or a breaker that lets one through, ends that."""
    one, two = member("a", CLOCK, breaker=BreakerRules(failures=1)), member("b", CLOCK)
    one.answers.strikes = 2
    two.inflight = 1
    assert choose([one, two], "least_loaded", b"") is two
    two.inflight = 3
    assert choose([one, two], "least_loaded", b"") is one
    one.breaker.record_failure(CLOCK(), None)
    two.inflight = 1
    assert choose([one, two], "least_loaded", b"") is one
