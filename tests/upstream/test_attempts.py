"""Which endpoint a request goes to next, and when to none."""

import asyncio
from contextlib import suppress

import pytest
from upstream.groups import group, group_of, member

from gateway.contracts.errors import GatewayError
from gateway.testing.clock import ManualClock
from gateway.upstream.attempts import PAUSE_S, Tries
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.budget import ALWAYS
from gateway.upstream.group import Group, RetryRules
from gateway.upstream.queue import QueueRules
from gateway.upstream.recent_callers import LATELY_S

RETRY = RetryRules(tries=3)


def names(of: Group, reasons: list[str], *, twice: bool = True, **facts: object) -> str:
    """The endpoints that a request went to, each of which ended for its reason."""
    tries, found = Tries(of, twice=twice), ""
    for reason in reasons:
        begun = tries.begin()
        assert begun is not None
        found += begun.name
        if not tries.end_failed_try(reason, **facts):  # type: ignore[arg-type]
            break
    return found


def names_if(of: Group, *, failing: str, first: str) -> str:
    """The endpoints that a request went to, if one always fails, and another one whenever it is asked first."""
    tries, found = Tries(of, twice=True), ""
    while (begun := tries.begin()) is not None:
        found += begun.name
        if not tries.end_failed_try("reset" if begun.name == failing or found == first else "400"):
            break
    return found


def test_retries_use_other_endpoints_until_tries_are_used_up() -> None:
    """Each once, while there are others."""
    assert names(group("abcd", ManualClock(), retry=RETRY), ["reset"] * 9) == "abc"


def test_failed_endpoint_is_the_last_choice_for_a_retry() -> None:
    """Each try counts. A first request takes its turn all the same, so that the breaker gets to know."""
    of = group("abc", ManualClock(), retry=RETRY, breaker=BreakerRules(failures=100))
    seen = set()
    for number in range(30):
        seen.add(names_if(of, failing="a", first="b"))
        for _ in range(number % 3):
            of.choose(b"", None)  # any endpoint may be the next one in turn
    assert seen >= {"ac", "bc", "c"} and not any("a" in after for _, *after in seen)


@pytest.mark.parametrize(
    ("reason", "twice", "seen"),
    [
        ("connect", False, "ab"),
        ("429", False, "ab"),
        ("503", False, "ab"),
        ("reset", False, "a"),
        ("timeout", False, "a"),
        ("502", False, "a"),
        ("reset", True, "ab"),
        ("timeout", True, "ab"),
        ("502", True, "ab"),
        ("500", True, "ab"),
        ("500", False, "a"),
        ("501", True, "a"),
    ],
)
def test_only_unprocessed_or_idempotent_requests_are_retried(reason: str, twice: bool, seen: str) -> None:
    """And only for a configured reason: 501 is none."""
    assert names(group("ab", ManualClock(), retry=RETRY), [reason, "501"], twice=twice) == seen


def test_should_retry_false_header_prevents_a_retry() -> None:
    """`x-should-retry: false`."""
    assert names(group("ab", ManualClock(), retry=RETRY), ["503", "503"], told_not=True) == "a"


def test_request_is_not_retried_without_retry_rules() -> None:
    """Not even what was never sent."""
    assert names(group("ab", ManualClock()), ["connect", "connect"]) == "a"


def test_retry_budget_limits_retries_but_not_refused_connections() -> None:
    """A refused connection costs the upstream nothing."""
    of = group("abc", ManualClock(), retry=RetryRules(tries=2, part=0.2))
    seen = [len(names(of, ["reset", "reset"])) for _ in range(30)]
    assert seen.count(2) == ALWAYS and of.tally.refused["budget"] == 30 - ALWAYS
    assert names(of, ["connect", "connect"]) in ("ab", "bc", "ca")


