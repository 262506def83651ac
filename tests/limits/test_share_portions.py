"""What a gateway has and uses of the limits of a counter."""

from gateway.contracts.allowance import BUDGETS
from gateway.limits.budgets import Budgets
from gateway.limits.limit_rule import build_key_id
from gateway.limits.share_memory import BINDING, BUDGET, CONCURRENT, EPOCH, FULL, REQUESTS, TOKENS
from gateway.limits.share_portions import BudgetCeiling, BudgetPortion, CounterUse, WindowPortion
from gateway.limits.shared_memory import WINDOW_S

from .limiting import BEGAN_S, NAMES, Workers, caller, spend_today

CI = ("key", build_key_id("team", "ci"))


def make_use(workers: Workers, **limits: float) -> CounterUse:
    """The use of a key's counter, which all workers have opened."""
    rules = [limiter.list_caller_rules(caller(**limits))[0] for limiter in workers.limiters]
    number, shares = rules[0].meter.number, workers.memory.shares
    assert shares is not None
    first, others = workers.memory.get_rows(number, 0)
    use = CounterUse((first, *others), shares.get_words(number))
    use.own = rules[0].meter
    return use


def take(workers: Workers, worker: int, tokens: int) -> None:
    rule = workers.limiters[worker].list_caller_rules(caller(requests_per_minute=9))[0]
    rule.meter.count_requests(1, tokens, workers.clock())


def test_use_is_that_of_all_workers() -> None:
    """Of the only worker, too, which writes nowhere what is under way."""
    for count in (1, 2):
        workers = Workers(count, has_shares=True)
        use = make_use(workers, requests_per_minute=9)
        for worker in range(count):
            take(workers, worker, 5)
        assert use.count_present() == count
        assert [use.count_window(slot, BEGAN_S) for slot in (REQUESTS, TOKENS)] == [count, 5 * count]
        assert use.count_window(REQUESTS, BEGAN_S + WINDOW_S + 0.25) == 0


def test_window_portion_is_its_words() -> None:
    """Each change makes workers look again, and what is the same does not."""
    workers = Workers(has_shares=True)
    use = make_use(workers, requests_per_minute=9)
    portion = WindowPortion(use, REQUESTS, "ci requests", 9)
    epoch = use.words[EPOCH]
    portion.publish_room(4)
    portion.publish_room(4)
    assert (portion.share, use.words[EPOCH]) == (4, epoch + 1)
    portion.note_full(77)
    assert use.words[FULL + REQUESTS] == 77
    assert (portion.convert_demand(3, 500), WindowPortion(use, TOKENS, "ci tokens", 9).convert_demand(3, 500)) == (
        3,
        500,
    )
    lapses = [WindowPortion(use, slot, "", 9).lapse_s for slot in (CONCURRENT, REQUESTS)]
    assert lapses[0] == 0 and lapses[1] > WINDOW_S + 0.25


def make_budgets(tokens: int) -> Budgets:
    budgets = Budgets(lambda: "USD", guess=lambda _scope, _name: 2e-6)
    sums = spend_today(tokens, tokens * 2e-6)
    budgets.replace_sums({CI: sums}, names=NAMES, currency="USD")  # type: ignore[dict-item]
    return budgets


def test_ceiling_stays_while_usage_goes_to_the_store() -> None:
    """What is stored and read counts in the base, and no longer in the share."""
    workers = Workers(has_shares=True)
    use, stored = make_use(workers, tokens_per_day=1000), iter(([0], [0], [50]))
    budgets = make_budgets(0)
    ceiling = BudgetCeiling(use, budgets, CI, lambda: next(stored))  # type: ignore[arg-type]
    portion = BudgetPortion(ceiling, BUDGETS.index("tokens_per_day"), "ci tokens_per_day", 1000)
    portion.publish_room(300)
    assert use.own is not None and use.own.get_budgeted_tokens() == 0
    use.own.hold_tokens(100)
    use.own.use_tokens(50)
    before = use.words[BUDGET]
    portion.observe_now()
    assert (portion.share, portion.count_used(0.0), portion.base) == (300, 150, 0)
    budgets.replace_sums({CI: spend_today(50)}, names=NAMES, currency="USD")  # type: ignore[dict-item]
    assert (portion.share, portion.count_used(0.0), portion.base) == (300, 150, 0)
    portion.publish_room(300)  # an answer to what was known before
    assert use.words[BUDGET] == before
    portion.observe_now()
    assert (portion.share, portion.count_used(0.0), portion.base) == (250, 100, 50)
    assert use.words[BUDGET] == before


def test_workers_may_use_the_least_of_all_budgets() -> None:
    """Costs are converted by the mean cost of a token."""
    workers = Workers(has_shares=True)
    use = make_use(workers, tokens_per_day=1000, cost_per_day=0.01)
    ceiling = BudgetCeiling(use, make_budgets(10), CI, lambda: [0])  # type: ignore[arg-type]
    day, cost = BUDGETS.index("tokens_per_day"), BUDGETS.index("cost_per_day")
    tokens = BudgetPortion(ceiling, day, "tokens", 1000)
    money = BudgetPortion(ceiling, cost, "cost", 10_000_000)
    tokens.publish_room(300)
    assert use.words[BUDGET] == 0 and use.words[BINDING] == cost
    money.publish_room(2000 * 200)
    assert use.words[BUDGET] == 200 and use.words[BINDING] == cost
    money.publish_room(2000 * 400)
    assert use.words[BUDGET] == 300 and use.words[BINDING] == day
    assert (money.share, money.convert_demand(1, 10), money.base) == (800_000, 20_000, 20_000)
