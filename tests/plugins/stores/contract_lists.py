"""Lists in every store: narrowed runs, orders of approvals, counts of what waits; imported like `contract`."""

from itertools import product
from typing import Any

import pytest

from gateway.contracts.storage.list_queries import Tally
from gateway.contracts.storage.store import Store
from tests.plugins.stores.records import approval, moved, new, parked, run, write

#: Runs by what a list is narrowed by, in the order of their begin.
MANY = [
    {"state": state, "conversation": conversation, "caller": caller, **kind}
    for state, conversation, caller, kind in product(
        ("completed", "failed", "running"),
        (None, "c1"),
        ("ann", "bob"),
        (
            {},
            {"kind": "tool", "tool": "look"},
            *({"kind": "workflow", "workflow": name} for name in ("report", "tidy")),
        ),
    )
]


def fits(facts: dict[str, Any], at: int, wanted: dict[str, Any]) -> bool:
    times = wanted.get("since_s", 0.0) <= at < wanted.get("until_s", 1000.0)
    facts = {"kind": "chat", **facts}
    return times and all(facts.get(name) == value for name, value in wanted.items() if not name.endswith("_s"))


async def test_runs_are_filtered_by_any_combination(store: Store) -> None:
    """Newest first, those of one tenant, page by page as at once."""
    for at, facts in enumerate(MANY):
        await store.write(new(run(f"run_{at:02}", created_s=float(at), **facts)))
        await store.write(new(run(f"run_{at:02}", tenant="other", created_s=float(at), **facts)))
    choices: dict[str, list[Any]] = {
        "state": [None, "failed"],
        "conversation": [None, "c1", "c9"],
        "caller": [None, "bob"],
        "kind": [None, "chat", "workflow", "tool"],
        "workflow": [None, "tidy"],
        "since_s": [None, 5.0],
        "until_s": [None, 30.0],
    }
    for values in product(*choices.values()):
        wanted: dict[str, Any] = {k: v for k, v in zip(choices, values, strict=True) if v is not None}
        whole = [f"run_{at:02}" for at, facts in enumerate(MANY) if fits(facts, at, wanted)][::-1]
        found: list[str] = []
        after: str | None = None
        while len(found) <= len(whole):
            page = await store.list_runs(tenant="acme", after=after, limit=5, **wanted)
            found += [one.id for one in page.runs]
            if page.behind is None:
                break
            after = page.behind[1]
        assert found == whole, wanted


async def test_workflow_name_of_a_run_is_returned(store: Store) -> None:
    """In the list and by itself, also after it went on."""
    begun = run(kind="workflow", workflow="report")
    await store.write(new(begun))
    await store.write(moved(run(kind="workflow", workflow="report", state="completed")))
    there = await store.run("run_1", tenant="acme")
    [listed] = (await store.list_runs(tenant="acme", limit=9)).runs
    assert there is not None
    assert (there.workflow, listed.workflow, listed.state) == ("report", "report", "completed")


async def waiting(store: Store) -> None:
    """Approvals with (expiry, begin): three wait, one is decided, one is another tenant's."""
    facts = {"a": (900.0, 1.0), "b": (500.0, 3.0), "c": (500.0, 2.0), "d": (100.0, 4.0)}
    for name, (expires_s, created_s) in facts.items():
        await store.write(parked(f"run_{name}", approval_id=name, expires_s=expires_s, created_s=created_s))
    await store.write(parked("run_x", approval_id="x", tenant="other", expires_s=50.0))
    await store.decide_approval(write("d", now_s=50.0))


async def ids(store: Store, **which: Any) -> list[str]:
    return [one.id for one in await store.list_approvals(tenant="acme", **{"limit": 9, **which})]


async def test_urgency_order_lists_the_soonest_expiry_first(store: Store) -> None:
    """The one that expires first, then the older one, then by id; pending ones only, in pages, narrowed."""
    await waiting(store)
    await store.write(
        new(
            run("run_e"), approvals=(approval("cc", run_id="run_e", expires_s=500.0, created_s=2.0, conversation="c2"),)
        )
    )
    assert await ids(store, order="urgency") == ["c", "cc", "b", "a"]
    assert await ids(store, order="urgency", state="pending", limit=2) == ["c", "cc"]
    assert await ids(store, order="urgency", after="cc") == ["b", "a"]
    assert await ids(store, order="urgency", conversation="c2") == ["cc"]
    assert await ids(store, order="urgency", run_id="run_a") == ["a"]
    assert await ids(store, order="urgency", after="x") == []


