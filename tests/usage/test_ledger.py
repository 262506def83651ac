"""The ledger: what is recorded reaches the store once, whatever happens on the way."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from gateways import until, until_read
from metrics_page import check_by_promtool, page_of
from metrics_page import samples as metric_samples

from gateway.contracts.model_names import EVERY, OTHER, is_usage_match
from gateway.contracts.storage.store import StoreError, UncertainError
from gateway.contracts.storage.usage import DIMENSIONS, StoredUsage
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.usage.ledger import COMBINED, MODELS, MODELS_OF_TENANT, Ledger, format_day
from gateway.usage.prices import Price, Prices
from gateway.usage.tokens import RequestUsage, Times, TokenCounts, build_times
from tests.limits.limiting import WallClock

#: 2026-11-26 23:59:58 UTC.
LATE_S = 1795737598.0
WHO = ("alice", "acme", "gpt-4.1", "openai", "passthrough")


class FailingStore(SqliteStore):
    """Fails to add usage while it is told to, or adds it with an answer that is lost."""

    fails = False
    loses_answers = False

    async def add_usage(self, *args: Any, **more: Any) -> None:
        if self.fails:
            raise StoreError("the disk is full")
        await super().add_usage(*args, **more)
        if self.loses_answers:
            raise UncertainError("the server went away")


@pytest.fixture
async def store() -> AsyncIterator[FailingStore]:
    store = FailingStore(":memory:")
    await store.open()
    yield store
    await store.close()


def ledger(store: SqliteStore, clock: ManualClock, *, writer: str = "w") -> Ledger:
    return Ledger(store, writer=writer, counters=ContextCounters(), clock=clock)


async def rows(store: SqliteStore) -> list[StoredUsage]:
    return list(await store.sum_usage(since="0", until="9", by=DIMENSIONS, tenant=None))


async def test_recorded_usage_is_summed_and_stored(store: FailingStore) -> None:
    """By who used what; each request counts as what became of it."""
    clock = ManualClock(LATE_S)
    one = ledger(store, clock)
    one.record(RequestUsage(TokenCounts(10, 4, 1, 7, 3)), *WHO)
    one.record(RequestUsage(TokenCounts(5), cut=True, estimated=True), *WHO)
    one.record(RequestUsage(rejected=True), "alice", "acme", "", "openai", "passthrough")
    await one.flush()
    first = StoredUsage(
        "2026-11-26", "acme", *("alice", "gpt-4.1", "openai", "passthrough", ""), 2, 0, 1, 1, 15, 4, 7, 3
    )
    rejected = StoredUsage("2026-11-26", "acme", "alice", "", "openai", "passthrough", "", 1, 1)
    assert await rows(store) == [rejected, first]
    await one.flush()
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    await one.flush()
    assert (await rows(store))[1].input == 16


async def test_usage_of_several_workers_is_summed(store: FailingStore) -> None:
    """And replicas: they share the store only."""
    clock = ManualClock(LATE_S)
    workers = [ledger(store, clock, writer=str(number)) for number in range(3)]
    for worker in workers:
        worker.record(RequestUsage(TokenCounts(7)), *WHO)
    await asyncio.gather(*(worker.flush() for worker in workers))
    assert [row.input for row in await rows(store)] == [21]


async def test_a_day_ends_at_midnight_utc(store: FailingStore) -> None:
    """By the time at which a request ended, not by that at which it is stored."""
    clock = ManualClock(LATE_S)
    one = ledger(store, clock)
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    clock.advance(1.9)
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    clock.advance(0.1)
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    await one.flush()
    assert [(row.day, row.input) for row in await rows(store)] == [("2026-11-26", 2), ("2026-11-27", 1)]
    assert format_day(LATE_S + 2) == "2026-11-27"


async def test_usage_day_follows_the_clock_when_set_back(store: FailingStore) -> None:
    clock = WallClock(LATE_S)
    one = ledger(store, clock)
    for days in (0, 3, 1):
        clock.set_s = days * 86400
        one.record(RequestUsage(TokenCounts(1)), *WHO)
    await one.flush()
    assert [row.day for row in await rows(store)] == ["2026-11-26", "2026-11-27", "2026-11-29"]


async def test_usage_waits_for_a_store_that_fails(store: FailingStore, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is lost or counted twice; it is said once, and once more when it is over."""
    caplog.set_level(logging.INFO)
    one = ledger(store, ManualClock(LATE_S))
    store.fails = True
    for _ in range(3):
        one.record(RequestUsage(TokenCounts(2)), *WHO)
        await one.flush()
    store.fails = False
    one.record(RequestUsage(TokenCounts(2)), *WHO)
    await one.flush()
    assert [row.input for row in await rows(store)] == [8]
    assert [record.getMessage() for record in caplog.records] == [
        "usage cannot be stored, and waits in memory: the disk is full",
        "usage is stored again",
    ]