@pytest.mark.parametrize("api_key", [None, b"sk-ours"])
def test_only_gateway_key_429_consumes_the_shared_retry_budget(api_key: bytes | None) -> None:
    """A 429 for a key of the gateway's concerns all of them."""
    clock = ManualClock()
    members = [member(name, clock, api_key=api_key) for name in "ab"]
    of = group_of(*members, clock=clock, retry=RetryRules(tries=2, part=0.2))
    for _ in range(ALWAYS):
        assert len(names(of, ["429", "400"])) == 2
    assert len(names(of, ["429", "400"])) == 1
    assert len(names(of, ["reset", "400"])) == (2 if api_key is None else 1)


def test_single_endpoint_is_retried_after_growing_pauses() -> None:
    """A single endpoint is better asked later than not at all."""
    tries, pauses = Tries(group("a", ManualClock(), retry=RETRY), twice=True), []
    for _ in range(2):
        tries.begin()
        assert tries.end_failed_try("502")
        pauses.append(tries.pause_s / PAUSE_S)
    assert 0.5 <= pauses[0] <= 1.0 <= pauses[1] <= 2.0


@pytest.mark.parametrize(("reason", "own_key", "paused"), [("503", False, 1), ("429", True, 1), ("429", False, 0)])
def test_retry_after_pauses_endpoint_except_for_client_key_429(reason: str, own_key: bool, paused: int) -> None:
    """A 429 to a client's own key concerns that client alone."""
    clock = ManualClock()
    key = b"k" if own_key else None
    of = group_of(*(member(name, clock, api_key=key) for name in "ab"), clock=clock, retry=RETRY)
    assert names(of, [reason, "500"], pause_s=20.0) == "ab"
    assert len(list(of.list_candidates(None))) == 2 - paused
    clock.advance(20.0)
    assert len(list(of.list_candidates(None))) == 2


def test_client_gets_429_with_the_pause_when_all_endpoints_pause() -> None:
    """As a 429, which clients understand."""
    of = group_of(member("a", clock := ManualClock(), api_key=b"k"), clock=clock, retry=RETRY)
    assert names(of, ["429", "429"], pause_s=20.0) == "a"
    with pytest.raises(GatewayError) as error:
        Tries(of, twice=True).begin()
    assert (error.value.code, error.value.facts.status, error.value.retry_after_s) == ("upstream_limited", 429, 20.0)


def test_fallback_takes_requests_when_all_endpoints_fail_or_are_out() -> None:
    """At once when all endpoints are out, and after each was tried; it is counted as such."""
    clock = ManualClock()
    of, other = group("ab", clock, breaker=BreakerRules(failures=1), retry=RETRY), group("x", clock, name="other")
    of.fallbacks = (other,)
    assert names(of, ["reset"] * 3) == "abx"
    assert names(of, ["reset"]) == "x"
    assert of.tally.retries == {"reset": 1, "fallback": 2}
    clock.advance(10.0)
    assert names(of, ["500"]) in ("a", "b")


class Rooms:
    """Upstreams that have room for so many requests; where a request has its places."""

    def __init__(self, **room: int) -> None:
        self.room = room
        self.taken: list[str] = []

    def enter(self, upstream: str) -> None:
        if not self.room[upstream]:
            raise GatewayError("rate_limit_exceeded", upstream)
        self.room[upstream] -= 1
        self.taken.append(upstream)


def with_fallbacks(clock: ManualClock) -> Group:
    of = group("ab", clock, breaker=BreakerRules(failures=1), retry=RETRY)
    of.fallbacks = (group("x", clock, name="first"), group("y", clock, name="second"))
    return of


def test_upstream_limits_are_reserved_once_per_upstream_tried() -> None:
    """Once for all tries at its endpoints. One without room is passed over."""
    of, rooms = with_fallbacks(ManualClock()), Rooms(up=1, first=0, second=1)
    tries = Tries(of, twice=True, enter=rooms.enter)
    found = ""
    for reason in ("reset", "reset", "500"):
        begun = tries.begin()
        assert begun is not None
        found += begun.name
        tries.end_failed_try(reason)
    assert (found, rooms.taken) == ("aby", ["up", "second"])


