"""What every store promises of usage."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gateway.contracts.storage.store import Store
from gateway.contracts.storage.usage import DIMENSIONS, MOST_USAGE, Dimension, StoredUsage

ROW = StoredUsage("2026-11-26", "acme", "alice", "gpt-4.1", "openai", "passthrough", "USD", 2, 1, 0, 1, 10, 4, 7, 3, 99)


async def read(store: Store, *by: Dimension, tenant: str | None = None) -> list[StoredUsage]:
    return list(await store.sum_usage(since="0000-00-00", until="9999-99-99", by=by, tenant=tenant))


async def test_usage_rows_are_summed(store: Store) -> None:
    """Whoever adds it, each count and the cost on their own."""
    await store.add_usage([ROW, replace(ROW, key="bob")], writer="a", number=1, now_s=1.0)
    await store.add_usage([ROW], writer="b", number=1, now_s=1.0)
    twice = replace(ROW, requests=4, rejected=2, estimated=2, input=20, cached=8, output=14, reasoning=6, cost=198)
    assert await read(store, *DIMENSIONS) == [twice, replace(ROW, key="bob")]
    summed = replace(ROW, day="", tenant="", key="", model="", upstream="", lane="", requests=6, rejected=3)
    summed = replace(summed, estimated=3, input=30, cached=12, output=21, reasoning=9, cost=297)
    assert await read(store) == [summed]
    assert await read(store, "key") == [replace(twice, **nothing_but("key")), replace(ROW, **nothing_but("key", "bob"))]


def nothing_but(dimension: Dimension, value: str | None = None) -> dict[str, str]:
    kept = {dimension: getattr(ROW, dimension) if value is None else value}
    return {**dict.fromkeys(DIMENSIONS, ""), **kept}  # type: ignore[dict-item]


async def test_usage_is_summed_by_the_requested_columns(store: Store) -> None:
    """In its order; currencies are never added up."""
    rows = [replace(ROW, day=f"2026-11-2{day}", model=model) for day in (7, 6) for model in ("m", "l")]
    await store.add_usage([*rows, replace(rows[0], currency="", cost=0)], writer="a", number=1, now_s=1.0)
    found = [(row.day, row.model, row.currency, row.requests) for row in await read(store, "day", "model")]
    assert found == [
        ("2026-11-26", "l", "USD", 2),
        ("2026-11-26", "m", "USD", 2),
        ("2026-11-27", "l", "USD", 2),
        ("2026-11-27", "m", "", 2),
        ("2026-11-27", "m", "USD", 2),
    ]
    assert [(row.currency, row.requests) for row in await read(store)] == [("", 2), ("USD", 8)]


async def test_usage_is_selected_by_day_and_tenant(store: Store) -> None:
    """Both days are included; a tenant sees nothing of another."""
    days = ("2026-10-31", "2026-11-01", "2026-11-30", "2026-12-01")
    await store.add_usage([replace(ROW, day=day) for day in days], writer="a", number=1, now_s=1.0)
    await store.add_usage([replace(ROW, day="2026-11-15", tenant="rival")], writer="a", number=2, now_s=1.0)
    found = await store.sum_usage(since="2026-11-01", until="2026-11-30", by=("day",), tenant="acme")
    assert [row.day for row in found] == ["2026-11-01", "2026-11-30"]
    found = await store.sum_usage(since="2026-11-01", until="2026-11-30", by=("tenant",), tenant=None)
    assert [row.tenant for row in found] == ["acme", "rival"]
    assert await store.sum_usage(since="2026-11-01", until="2026-11-30", by=(), tenant="new") == []


@pytest.mark.parametrize("days", [("2026-11-26", "2026-11-26"), ("2026-11-01", "2026-11-30")])
async def test_usage_is_selected_by_keys(store: Store, days: tuple[str, str]) -> None:
    """Each once, in their order, however many they are; of one that is not there, nothing."""
    rows = [replace(ROW, key=f"k{number:04}", tenant=tenant) for number in range(1200) for tenant in ("acme", "b")]
    await store.add_usage([*rows, replace(rows[1], model="other")], writer="a", number=1, now_s=1.0)
    since, until = days
    wanted = [(row.tenant, row.key) for row in reversed(rows) if row.key != "k0007"]
    found = await store.sum_usage(
        since=since, until=until, by=("tenant", "key"), tenant=None, only=[*wanted, ("b", "no")]
    )
    assert [(row.tenant, row.key) for row in found] == sorted(wanted)
    assert {(row.tenant, row.key, row.requests) for row in found if row.requests != 2} == {("b", "k0000", 4)}
    for only, tenant in (([], None), ([("acme", "k0001")], "b")):
        assert await store.sum_usage(since=since, until=until, by=("tenant", "key"), tenant=tenant, only=only) == []


async def test_large_usage_numbers_and_unusual_names_are_stored(store: Store) -> None:
    """A day of a large company, and names that are no names."""
    large = replace(ROW, input=1 << 50, cost=1 << 61, model="'; DROP TABLE usage; --", key="快速\x00 🦊")
    await store.add_usage([large], writer="a", number=1, now_s=1.0)
    assert await read(store, *DIMENSIONS) == [large]


async def test_usage_lost_by_a_dead_writer_is_reported_once(store: Store) -> None:
    """Not one that ended in order, and not one that added something just now."""
    for number, writer, now_s in ((1, "ended", 1.0), (1, "lost", 2.0), (1, "alive", 2.0), (2, "alive", 9.0)):
        await store.add_usage([ROW], writer=writer, number=number, now_s=now_s)
    await store.end_usage("ended")
    assert await store.forget_lost_usage(before_s=5.0) == [2.0]
    assert await store.forget_lost_usage(before_s=5.0) == []
    await store.add_usage([], writer="alive", number=3, now_s=11.0)
    assert await store.forget_lost_usage(before_s=10.0) == []
    assert await store.forget_lost_usage(before_s=12.0) == [11.0]


async def test_usage_that_is_added_again_counts_once(store: Store) -> None:
    """The same number of a process adds nothing, nor does an earlier one; another process has its own numbers."""
    for number, writer in ((1, "a"), (1, "a"), (1, "b"), (3, "a"), (2, "a"), (3, "a")):
        await store.add_usage([ROW], writer=writer, number=number, now_s=1.0)
    assert [row.requests for row in await read(store)] == [3 * ROW.requests]


async def test_prune_usage_deletes_old_days(store: Store) -> None:
    """Whole days, and none from the day on that is named."""
    await store.add_usage([replace(ROW, day=f"2026-11-{day}") for day in (10, 11, 12)], writer="a", number=1, now_s=1.0)
    assert await store.prune_usage(before="2026-11-12") == 2
    assert [row.day for row in await read(store, "day")] == ["2026-11-12"]
    assert await store.prune_usage(before="2026-11-12") == 0


async def test_usage_changes_report_the_changed_days(store: Store) -> None:
    """By new rows and by what is added to them, and of no other day."""
    seen = [await changes(store)]
    for number, day in enumerate(("2026-11-25", "2026-11-26", "2026-11-26"), 1):
        await store.add_usage([replace(ROW, day=day)], writer="a", number=number, now_s=1.0)
        seen.append(await changes(store))
    assert seen[0] == {}
    assert seen[1].keys() == {"2026-11-25"}
    assert seen[1]["2026-11-25"] == seen[2]["2026-11-25"] == seen[3]["2026-11-25"]
    assert seen[2]["2026-11-26"] < seen[3]["2026-11-26"]
    assert await store.list_usage_changes(since="2026-11-27", until="2026-11-30") == {}
    await store.prune_usage(before="2026-11-26")
    assert (await changes(store)).keys() == {"2026-11-26"}


async def changes(store: Store) -> Mapping[str, int]:
    return await store.list_usage_changes(since="2026-11-01", until="2026-11-26")


async def test_usage_sums_are_capped_at_the_maximum(store: Store) -> None:
    """Of a row, and of several; what is added later is kept."""
    most = replace(ROW, input=MOST_USAGE, cost=MOST_USAGE)
    for number, key in enumerate(("alice", "alice", "bob", "carol"), 1):
        await store.add_usage([replace(most, key=key)], writer="a", number=number, now_s=1.0)
    found = await read(store, "key")
    assert [(row.input, row.cost, row.requests) for row in found] == [
        (MOST_USAGE, MOST_USAGE, requests) for requests in (4, 2, 2)
    ]
    (summed,) = await read(store)
    assert (summed.input, summed.cost, summed.requests, summed.output) == (MOST_USAGE, MOST_USAGE, 8, 28)


async def test_active_gateways_are_counted(store: Store) -> None:
    """Until they leave, or have not said so for too long. A duty of another name is none."""
    assert await store.count_gateways(now_s=0.0) == 0
    await store.take_duty("prune", owner="w", now_s=0.0, until_s=99.0)
    await store.announce_gateway("one", now_s=0.0, until_s=30.0)
    await store.announce_gateway("two", now_s=5.0, until_s=35.0)
    await store.announce_gateway("one", now_s=10.0, until_s=40.0)
    assert [await store.count_gateways(now_s=now_s) for now_s in (10.0, 36.0, 41.0)] == [2, 1, 0]
    await store.withdraw_gateway("two")
    await store.withdraw_gateway("two")
    assert await store.count_gateways(now_s=10.0) == 1
    await store.announce_gateway("three", now_s=50.0, until_s=80.0)
    assert await store.count_gateways(now_s=10.0) == 1