async def test_usage_whose_answer_was_lost_counts_once(store: FailingStore) -> None:
    """It is added again under its number, and what came meanwhile behind it, also if the store fails in between."""
    one = ledger(store, ManualClock(LATE_S))
    for loses, fails in ((True, False), (True, False), (False, True), (True, False), (False, False)):
        store.loses_answers, store.fails = loses, fails
        one.record(RequestUsage(TokenCounts(2)), *WHO)
        await one.flush()
    assert [row.input for row in await rows(store)] == [10]
    store.loses_answers = True
    one.record(RequestUsage(TokenCounts(2)), *WHO)
    await one.flush()
    store.loses_answers = False
    await one.close()
    assert [row.input for row in await rows(store)] == [12]


async def test_price_change_applies_only_to_later_usage(store: FailingStore) -> None:
    """What was recorded before has no cost, or its old one."""
    one = ledger(store, ManualClock(LATE_S))
    one.record(RequestUsage(TokenCounts(10)), *WHO)
    one.prices = Prices("USD", [Price(model="gpt-*", input=2, cached=1, cache_write=2, output=8)])
    one.record(RequestUsage(TokenCounts(10)), *WHO)
    one.prices = Prices("EUR", [Price(model="gpt-*", input=3, cached=1, cache_write=2, output=8)])
    one.record(RequestUsage(TokenCounts(10)), *WHO)
    await one.flush()
    assert [(row.currency, row.cost) for row in await rows(store)] == [("", 0), ("EUR", 30_000), ("USD", 20_000)]


async def test_ledger_bounds_model_names_per_tenant_with_other_row(store: FailingStore) -> None:
    """Beyond so many they share a row."""
    one = ledger(store, ManualClock(LATE_S))
    for number in range(MODELS_OF_TENANT + 50):
        one.record(RequestUsage(TokenCounts(1)), "alice", "acme", f"m{number}", "openai", "passthrough")
    await one.flush()
    found = await rows(store)
    assert len(found) == MODELS_OF_TENANT + 1
    assert [row.input for row in found if row.model == "other"] == [50]


