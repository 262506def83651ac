"""What a gateway asks the store for: how much while much is left, and how little while others lack some."""

from collections.abc import Sequence

from gateway.contracts.storage.quota import ShareGrant, ShareRequest
from gateway.limits.share_memory import ANSWERS, FULL, REQUESTS
from gateway.limits.share_portions import CounterUse, WindowPortion
from gateway.limits.share_rules import AGAIN_S, FULL_S, PATIENCE_S, SETTLED_S, KeptRule, Occasion, RuleList

from .limiting import BEGAN_S, Workers, caller

LIMIT = 1000


class OneRule:
    """A rule with a limit of requests, and what the store answers."""

    def __init__(self) -> None:
        self.workers = Workers(has_shares=True)
        rule = self.workers.limiters[0].list_caller_rules(caller(requests_per_minute=LIMIT))[0]
        self.meter = rule.meter
        first, _ = self.workers.memory.get_rows(rule.meter.number, 0)
        use = CounterUse((first,), rule.meter.share_words)
        use.own = rule.meter
        self.portion = WindowPortion(use, REQUESTS, "ci requests", LIMIT)
        self._answers = use.words[ANSWERS]
        self.rule = KeptRule(rule.meter.number, b"", use, portions={"ci requests": self.portion})

    def use(self, requests: int) -> None:
        for _ in range(requests):
            self.meter.count_requests(1, 0, self.workers.clock())

    def plan(self, *, gateways: int = 1, is_routine: bool = False) -> Sequence[ShareRequest]:
        occasion = Occasion(self.workers.clock(), gateways, is_routine)
        return [one.request for one in self.rule.plan_requests(occasion)]

    def answer(self, share: int, *, free: int = 0, used: int = 0, spare: int = 0, gateways: int = 2) -> None:
        """Take a grant for what is planned now."""
        now_s = self.workers.clock()
        planned = [*self.rule.plan_requests(Occasion(now_s, gateways, is_routine=False))]
        grant = ShareGrant(name="ci requests", share=share, free=free, used=used, spare=spare)
        self.rule.take_grant([(one, grant) for one in planned], now_s)

    @property
    def answers(self) -> int:
        return int(self.rule.use.words[ANSWERS] - self._answers)


def test_gateway_alone_takes_most_of_the_rest() -> None:
    one = OneRule()
    one.rule.demand.add(1, 0, BEGAN_S)
    (request,) = one.plan()
    assert (request.held, request.used, request.needed, request.limit) == (0, 0, 1, LIMIT)
    assert request.wanted == 1 + 999 * 7 // 8


def test_several_take_half_of_their_part_of_the_rest() -> None:
    """And no more than they need while another one lacks some."""
    one = OneRule()
    one.rule.demand.add(2, 0, BEGAN_S)
    assert one.plan(gateways=5)[0].wanted == 2 + 998 // 10
    one.rule.note_lacking(BEGAN_S)
    assert one.plan(gateways=5)[0].wanted == 2


def test_rest_is_given_back_at_once_where_others_lack_it() -> None:
    """Else when it is much more than is needed. What is used stays."""
    one = OneRule()
    one.use(10)
    one.portion.publish_room(300)
    assert one.plan(gateways=2) == []
    one.portion.publish_room(900)
    (request,) = one.plan(gateways=2, is_routine=True)
    assert (request.held, request.used, one.portion.share) == (257, 10, 257)
    one.rule.note_lacking(BEGAN_S)
    (request,) = one.plan(gateways=2)
    assert (request.held, request.wanted, one.portion.share) == (10, 10, 10)


def test_idle_rule_keeps_nothing() -> None:
    one = OneRule()
    one.portion.publish_room(50)
    assert one.plan(gateways=2, is_routine=True)[0].held == 0 == one.portion.share


def test_those_that_wait_are_answered_when_they_have_room() -> None:
    one = OneRule()
    one.rule.demand.add(3, 0, BEGAN_S)
    one.answer(20, free=980)
    assert one.answers == 1 and not one.rule.has_demand and one.portion.share == 20


def test_limit_is_used_up_once_others_have_told_what_they_use() -> None:
    """Then it is full for a while. A gateway alone knows at once."""
    one = OneRule()
    one.rule.demand.add(1, 0, BEGAN_S)
    one.answer(0, used=LIMIT)
    assert one.answers == 0 and one.rule.demand.again_s == BEGAN_S + AGAIN_S
    one.workers.clock.advance(SETTLED_S + 0.01)
    one.answer(0, used=LIMIT)
    assert one.answers == 1
    assert one.rule.use.words[FULL + REQUESTS] == int((one.workers.clock() + FULL_S) * 1e6)
    one.rule.demand.add(1, 0, one.workers.clock())
    one.answer(0, used=LIMIT)
    assert one.answers == 2
    alone = OneRule()
    alone.rule.demand.add(1, 0, BEGAN_S)
    alone.answer(0)
    assert alone.answers == 1


def test_what_others_keep_unused_is_waited_for_with_patience() -> None:
    """They give it back at their next beat, if they are there."""
    one = OneRule()
    one.rule.demand.add(1, 0, BEGAN_S)
    for _ in range(3):
        one.answer(0, used=900, spare=100)
        one.workers.clock.advance(SETTLED_S)
    assert one.answers == 0
    one.workers.clock.advance(PATIENCE_S)
    one.answer(0, used=900, spare=100)
    assert one.answers == 1


def test_part_of_what_is_lacking_is_given_at_once() -> None:
    """Who gets none of it asks again, a moment later."""
    one = OneRule()
    one.rule.demand.add(10, 0, BEGAN_S)
    one.answer(4, used=500, spare=496)
    assert one.answers == 1 and one.portion.share == 4
    one.rule.demand.add(6, 0, BEGAN_S)
    assert not one.rule.is_due(Occasion(BEGAN_S, 2, is_routine=False))
    assert one.rule.is_due(Occasion(BEGAN_S + AGAIN_S, 2, is_routine=False))


def test_list_follows_the_counters_in_use() -> None:
    """A limit that is gone is released in the store, like a counter that nobody uses any more."""
    workers = Workers(has_shares=True)
    meters = workers.meters[0]
    assert meters.shares is not None
    limiter = workers.limiters[0]
    rules = RuleList(meters, workers.budgets, shares=meters.shares, clock=workers.clock)
    made = limiter.list_caller_rules(caller(requests_per_minute=5, concurrent=2))
    for _ in rules.follow_all():
        pass
    (found,) = rules.found.values()
    assert [name.split()[1] for name in found.portions] == ["concurrent", "requests_per_minute"]
    made = limiter.list_caller_rules(caller(requests_per_minute=7))
    for _ in rules.follow_all():
        pass
    assert [portion.limit for portion in found.portions.values()] == [7]
    assert [name.split()[1] for name in rules.released] == ["concurrent"]
    rules.released.clear()
    del made
    workers.clock.advance(1000.0)
    meters.release_unused()
    for _ in rules.follow_all():
        pass
    assert not rules.found and [name.split()[1] for name in rules.released] == ["requests_per_minute"]