def test_upstream_without_room_passes_requests_to_its_fallbacks() -> None:
    """The answer of its limits is the one that the client gets if they have none either, or are out."""
    clock = ManualClock()
    of, rooms = with_fallbacks(clock), Rooms(up=0, first=1, second=0)
    begun = Tries(of, twice=True, enter=rooms.enter).begin()
    assert begun is not None and begun.name == "x"
    with pytest.raises(GatewayError, match="up"):
        Tries(of, twice=True, enter=rooms.enter).begin()
    assert rooms.taken == ["first"]
    assert of.queue_length == 0


def test_fallback_place_is_taken_only_within_the_retry_budget() -> None:
    """The budget of retries is asked before the limits of a fallback."""
    of, rooms = group("a", ManualClock(), retry=RETRY), Rooms(up=99, first=99)
    of.fallbacks = (group("x", ManualClock(), name="first"),)
    for _ in range(ALWAYS + 2):
        tries = Tries(of, twice=True, enter=rooms.enter)
        tries.begin()
        if tries.end_failed_try("429"):
            tries.begin()
    assert rooms.taken.count("first") == of.tally.retries["fallback"] == ALWAYS


def test_request_at_a_fallback_is_not_hedged() -> None:
    """Its own upstream had no room for it."""
    of, rooms = with_fallbacks(ManualClock()), Rooms(up=0, first=1)
    tries = Tries(of, twice=True, enter=rooms.enter)
    tries.begin()
    assert tries.begin_hedge() is None and rooms.taken == ["first"]


def test_stale_connection_does_not_open_the_breaker() -> None:
    """An upstream may close what is idle."""
    of = group("ab", ManualClock(), breaker=BreakerRules(failures=1), retry=RETRY)
    names(of, ["reset", "500"], excused=True)
    assert len(list(of.list_candidates(None))) == 2


def test_hedged_request_stays_within_tries_and_budget() -> None:
    """At another endpoint, and only for what may happen twice."""
    of = group("ab", ManualClock(), retry=RetryRules(tries=2))
    first = Tries(of, twice=True)
    first.begin()
    second = first.begin_hedge()
    assert second is not None and second.member is of.members[1] and of.tally.retries == {"hedge": 1}
    assert first.begin_hedge() is None and not first.end_failed_try("reset")
    assert Tries(of, twice=False).begin_hedge() is None


# Retries with a queue.


def with_queue(clock: ManualClock, *, a: int | None = None, b: int | None = None) -> Group:
    """Two endpoints with so many places each, and a queue."""
    members = (member("a", clock, most=a), member("b", clock, most=b))
    return group_of(*members, clock=clock, retry=RETRY, queue=QueueRules(size=1, wait_s=600.0))


async def test_a_retry_waits_for_an_endpoint_that_is_busy() -> None:
    """For one that it has not asked, as a first try does, although the one that failed is free. It is paid for once."""
    of, rooms = with_queue(ManualClock(), b=1), Rooms(up=9)
    busy = of.take_place(of.members[1])
    tries = Tries(of, twice=True, enter=rooms.enter)
    assert tries.begin() is of.members[0]
    assert tries.end_failed_try("503") and tries.pause_s == 0.0 and tries.begin() is None
    waits = asyncio.create_task(of.wait_for_place(tries))
    await asyncio.sleep(0)
    of.serve_queue()
    assert of.queue_length == 1 and tries.member is None
    of.give_back(of.members[1], failed=False, probe=busy)
    assert await waits is of.members[1]
    assert of.tally.retries == {"503": 1} and rooms.taken == ["up"]
    tries.end(failed=False)
    assert [one.inflight for one in of.members] == [0, 0]