async def test_tenant_model_name_limit_does_not_affect_other_tenants(store: FailingStore) -> None:
    """Each has its own; beyond those of all, a model has the name of its price, and always its price."""
    one = ledger(store, ManualClock(LATE_S))
    one.prices = Prices("USD", [Price(model="gpt-*", input=2, cached=1, cache_write=2, output=8)])
    for tenant in range(MODELS // MODELS_OF_TENANT):
        for number in range(MODELS_OF_TENANT):
            one.record(RequestUsage(TokenCounts(1)), "k", f"t{tenant}", f"t{tenant}-{number}", "up", "passthrough")
        if not tenant:
            one.record(RequestUsage(TokenCounts(1)), "k", "t0", "gpt-4.1", "up", "passthrough")
            one.record(RequestUsage(TokenCounts(1)), *WHO)
    one.record(RequestUsage(TokenCounts(10)), "k", "late", "gpt-5", "up", "passthrough")
    one.record(RequestUsage(TokenCounts(10)), "k", "late", "gpt-4.1", "up", "passthrough")
    one.record(RequestUsage(TokenCounts(10)), "k", "late", "llama", "up", "passthrough")
    await one.flush()
    found = await rows(store)
    assert [(row.tenant, row.model) for row in found if row.model.startswith("gpt")] == [
        ("acme", "gpt-4.1"),
        ("late", "gpt-*"),
        ("late", "gpt-4.1"),
        ("t0", "gpt-*"),
    ]
    assert len([row for row in found if row.tenant == "t3"]) == MODELS_OF_TENANT
    late = {row.model: (row.currency, row.cost) for row in found if row.tenant == "late"}
    assert late == {"gpt-*": ("USD", 20_000), "gpt-4.1": ("USD", 20_000), "other": ("", 20_000)}


async def test_shared_budget_rows_are_bounded_without_undercounting_any_budget(store: FailingStore) -> None:
    """Beyond them a model counts for all budgets rather than for none, also where their globs make long names."""
    one = ledger(store, ManualClock(LATE_S))
    one.prices = Prices("USD", [Price(model="g*", input=2, cached=1, cache_write=2, output=8)])
    letters = "abcdefghij"
    one.models.budgets = [f"*{letter}*" for letter in letters]
    for number in range(MODELS_OF_TENANT):
        one.record(RequestUsage(TokenCounts(1)), "k", "t", str(number), "up", "passthrough")
    for number in range(2 ** len(letters)):
        model = "".join(letter for place, letter in enumerate(letters) if number >> place & 1)
        one.record(RequestUsage(TokenCounts(1000)), "k", "t", f"-{model}", "up", "passthrough")
    await one.flush()
    shared = [row for row in await rows(store) if row.input >= 1000]
    assert len(shared) == COMBINED + len(letters) + 2
    for letter in letters:
        counted = sum(row.input for row in shared if is_usage_match(row.model, f"*{letter}*"))
        assert counted >= 1000 * 2 ** (len(letters) - 1)


async def test_reserved_model_name_counts_for_its_matching_budget_or_other(store: FailingStore) -> None:
    """A model with a made-up name counts for the budgets that it fits, and for no others."""
    one = ledger(store, ManualClock(LATE_S))
    one.models.budgets = ["o*", "gpt-*"]
    for model in (OTHER, EVERY, "cheap | gpt-*", "gpt-4.1 | o*"):
        one.record(RequestUsage(TokenCounts(1)), "k", "t", model, "up", "passthrough")
    await one.flush()
    assert [(row.model, row.requests) for row in await rows(store)] == [("gpt-*", 1), ("o*", 1), (OTHER, 2)]


async def test_usage_without_a_price_has_the_highest_cost_and_no_currency(store: FailingStore) -> None:
    """Of input and of output apart."""
    one = ledger(store, ManualClock(LATE_S))
    one.prices = Prices(
        "USD",
        [
            Price(model="a", input=2, cached=1, cache_write=3, output=8),
            Price(model="b", input=5, cached=0, cache_write=1, output=1),
        ],
    )
    one.record(RequestUsage(TokenCounts(10, 3, 2, 7)), *WHO)
    await one.flush()
    (row,) = await rows(store)
    assert (row.currency, row.cost) == ("", 1000 * (5 * 5 + 3 * 1 + 2 * 3 + 7 * 8))
    one.record(RequestUsage(TokenCounts(10), asked=True), "alice", "acme", "a", "openai", "passthrough")
    await one.flush()
    first = (await rows(store))[0]
    assert (first.model, first.currency, first.cost) == ("a", "", 50_000)


async def test_audio_without_a_price_has_no_cost(store: FailingStore) -> None:
    """It is mostly dearer than text: a budget counts it at the highest prices, and the usage has no cost."""
    one = ledger(store, ManualClock(LATE_S))
    speaks = Price(model="speaks", input=1, cached=1, cache_write=1, output=1, audio_input=30, audio_output=60)
    one.prices = Prices("USD", [Price(model="gpt-*", input=2, cached=1, cache_write=3, output=8), speaks])
    for model in ("gpt-4.1", "speaks"):
        one.record(RequestUsage(TokenCounts(10, audio_input=10)), "k", "t", model, "up", "passthrough")
    one.record(RequestUsage(TokenCounts(10)), *WHO)
    await one.flush()
    found = {(row.model, row.currency): row.cost for row in await rows(store)}
    assert found == {("gpt-4.1", ""): 300_000, ("speaks", "USD"): 300_000, ("gpt-4.1", "USD"): 20_000}


async def test_ledger_flushes_by_itself_and_clears_its_pending_mark(store: FailingStore) -> None:
    """At once after a rest, and whatever is left when it ends."""
    clock = ManualClock(LATE_S)
    one = ledger(store, clock)
    one.start()
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    while not await rows(store):
        await asyncio.sleep(0)
    assert await store.forget_lost_usage(before_s=LATE_S + 1) == [LATE_S]
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    await one.close()
    assert [row.input for row in await rows(store)] == [2]
    assert await store.forget_lost_usage(before_s=LATE_S + 1) == []


async def test_ledger_logs_usage_lost_by_a_killed_process(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """By the next one, with the time from which on something may be missing."""
    clock = ManualClock(LATE_S)
    killed = ledger(store, clock, writer="killed")
    killed.record(RequestUsage(TokenCounts(1)), *WHO)
    await killed.flush()
    clock.advance(60)
    after = ledger(store, clock, writer="after")
    after.start()
    await until(lambda: bool(caplog.records))
    assert caplog.records[0].getMessage() == (
        "a process of the gateway did not end in order: of what it used from 2026-11-26T23:59:58+00:00 on, at most 1 s "
        "are not in the usage"
    )
    await after.close()


async def test_ledger_logs_lost_usage_when_the_store_fails_at_close(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """And its mark stays."""
    one = ledger(store, ManualClock(LATE_S))
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    await one.flush()
    store.fails = True
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    await one.close()
    assert "the usage of the last moments is lost" in caplog.text
    assert await store.forget_lost_usage(before_s=LATE_S + 1) == [LATE_S]


async def test_pending_usage_is_recorded_before_flush_price_change_and_close(store: FailingStore) -> None:
    """Before it is stored, before the prices change, and at the end."""
    waiting: list[int] = []

    def catch_up() -> None:
        while waiting:
            one.record(RequestUsage(TokenCounts(waiting.pop())), *WHO)

    counters, clock = ContextCounters(), ManualClock(LATE_S)
    one = Ledger(store, writer="w", counters=counters, clock=clock, catch_up=catch_up)
    waiting.append(1)
    await one.flush()
    assert [(row.input, row.currency) for row in await rows(store)] == [(1, "")]
    waiting.append(10)
    one.prices = Prices("EUR", [Price(model="*", input=1, output=1, cached=1, cache_write=1)])
    waiting.append(100)
    await one.close()
    assert [(row.input, row.currency) for row in await rows(store)] == [(11, ""), (100, "EUR")]


async def test_equal_usage_rows_are_summed_into_one(store: FailingStore) -> None:
    one = ledger(store, ManualClock(LATE_S))
    one.record(RequestUsage(TokenCounts(10, 4, 1, 7, 3), requests=3), *WHO)
    one.record(RequestUsage(TokenCounts(4), cut=True, estimated=True, requests=2), *WHO)
    await one.flush()
    first = StoredUsage(
        "2026-11-26", "acme", *("alice", "gpt-4.1", "openai", "passthrough", ""), 5, 0, 2, 2, 14, 4, 7, 3
    )
    assert await rows(store) == [first]


async def test_metrics_count_stored_usage_by_lane_model_and_outcome(store: FailingStore) -> None:
    """By lane and model; a request that was cut is no other one."""
    counters = ContextCounters()
    one = Ledger(store, writer="w", counters=counters, clock=ManualClock(LATE_S))
    one.record(RequestUsage(TokenCounts(10, 4, 0, 7, 3)), *WHO)
    one.record(RequestUsage(TokenCounts(1), cut=True, estimated=True), *WHO)
    one.record(RequestUsage(rejected=True), "alice", "acme", "", "openai", "passthrough")
    await one.flush()
    assert {(family, labels): values for (family, labels), values in counters.collect_counts()} == {
        ("gateway_usage_requests", ("passthrough", "gpt-4.1", "ok")): (1,),
        ("gateway_usage_requests", ("passthrough", "gpt-4.1", "cut")): (1,),
        ("gateway_usage_requests", ("passthrough", "other", "rejected")): (1,),
        ("gateway_usage_tokens", ("passthrough", "gpt-4.1", "input")): (11,),
        ("gateway_usage_tokens", ("passthrough", "gpt-4.1", "cached")): (4,),
        ("gateway_usage_tokens", ("passthrough", "gpt-4.1", "output")): (7,),
        ("gateway_usage_tokens", ("passthrough", "gpt-4.1", "reasoning")): (3,),
        ("gateway_usage_estimated", ("passthrough", "gpt-4.1")): (1,),
        ("gateway_usage_key_requests", ("acme", "alice", "ok")): (1,),
        ("gateway_usage_key_requests", ("acme", "alice", "cut")): (1,),
        ("gateway_usage_key_requests", ("acme", "alice", "rejected")): (1,),
        ("gateway_usage_key_tokens", ("acme", "alice", "input")): (11,),
        ("gateway_usage_key_tokens", ("acme", "alice", "output")): (7,),
    }


async def test_cost_metric_counts_priced_usage_in_one_currency(store: FailingStore) -> None:
    """In one of it. What has no price has no cost here, whatever a budget thinks of it."""
    counters = ContextCounters()
    one = Ledger(store, writer="w", counters=counters, clock=ManualClock(LATE_S))
    one.prices = Prices("EUR", [Price(model="gpt-*", input=2, cached=1, cache_write=2, output=8)])
    one.record(RequestUsage(TokenCounts(250_000, output=125_000)), *WHO)
    one.record(RequestUsage(TokenCounts(1000)), "alice", "acme", "unknown", "openai", "passthrough")
    await one.flush()
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    await one.flush()
    costs = {labels: values for (family, labels), values in counters.collect_counts() if family == "gateway_usage_cost"}
    assert costs == {("EUR", "passthrough", "gpt-4.1"): (pytest.approx(1.500002),)}


async def test_metrics_label_unanswered_models_as_other(store: FailingStore) -> None:
    """A client that makes up names takes no series from the models that are there; the usage has each name."""
    counters = ContextCounters()
    one = Ledger(store, writer="w", counters=counters, clock=ManualClock(LATE_S))
    for number in range(100):
        one.record(RequestUsage(rejected=True), "k", "t", f"made up {number}", "up", "context")
    await one.flush()
    one.record(RequestUsage(TokenCounts(1)), "k", "t", "there", "up", "context")
    one.record(RequestUsage(rejected=True), "k", "t", "there", "up", "context")
    await one.flush()
    counts = {
        labels: values for (family, labels), values in counters.collect_counts() if family == "gateway_usage_requests"
    }
    assert counts == {
        ("context", "other", "rejected"): (100,),
        ("context", "there", "rejected"): (1,),
        ("context", "there", "ok"): (1,),
    }
    assert len(await rows(store)) == 101


async def test_metrics_report_model_response_times(store: FailingStore) -> None:
    """By the name of their row, as soon as they are recorded."""
    counters = ContextCounters()
    one = Ledger(store, writer="w", counters=counters, clock=ManualClock(LATE_S))
    one.record(RequestUsage(TokenCounts(1), requests=2), *WHO, Times([0.1, 0.2], [1.0, 2.0]))
    one.record(RequestUsage(TokenCounts(1)), *WHO, build_times(5.0, 6.0, 8.0, streamed_tokens=5))
    one.record(RequestUsage(rejected=True), *WHO)
    sums = {family: values[-1] for (family, _), values in counters.collect_counts()}
    assert sums == {
        "gateway_model_time_to_first_byte_seconds": pytest.approx(1.3),
        "gateway_model_duration_seconds": 6.0,
        "gateway_model_time_per_output_token_seconds": 0.5,
    }


async def test_usage_metrics_have_bounded_series_for_hostile_names(store: FailingStore) -> None:
    """A thousand keys, a thousand models, hostile names: all are counted, in few series of valid text."""
    counters = ContextCounters()
    one = Ledger(store, writer="w", counters=counters, clock=ManualClock(LATE_S))
    one.prices = Prices("USD", [Price(model="*", input=2, cached=1, cache_write=2, output=8)])
    hostile = ['a"b', "c\\d", "e{f}", "other", "中文", "x" * 200, "# HELP gateway", "1 2 3"]
    models = [*hostile, *(f"m{number}" for number in range(1000 - len(hostile)))]
    keys = [*hostile, *(f"k{number}" for number in range(1000 - len(hostile)))]
    for number, (key, model) in enumerate(zip(keys, models, strict=True)):
        facts = key, f"t{number % 100}", model, "up", ("passthrough", "context")[number % 2]
        one.record(RequestUsage(TokenCounts(10, 4, 1, 7, 3), estimated=True), *facts, Times([0.1], [0.2], [0.01]))
        one.record(RequestUsage(rejected=True), *facts)
        one.record(RequestUsage(TokenCounts(1), cut=True), *facts)
    await one.flush()
    text = page_of(counters.collect_counts())
    check_by_promtool(text)
    found = metric_samples(text)
    print(f"\n{len(found)} series of 1,000 keys and 1,000 models")
    assert len(found) <= 1300
    for name, total in (("requests", 3000), ("key_requests", 3000), ("estimated", 1000)):
        assert sum(value for key, value in found.items() if key[0] == f"gateway_usage_{name}_total") == total
    assert sum(value for key, value in found.items() if key[0] == "gateway_model_duration_seconds_count") == 1000


async def test_unexpected_error_is_logged_and_the_ledger_keeps_storing(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Here of a reader of answers that wait."""
    breaks = [LookupError("once")]

    def catch_up() -> None:
        if breaks:
            raise breaks.pop()

    clock = ManualClock(LATE_S)
    one = Ledger(store, writer="w", counters=ContextCounters(), clock=clock, catch_up=catch_up)
    one.start()
    one.record(RequestUsage(TokenCounts(1)), *WHO)
    await until_read(lambda: rows(store), lambda found: [row.input for row in found] == [1])
    assert "LookupError: once" in caplog.text
    await one.close()


async def test_ledger_estimates_recent_token_cost_before_flush(store: FailingStore) -> None:
    """And until the next usage is. Of others it is a guess by the prices."""
    one = ledger(store, ManualClock(LATE_S))
    one.prices = Prices("USD", [Price(model="gpt-4.1", input=10, cached=0, cache_write=0, output=40)])
    one.record(RequestUsage(TokenCounts(20, 0, 0, 10)), *WHO)

    def cost(of: str) -> float:
        return one.estimate_token_cost(lambda tenant, key, model, upstream: of in (tenant, key, model, upstream))

    assert [cost(of) for of in ("acme", "alice", "gpt-4.1", "openai", "other")] == pytest.approx([*[20e-6] * 4, 25e-6])
    await one.flush()
    await one.flush()
    assert cost("acme") == pytest.approx(20e-6)


async def test_ledger_signals_complete_before_storing_and_stored_after(store: FailingStore) -> None:
    """And as stored once it is; a store that fails stores nothing."""
    one, told = ledger(store, ManualClock(LATE_S)), list[str]()

    def storing() -> Callable[[], None]:
        told.append("complete")
        return lambda: told.append("stored")

    one.storing = storing
    one.record(RequestUsage(TokenCounts(10)), *WHO)
    store.fails = True
    await one.flush()
    assert told == ["complete"]
    store.fails = False
    await one.flush()
    await one.flush()
    assert told == ["complete", *["complete", "stored"] * 2]
