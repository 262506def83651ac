"""The list of runs, page by page: each run once whatever happens at one moment, and nothing large is read for it."""

import tracemalloc

import pytest

from gateway.contracts.storage.journal import Change
from tests.plugins.stores.records import approval, new, run

from .approval_pages import ServedApprovals, code_of, going, opened

LARGE_BYTES = 1 << 20


def held(run_id: str, **changes: object) -> Change:
    """A run that waits for a person in memory."""
    return new(
        run(run_id, owner="worker_1", lease_s=300.0, **changes),
        approvals=(approval(f"ap_{run_id}", run_id=run_id),),
    )


def stored(run_id: str, **changes: object) -> Change:
    """A run that waits for a person in the store."""
    return new(run(run_id, state="awaiting_approval", **changes), approvals=(approval(f"ap_{run_id}", run_id=run_id),))


async def paged(desk: ServedApprovals, query: str, *, pages: int) -> list[str]:
    """The ids of at most so many pages."""
    found: list[str] = []
    after = ""
    for _ in range(pages):
        status, page = await desk.get(f"/context/runs?{query}{after}")
        assert status == 200
        found += [view["id"] for view in page["data"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    return found


@pytest.mark.parametrize("state", ["", "&state=awaiting_approval"])
@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_runs_created_at_one_moment_are_listed_once(state: str, limit: int) -> None:
    """Also where some wait in memory and others in the store, begun one after the other or all of a kind first."""
    names = [f"run_{n:02}" for n in range(12)]
    for order in (names, [*names[::2], *names[1::2]], [*names[1::2], *names[::2]]):
        kinds = {name: held if n % 2 else stored for n, name in enumerate(names)}
        async with opened(*(kinds[name](name, created_s=1.0) for name in order)) as desk:
            found = await paged(desk, f"limit={limit}{state}", pages=2 * len(names))
        assert sorted(found) == names


async def test_runs_with_equal_start_times_are_each_listed_once() -> None:
    """More of one kind than are looked at at once, and some of the other kind, all begun at the same moment."""
    names = [f"run_{n:03}" for n in range(230)]
    async with opened(
        *((stored if n % 23 == 0 else held)(name, created_s=1.0) for n, name in enumerate(names))
    ) as desk:
        found = await paged(desk, "limit=200&state=awaiting_approval", pages=len(names))
    assert sorted(found) == names


async def test_run_list_does_not_load_large_run_parts() -> None:
    """Neither for the runs of a page nor for the one behind which it begins."""
    large = b"x" * LARGE_BYTES
    several = (going(run_id=f"run_{n}", created_s=float(n), request=large, progress=large) for n in range(8))
    async with opened(*several) as desk:
        await desk.get("/context/runs?limit=1")
        tracemalloc.start()
        try:
            status, page = await desk.get("/context/runs?limit=7&after=run_7")
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (status, len(page["data"])) == (200, 7)
    assert peak_bytes < LARGE_BYTES


async def test_run_list_cursor_must_be_a_run_of_the_tenant() -> None:
    """Behind its last run is nothing; another tenant's run, and one that there is not, is no place to begin."""
    async with opened(going(), new(run("run_x", tenant="other"))) as desk:
        assert await desk.get("/context/runs?after=run_1") == (200, {"object": "list", "data": [], "next": None})
        for state in ("", "&state=running", "&state=awaiting_approval", "&state=completed"):
            for after in ("run_x", "run_9", "%00", "'"):
                assert code_of(await desk.get(f"/context/runs?after={after}{state}")) == (400, "invalid_field")