async def test_waiting_retry_returns_to_the_failed_endpoint_when_others_go_out() -> None:
    """The endpoint that it waited for goes out, so it asks the one that failed again."""
    of = with_queue(ManualClock(), b=1)
    of.take_place(of.members[1])
    tries = Tries(of, twice=True)
    tries.begin()
    assert tries.end_failed_try("503") and tries.begin() is None
    waits = asyncio.create_task(of.wait_for_place(tries))
    await asyncio.sleep(0)
    of.apply_health_check(of.members[1], failing="it answered 500")
    assert await waits is of.members[0]


async def test_retry_waits_for_the_only_endpoint_while_it_is_busy() -> None:
    """After the pause that comes before the same endpoint is asked again."""
    of = with_queue(ManualClock(), a=1, b=1)
    of.apply_health_check(of.members[1], failing="it answered 500")
    first, second = Tries(of, twice=True), Tries(of, twice=True)
    first.begin()
    assert second.begin() is None
    other = asyncio.create_task(of.wait_for_place(second))
    await asyncio.sleep(0)
    assert first.end_failed_try("503") and first.pause_s > 0
    assert await other is of.members[0] and first.begin() is None
    again = asyncio.create_task(of.wait_for_place(first))
    await asyncio.sleep(0)
    second.end(failed=False)
    assert await again is of.members[0]


def test_a_retry_without_room_in_the_queue_goes_to_a_fallback() -> None:
    """Or nowhere."""
    for rented in (True, False):
        of = group_of(
            *(member("a", clock := ManualClock()), member("b", clock, most=1)),
            clock=clock,
            retry=RetryRules(tries=1 + rented),
            queue=QueueRules(size=0, wait_s=600.0),
        )
        of.fallbacks = (group("z", clock),) if rented else ()
        of.take_place(of.members[1])
        assert names(of, ["503", "500"]) == ("az" if rented else "a")


# Tries without a connection.


def test_failed_connection_does_not_count_as_a_try() -> None:
    """As long as each endpoint was asked once at most; the same one is asked again within the number of tries only."""
    assert names(group("abcdef", ManualClock(), retry=RETRY), ["connect"] * 99) == "abcdef"
    assert names(group("abcdef", ManualClock(), retry=RETRY), ["connect"] * 2 + ["reset"] * 9) == "abcde"
    assert names(group("ab", ManualClock(), retry=RETRY), ["connect"] * 99) in ("aba", "abb")
    assert names(group("a", ManualClock(), retry=RETRY), ["connect"] * 99) == "aaa"


def test_hedge_without_a_connection_does_not_count_as_a_try() -> None:
    """The tries of both are counted together."""
    of = group("abcd", ManualClock(), retry=RetryRules(tries=2))
    first = Tries(of, twice=True)
    first.begin()
    second = first.begin_hedge()
    assert second is not None and not second.end_failed_try("connect", possible=False)
    third = first.begin_hedge()
    assert third is not None and first.begin_hedge() is None
    third.end(failed=None)


# Answers that are the fault of the endpoint or of the request: another endpoint tells.


def keyed(names: str, clock: ManualClock, *, failures: int = 3, **rules: object) -> Group:
    """Endpoints with a key of the gateway's, which are out after so many failures."""
    breaker = BreakerRules(failures=failures)
    members = [member(name, clock, api_key=b"k", breaker=breaker) for name in names]
    return group_of(*members, clock=clock, **({"retry": RETRY, "breaker": breaker} | rules))


def ask(of: Group, answers: dict[str, str], *, model: str | None = None, **facts: bool) -> str:
    """The endpoints that a request went to, which answer so."""
    tries, found = Tries(of, model=model, **({"twice": True, "computes": True} | facts)), ""
    while (begun := tries.begin()) is not None:
        found += begun.name
        if (status := answers[begun.name]) < "4":
            tries.record_answer(status)
            tries.end(failed=False)
            break
        if not tries.end_failed_try(status):
            break
    return found


SUSPECT = ["401", "402", "403", "404", "408", "429", "500"]


