"""A breaker opens after enough failures, lets one probe through, and closes when that works."""

import pytest

from gateway.upstream.breaker import WINDOW, Breaker, BreakerRules

RULES = BreakerRules(failures=3, open_s=10.0, longest_s=25.0)


def opened(rules: BreakerRules = RULES) -> Breaker:
    breaker = Breaker(rules)
    for _ in range(rules.failures):
        breaker.failed(0.0, probe=breaker.begin())
    return breaker


def test_it_opens_at_the_last_of_so_many_failures_in_a_row() -> None:
    """Not before, and not for failures with an answer between them."""
    breaker = Breaker(RULES)
    assert [breaker.failed(0.0, probe=breaker.begin()) for _ in range(2)] == [False, False]
    breaker.succeeded(probe=breaker.begin())
    assert [breaker.failed(0.0, probe=breaker.begin()) for _ in range(3)] == [False, False, True]
    assert (breaker.state(0.0), breaker.admits(9.9), breaker.waits_s(4.0)) == ("open", False, 6.0)


def test_an_endpoint_that_flaps_is_ejected_too() -> None:
    """Half of its last answers failed, although never so many in a row."""
    breaker = Breaker(RULES)
    opens = []
    for n in range(WINDOW * RULES.failures):
        if n % 2:
            opens.append(breaker.failed(0.0, probe=breaker.begin()))
        else:
            breaker.succeeded(probe=breaker.begin())
    assert opens == [False] * (len(opens) - 1) + [True]


def test_half_open_it_lets_one_request_through_at_a_time() -> None:
    """The next one only when the probe has ended, however it did."""
    breaker = opened()
    assert breaker.admits(10.0) and breaker.state(10.0) == "half-open"
    assert breaker.begin() and not breaker.admits(10.0)
    breaker.left(probe=True)
    assert breaker.admits(10.0)


@pytest.mark.parametrize("whole", [False, True], ids=["its-head", "all-of-it"])
def test_a_good_answer_to_the_probe_closes_it(whole: bool) -> None:
    """A head is enough, but then one failure opens it again; a whole answer begins anew."""
    breaker = opened()
    probe = breaker.begin()
    breaker.answered(probe=probe)
    assert breaker.state(10.0) == "closed"
    if whole:
        breaker.succeeded(probe=probe)
    assert breaker.failed(11.0, probe=breaker.begin()) is not whole


def test_each_failed_probe_doubles_the_time_up_to_the_longest() -> None:
    """10 s, 20 s, and then 25 s each time."""
    breaker, now_s, lengths = opened(), 10.0, []
    for _ in range(3):
        assert breaker.failed(now_s, probe=breaker.begin())
        lengths.append(breaker.waits_s(now_s))
        now_s += lengths[-1]
    assert lengths == [20.0, 25.0, 25.0]


def test_what_began_before_it_opened_changes_nothing() -> None:
    """Neither a late failure nor a late success."""
    breaker = opened()
    assert not breaker.failed(9.0, probe=False)
    breaker.succeeded(probe=False)
    assert breaker.waits_s(0.0) == 10.0


def test_without_rules_it_never_opens() -> None:
    """And health checks can close one at any time."""
    breaker = Breaker(None)
    assert not any(breaker.failed(0.0, probe=breaker.begin()) for _ in range(100))
    other = opened()
    other.close()
    assert other.admits(0.0)