@pytest.mark.parametrize(("which", "found"), [({}, "dbca"), ({"after": "b"}, "ca"), ({"state": "approved"}, "d")])
async def test_newest_order_lists_the_latest_approvals_first(store: Store, which: dict[str, Any], found: str) -> None:
    """Decided or not, in pages."""
    await waiting(store)
    assert await ids(store, order="newest", **which) == list(found)


async def many_waiting(store: Store) -> None:
    """Six that wait: calls `a` to `f`; the last ones of bob, one of them with arguments that a person changed."""
    facts: dict[str, dict[str, Any]] = {
        "a": {"tool": "look", "arguments": '{"text":"say \\"Ünde\\" 100%_!"}', "created_s": 1.0},
        "b": {"created_s": 2.0, "user": "zoe"},
        "c": {"created_s": 3.0, "conversation": "talk-9"},
        "d": {"created_s": 4.0, "arguments": '{"command":"make -n"}'},
        "e": {"created_s": 5.0, "caller": "bob", "arguments": '{"command":"MAKE -N"}'},
        "f": {"created_s": 6.0, "caller": "bob", "edited": '{"command":"make"}', "expires_s": 90.0},
    }
    for name, some in facts.items():
        await store.write(new(run(f"run_{name}"), approvals=(approval(name, run_id=f"run_{name}", **some),)))
    await store.write(parked("run_x", approval_id="x", tenant="other"))


@pytest.mark.parametrize(
    ("narrowed", "found"),
    [
        ({"tool": "look"}, "a"),
        ({"caller": "bob"}, "ef"),
        ({"caller": "bob", "text": "-n"}, "e"),
        ({"text": "make -N"}, "de"),
        ({"text": 'say "Ünde" 100%_!'}, "a"),
        ({"text": "%"}, "a"),
        ({"text": "_!"}, "a"),
        ({"text": "\0"}, ""),
        ({"text": "ÜNDE"}, "a"),
        ({"text": "zoe"}, "b"),
        ({"text": "talk-9"}, "c"),
        ({"text": "run_d"}, "d"),
        ({"text": "LOOK"}, "a"),
        ({"equal_to": "b"}, "bcf"),
        ({"equal_to": "x"}, ""),
        ({"since_s": 2.0, "until_s": 4.0}, "bc"),
    ],
    ids=str,
)
async def test_pending_approvals_are_filtered(store: Store, narrowed: dict[str, Any], found: str) -> None:
    """By tool, caller, a text, an equal call, age: in each order, and in pages."""
    await many_waiting(store)
    assert await ids(store, state="pending", **narrowed) == list(found)
    assert await ids(store, state="pending", order="newest", **narrowed) == list(found[::-1])
    assert set(await ids(store, order="urgency", **narrowed)) == set(found)
    for place, one in enumerate(found):
        assert await ids(store, state="pending", after=one, **narrowed) == list(found[place + 1 :])


async def test_pending_approvals_are_counted_in_groups(store: Store) -> None:
    """The largest first; each with the one that expires first. Calls are equal as they would run."""
    await many_waiting(store)

    async def groups(**which: Any) -> list[tuple[str, int, int, float]]:
        found = await store.list_approval_groups(tenant="acme", **{"limit": 9, **which})
        return [(one.first, one.count, one.calls, one.next_s) for one in found]

    called = [("f", 3, 1, 90.0), ("a", 1, 1, 1000.0), ("d", 1, 1, 1000.0), ("e", 1, 1, 1000.0)]
    assert await groups(by="call") == called
    assert await groups(by="call", limit=1) == called[:1]
    assert await groups(by="tool") == [("f", 5, 3, 90.0), ("a", 1, 1, 1000.0)]
    assert [one[1:] for one in await groups(by="caller")] == [(4, 3, 1000.0), (2, 2, 90.0)]
    assert await groups(by="call", caller="bob") == [("f", 1, 1, 90.0), ("e", 1, 1, 1000.0)]
    assert await groups(by="tool", text="nothing like this") == []


async def test_tally_counts_pending_work_per_tenant(store: Store) -> None:
    """Pending approvals, the first expiry, runs that have not ended; one that waits in memory waits."""
    assert await store.tally(tenant="acme") == Tally()
    await waiting(store)
    await store.write(new(run("held"), approvals=(approval("h", run_id="held"),)))
    for name, state in (("r1", "running"), ("r2", "running"), ("u", "unknown"), ("e", "completed"), ("f", "failed")):
        await store.write(new(run(name, state=state)))
    runs = {"running": 2, "awaiting_approval": 5, "unknown": 1}
    assert await store.tally(tenant="acme") == Tally(pending=4, next_s=500.0, runs=runs)
    assert await store.tally(tenant="other") == Tally(pending=1, next_s=50.0, runs={"awaiting_approval": 1})