@pytest.mark.parametrize("balance", ["weighted", "least_loaded", "sticky"])
@pytest.mark.parametrize("status", SUSPECT)
def test_endpoint_counts_as_failed_where_another_answers_well(status: str, balance: str) -> None:
    """It is out after so many, and each client has a good answer."""
    of = keyed("ab", ManualClock(), balance=balance)
    asked = [ask(of, {"a": status, "b": "200"}) for _ in range(40)]
    assert all(one.endswith("b") for one in asked) and "".join(asked).count("a") <= 3
    assert of.tally.answers == {("a", status): "".join(asked).count("a"), ("b", "200"): 40}
    assert of.tally.tries["a", "failed"] == "".join(asked).count("a")


@pytest.mark.parametrize("status", SUSPECT)
def test_request_refused_by_all_endpoints_counts_against_none(status: str) -> None:
    """A client's bad requests take no endpoint out, and neither does a key that all refuse."""
    of = keyed("ab", ManualClock(), failures=1)
    for _ in range(9):
        ask(of, {"a": status, "b": status})
    assert len(of.list_candidates(None)) == 2 and not of.tally.ejections


@pytest.mark.parametrize(("status", "own_key", "facts"), [("401", False, {}), ("404", True, {"computes": False})])
def test_client_caused_refusal_is_not_retried_elsewhere(status: str, own_key: bool, facts: dict[str, bool]) -> None:
    """Its own key, and a file that is not there."""
    clock, key = ManualClock(), b"k" if own_key else None
    members = [member(name, clock, api_key=key, breaker=BreakerRules(failures=1)) for name in "ab"]
    of = group_of(*members, clock=clock, retry=RETRY)
    for _ in range(9):
        assert len(ask(of, {"a": status, "b": "200"}, **facts)) == 1
    assert len(of.list_candidates(None)) == 2


def test_permanent_error_status_is_not_retried_at_the_same_endpoint() -> None:
    """A refused key is refused the next time, too."""
    assert [ask(keyed("a", ManualClock()), {"a": status}) for status in SUSPECT] == ["a"] * 5 + ["aaa", "a"]


def test_key_error_is_retried_elsewhere_for_non_idempotent_requests() -> None:
    """Nothing was done; a 500 may have been."""
    for status, seen in (("401", {"ab", "b"}), ("403", {"ab", "b"}), ("500", {"a", "b"}), ("408", {"a", "b"})):
        of = keyed("ab", ManualClock())
        assert {ask(of, {"a": status, "b": "200"}, twice=False) for _ in range(2)} == seen, status


def test_failures_count_without_retries_if_other_endpoints_answer_well() -> None:
    """One between each two failures, and none at the endpoint itself."""
    of = keyed("ab", ManualClock(), retry=None)
    asked = "".join(ask(of, {"a": "500", "b": "200"}) for _ in range(40))
    assert asked.count("a") == 4 and of.tally.ejections == {("a", "breaker"): 1}
    of = keyed("ab", ManualClock(), retry=None)
    for _ in range(40):
        ask(of, {"a": "500", "b": "500"})
    assert not of.tally.ejections


def test_refused_key_sends_requests_to_the_fallback() -> None:
    """A single one whose key is refused leaves its requests to it."""
    clock = ManualClock()
    of, other = keyed("a", clock), keyed("x", clock)
    of.fallbacks = (other,)
    assert [ask(of, {"a": "401", "x": "200"}) for _ in range(5)] == ["ax", "ax", "ax", "x", "x"]


def test_refused_probe_leaves_the_breaker_open() -> None:
    """While another endpoint answers well; a good answer closes it."""
    clock = ManualClock()
    of = keyed("ab", clock, failures=1)
    answers = {"a": "401", "b": "200"}
    while not of.tally.ejections:
        ask(of, answers)
    for waited_s in (10.0, 20.0):
        clock.advance(waited_s)
        assert "".join(ask(of, answers) for _ in range(9)).count("a") == 1
    clock.advance(40.0)
    answers["a"] = "200"
    assert "".join(ask(of, answers) for _ in range(9)).count("a") > 1


