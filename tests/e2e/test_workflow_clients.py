"""Workflows that run without their client, and clients that come and go."""

import asyncio
from pathlib import Path

import pytest
from gateways import until

from .models import refuses, says
from .test_runs import cancel
from .workflow_cases import run, working


async def test_respond_async_is_answered_with_the_location_of_the_run(tmp_path: Path) -> None:
    """Design, open question 1: `Prefer: respond-async` is answered at once with where the result will be."""
    go = asyncio.Event()
    async with working(tmp_path, says("Ada", go, ".")) as world:
        begun = await run(world, "report", {"legs": 4}, Prefer="respond-async")
        assert (begun.status, begun.json["state"], begun.json["result"]) == (202, "running", None)
        assert begun.headers["Location"] == f"/context/runs/{begun.json['id']}"
        assert begun.headers["Preference-Applied"] == "respond-async"
        go.set()
        whole = await world.run(begun.json["id"], state="completed")
        assert (whole["workflow"], whole["result"]) == ("report", "# Pets\nAda.")


async def test_failed_async_run_stores_its_error(tmp_path: Path) -> None:
    """Nobody waits for it."""
    async with working(tmp_path, refuses(401)) as world:
        begun = await run(world, "report", {"legs": 4}, Prefer="respond-async")
        whole = await world.run(begun.json["id"], state="failed")
        assert whole["error"]["code"] == "upstream_refused" and "'said'" in whole["error"]["message"]


@pytest.mark.parametrize("prefer", [{}, {"Prefer": "respond-async"}])
async def test_the_same_idempotency_key_begins_one_run(tmp_path: Path, prefer: dict[str, str]) -> None:
    """Whoever lost the answer asks again; for anything else the key is used up."""
    same = {"Idempotency_Key": "k1", **prefer}
    async with working(tmp_path, says("Ada.")) as world:
        first = await run(world, "report", {"legs": 4}, **same)
        await world.run(first.json["id"], state="completed")
        again = await run(world, "report", {"legs": 4}, **same)
        assert (again.status, again.json["id"]) == (first.status, first.json["id"])
        assert again.json["result"] == "# Pets\nAda." and len(world.model.asked) == 1
        other = await run(world, "report", {"legs": 2}, **same)
        assert (other.status, other.error["code"]) == (409, "idempotency_mismatch")
        assert len((await world.get("/context/runs")).json["data"]) == 1


async def test_idempotency_key_repeats_results_but_not_effectless_failures(tmp_path: Path) -> None:
    """A result is a result; what failed before it did anything begins anew."""
    async with working(tmp_path, refuses(500), says("Pets."), says("Never.")) as world:
        assert (await run(world, "summary", {"text": "x"}, Idempotency_Key="k")).status == 500
        first = await run(world, "summary", {"text": "x"}, Idempotency_Key="k")
        again = await run(world, "summary", {"text": "x"}, Idempotency_Key="k")
        assert first.json == again.json and first.json["result"] == "Pets." and len(world.model.asked) == 2


async def test_concurrent_requests_with_one_idempotency_key_share_a_run(tmp_path: Path) -> None:
    """Both wait for the one run."""
    go = asyncio.Event()
    async with working(tmp_path, says("Ada", go, ".")) as world:
        both = [asyncio.create_task(run(world, "report", {"legs": 4}, Idempotency_Key="k")) for _ in range(2)]
        await until(lambda: world.model.asked)
        go.set()
        one, two = await asyncio.gather(*both)
        assert one.json["id"] == two.json["id"] and one.json["result"] == two.json["result"] == "# Pets\nAda."
        assert len(world.model.asked) == 1


async def test_client_disconnect_interrupts_a_workflow_run_without_effects(tmp_path: Path) -> None:
    """Before a tool has run: the model's call ends with it, and the run says that it was interrupted."""
    never = asyncio.Event()
    async with working(tmp_path, says("Ad", never)) as world:
        asking = asyncio.create_task(run(world, "summary", {"text": "x"}))
        await until(lambda: world.model.asked)
        (there,) = (await world.get("/context/runs")).json["data"]
        assert there["state"] == "running"
        asking.cancel()
        await world.run(there["id"], state="interrupted")
        assert await world.counted('gateway_workflow_runs_total{outcome="cancelled",workflow="summary"}') == 1


async def test_cancelled_workflow_run_is_reported_to_its_waiting_client(tmp_path: Path) -> None:
    """By anybody of its tenant: whoever waits for it hears so soon."""
    never = asyncio.Event()
    async with working(tmp_path, says("Ad", never)) as world:
        asking = asyncio.create_task(run(world, "report", {"legs": 4}))
        await until(lambda: world.model.asked)
        (there,) = (await world.get("/context/runs")).json["data"]
        assert (await cancel(world, there["id"])).json["state"] == "cancelled"
        async with asyncio.timeout(120):
            told = await asking
        assert (told.status, told.error["code"]) == (422, "run_cancelled")
        assert (await world.run(there["id"]))["state"] == "cancelled"


async def test_concurrency_limit_refuses_a_workflow_run(tmp_path: Path) -> None:
    """`limits.concurrent` holds for runs of workflows as for chats."""
    go = asyncio.Event()
    async with working(tmp_path, says("Ada", go, "."), limits={"concurrent": 1}) as world:
        asking = asyncio.create_task(run(world, "report", {"legs": 4}))
        await until(lambda: world.model.asked)
        full = await run(world, "echo", {"text": "x"})
        assert (full.status, full.error["code"]) == (503, "overloaded")
        go.set()
        assert (await asking).status == 200
