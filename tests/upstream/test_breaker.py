"""A breaker opens after enough failures, lets one probe through, and closes when that works."""

import pytest

from gateway.upstream.breaker import WINDOW, Breaker, BreakerRules

RULES = BreakerRules(failures=3, open_s=10.0, longest_s=25.0)


def opened(rules: BreakerRules = RULES) -> Breaker:
    breaker = Breaker(rules)
    for _ in range(rules.failures):
        breaker.record_failure(0.0, breaker.begin(0.0))
    return breaker


def test_breaker_opens_at_the_configured_number_of_consecutive_failures() -> None:
    """Not before, and not for failures with an answer between them."""
    breaker = Breaker(RULES)
    assert [breaker.record_failure(0.0, breaker.begin(0.0)) for _ in range(2)] == [False, False]
    breaker.record_success(breaker.begin(0.0))
    assert [breaker.record_failure(0.0, breaker.begin(0.0)) for _ in range(3)] == [False, False, True]
    assert (breaker.get_state(0.0), breaker.may_begin(9.9), breaker.get_wait_s(4.0)) == ("open", False, 6.0)


def test_flapping_endpoint_opens_the_breaker() -> None:
    """Half of its last answers failed, although never so many in a row."""
    breaker = Breaker(RULES)
    opens = []
    for n in range(WINDOW * RULES.failures):
        if n % 2:
            opens.append(breaker.record_failure(0.0, breaker.begin(0.0)))
        else:
            breaker.record_success(breaker.begin(0.0))
    assert opens == [False] * (len(opens) - 1) + [True]


def test_half_open_breaker_admits_one_probe_at_a_time() -> None:
    """The next one only when the probe has ended, however it did."""
    breaker = opened()
    assert breaker.may_begin(10.0) and breaker.get_state(10.0) == "half-open"
    probe = breaker.begin(10.0)
    assert probe is not None and not breaker.may_begin(10.0)
    breaker.record_client_left(probe)
    assert breaker.may_begin(10.0)


@pytest.mark.parametrize("whole", [False, True], ids=["its-head", "all-of-it"])
def test_successful_probe_closes_the_breaker(whole: bool) -> None:
    """A head is enough, but then one failure opens it again; a whole answer begins anew."""
    breaker = opened()
    probe = breaker.begin(10.0)
    assert breaker.record_answer(probe)
    assert breaker.get_state(10.0) == "closed"
    if whole:
        breaker.record_success(probe)
    assert breaker.record_failure(11.0, breaker.begin(11.0)) is not whole


def test_failed_probes_double_the_open_time_up_to_a_maximum() -> None:
    """10 s, 20 s, and then 25 s each time."""
    breaker, now_s, lengths = opened(), 10.0, []
    for _ in range(3):
        assert breaker.record_failure(now_s, breaker.begin(now_s))
        lengths.append(breaker.get_wait_s(now_s))
        now_s += lengths[-1]
    assert lengths == [20.0, 25.0, 25.0]


def test_requests_begun_before_opening_do_not_change_the_breaker() -> None:
    """Neither a late failure nor a late success."""
    breaker = opened()
    assert not breaker.record_failure(9.0, None)
    breaker.record_success(None)
    assert breaker.get_wait_s(0.0) == 10.0


def test_probe_without_an_outcome_gives_up_its_turn() -> None:
    """After the time of a first ejection. Its own failure, which comes late, changes nothing more."""
    breaker = opened()
    silent = breaker.begin(10.0)
    assert (breaker.may_begin(19.9), breaker.get_wait_s(12.0), breaker.may_begin(20.0)) == (False, 8.0, True)
    second = breaker.begin(20.0)
    assert not breaker.record_failure(21.0, silent) and not breaker.may_begin(21.0)
    assert breaker.record_success(second) and breaker.get_state(22.0) == "closed"
    assert [breaker.record_failure(23.0, silent) for _ in range(9)] == [False] * 9


def test_late_probe_answer_still_closes_the_breaker() -> None:
    """Else an endpoint that takes longer than its breaker waits would never be back. Not after a new opening."""
    breaker = opened()
    slow, second = breaker.begin(10.0), breaker.begin(20.0)
    assert breaker.record_answer(slow) and not breaker.record_answer(second)
    breaker = opened()
    slow, second = breaker.begin(10.0), breaker.begin(20.0)
    assert (
        breaker.record_failure(21.0, second) and not breaker.record_success(slow) and breaker.get_state(21.0) == "open"
    )
    assert not breaker.record_failure(60.0, slow) and breaker.get_state(60.0) == "half-open"


def test_probe_takes_its_turn_once_its_request_is_fully_sent() -> None:
    """Until then whole ones may begin, but its failure opens the breaker unless another has the turn."""
    breaker = opened()
    slow, other = breaker.begin(10.0, whole=False), breaker.begin(10.0, whole=False)
    assert slow is not None and other is not None and breaker.may_begin(10.0)
    breaker.record_sent(slow, 15.0)
    breaker.record_sent(other, 16.0)
    assert not breaker.may_begin(24.9) and breaker.may_begin(25.0)
    assert not breaker.record_failure(17.0, other) and breaker.record_failure(17.0, slow)
    assert breaker.record_failure(40.0, breaker.begin(40.0, whole=False))


def test_incomplete_probes_are_admitted_once_per_second() -> None:
    """The next one begins at once if its client leaves."""
    breaker = opened()
    assert breaker.may_begin(10.0, whole=False)
    slow = breaker.begin(10.0, whole=False)
    assert not breaker.may_begin(10.9, whole=False) and breaker.may_begin(10.9)
    breaker.record_client_left(slow)
    assert breaker.may_begin(10.9, whole=False)
    breaker.begin(10.9, whole=False)
    assert not breaker.may_begin(11.8, whole=False) and breaker.may_begin(11.9, whole=False)
    breaker.record_failure(11.9, breaker.begin(11.9))
    assert breaker.may_begin(40.0, whole=False)


def test_breaker_without_rules_never_opens() -> None:
    """And health checks can close one at any time."""
    breaker = Breaker(None)
    assert not any(breaker.record_failure(0.0, breaker.begin(0.0)) for _ in range(100))
    other = opened()
    other.close()
    assert other.may_begin(0.0)