def test_endpoint_is_passed_over_for_a_missing_model() -> None:
    """It is passed over for that model, and asked for it where no other one can be."""
    clock = ManualClock()
    of = keyed("ab", clock, failures=1)
    answers = {"a": "404", "b": "200"}
    assert "".join(ask(of, answers, model="m") for _ in range(20)).count("a") == 1
    assert len(of.list_candidates(None)) == 2 and not of.tally.ejections
    assert "".join(ask(of, {"a": "200", "b": "200"}, model="other") for _ in range(4)).count("a") == 2
    of.members[1].healthy = False
    assert ask(of, {"a": "200"}, model="m") == "a"
    of.members[1].healthy = True
    assert "a" in "".join(ask(of, {"a": "200", "b": "200"}, model="m") for _ in range(2))


def test_refusing_endpoint_fails_when_its_hedge_answers_well() -> None:
    """Then the endpoint that refused has failed."""
    of = keyed("ab", ManualClock(), failures=1)
    tries = Tries(of, twice=True)
    first = tries.begin()
    second = tries.begin_hedge()
    assert first is not None and second is not None and not tries.end_failed_try("401", rival=True)
    second.record_answer()
    assert of.list_candidates(None) == [second.member]


def tried(of: Group, name: str, status: str, *, clock: ManualClock) -> None:
    """One request of a caller, which every endpoint answers so."""
    clock.advance(0.1)
    tries = Tries(of, twice=True, caller=("t", name))
    with suppress(GatewayError):
        while tries.begin() is not None:
            if status < "4":
                tries.record_answer(status)
                tries.end(failed=False)
                return
            if not tries.end_failed_try(status):
                return


def states(of: Group, clock: ManualClock) -> list[str]:
    return [member.breaker.get_state(clock()) for member in of.members]


def test_failures_of_one_caller_do_not_open_breakers() -> None:
    """A server may fail because of what one caller asks for, such as a model that is down."""
    clock = ManualClock()
    of = group("ab", clock, retry=RETRY, breaker=BreakerRules())
    tried(of, "ann", "200", clock=clock)
    for _ in range(20):
        tried(of, "ben", "503", clock=clock)
    assert states(of, clock) == ["closed", "closed"]
    for _ in of.members:
        tried(of, "ann", "503", clock=clock)
    assert states(of, clock) == ["open", "open"]


def test_failures_of_the_only_recent_caller_open_breakers() -> None:
    clock = ManualClock()
    of = group("ab", clock, retry=RETRY, breaker=BreakerRules())
    tried(of, "ann", "200", clock=clock)
    clock.advance(LATELY_S)
    for _ in range(4):
        tried(of, "ben", "503", clock=clock)
    assert states(of, clock) == ["open", "open"]


def test_failed_probe_of_one_caller_does_not_keep_the_breaker_open() -> None:
    """Its request was the probe; the next one is another caller's."""
    clock = ManualClock()
    of = group("a", clock, breaker=BreakerRules(failures=1))
    tried(of, "ben", "503", clock=clock)
    assert states(of, clock) == ["open"]
    clock.advance(BreakerRules().open_s - 1)
    tried(of, "ann", "200", clock=clock)  # refused, but asked
    clock.advance(1.0)
    tried(of, "ben", "503", clock=clock)
    assert states(of, clock) == ["half-open"]
    tried(of, "ann", "200", clock=clock)
    assert states(of, clock) == ["closed"]


def test_connection_failures_of_one_caller_open_the_breaker() -> None:
    clock = ManualClock()
    of = group("a", clock, breaker=BreakerRules(failures=2))
    tried(of, "ann", "200", clock=clock)
    for _ in range(2):
        tries = Tries(of, twice=True, caller=("t", "ben"))
        assert tries.begin() is not None
        tries.end_failed_try("connect")
    assert states(of, clock) == ["open"]
