"""The pages of runs and of the audit log, asked over HTTP."""

import asyncio
from dataclasses import asdict

import orjson
import pytest

from gateway.api.openapi.operations import OPERATIONS
from gateway.api.request import VIEWING
from gateway.api.runs import LOOKED_AT
from gateway.contracts.storage.audit_chain import verify
from gateway.contracts.storage.journal import Change
from tests.plugins.stores.records import approval, audit_line, new, parked, run, step

from .approval_pages import code_of, going, opened

ONE = "/context/runs/run_1"
LOST = new(
    run(state="unknown", effects=True),
    steps=(step(0, state="finished", result="ok"), step(1, state="unknown", started_s=150.0, approval_id="ap_1")),
    approvals=(approval(state="unknown"),),
)


def held(run_id: str = "run_1", approval_id: str = "ap_1", **changes: object) -> Change:
    """A run that waits for a person in memory."""
    return new(
        run(run_id, owner="worker_1", lease_s=300.0, **changes),
        approvals=(approval(approval_id, run_id=run_id),),
    )


async def test_runs_are_listed() -> None:
    """Newest first, without their steps; one that waits in memory looks like one that waits in the store."""
    async with opened(
        parked(), held("run_2", "ap_2", created_s=110.0), going(run_id="run_3", created_s=90.0, conversation="c9")
    ) as desk:
        status, listed = await desk.get("/context/runs", key="agent")
        assert (status, listed["object"]) == (200, "list")
        assert [(view["id"], view["state"], view["pending"]) for view in listed["data"]] == [
            ("run_2", "awaiting_approval", 1),
            ("run_1", "awaiting_approval", 1),
            ("run_3", "running", 0),
        ]
        assert listed["data"][2] == {
            "id": "run_3",
            "object": "run",
            "kind": "chat",
            "state": "running",
            "chain": "assistant",
            "conversation": "c9",
            "caller": "ann",
            "workflow": None,
            "tool": None,
            "client": None,
            "effects": False,
            "created_at": 90.0,
            "updated_at": 100.0,
            "pending": 0,
            "lease_until": None,
        }


@pytest.mark.parametrize("state", ["", "&state=awaiting_approval", "&state=running", "&state=completed"])
async def test_run_list_is_paginated(state: str) -> None:
    """Page by page it is what it is at once, whatever it is narrowed by: each run once, the newest first."""
    kinds = (
        lambda n: going(run_id=f"run_{n}", created_s=float(n)),
        lambda n: held(f"run_{n}", f"ap_{n}", created_s=float(n)),
        lambda n: going(run_id=f"run_{n}", created_s=float(n), state="completed"),
    )
    async with opened(*(kinds[n % 3](n) for n in range(2 * LOOKED_AT))) as desk:
        whole, after = [], ""
        while after is not None:
            _, page = await desk.get(f"/context/runs?limit=50{state}{after}")
            whole += [view["id"] for view in page["data"]]
            after = None if page["next"] is None else f"&after={page['next']}"
    wanted = {"": (0, 1, 2), "&state=running": (0,), "&state=awaiting_approval": (1,), "&state=completed": (2,)}[state]
    assert whole == [f"run_{n}" for n in reversed(range(2 * LOOKED_AT)) if n % 3 in wanted]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?limit=1", ["run_2"]),
        ("?state=awaiting_approval", ["run_2", "run_1"]),
        ("?state=awaiting_approval&limit=1", ["run_2"]),
        ("?state=running", ["run_3"]),
        ("?state=completed", ["run_4"]),
        ("?conversation=c9", ["run_3"]),
        ("?state=running&conversation=c1", []),
        ("?kind=chat", ["run_2", "run_1", "run_3"]),
        ("?kind=workflow", ["run_4"]),
        ("?workflow=report&caller=ann", ["run_4"]),
        ("?workflow=tidy", []),
        ("?caller=bob", ["run_3"]),
        ("?caller=bob&state=running", ["run_3"]),
        ("?caller=ann&state=awaiting_approval&kind=chat", ["run_2", "run_1"]),
        ("?since=90", ["run_2", "run_1", "run_3"]),
        ("?since=90.5&until=110", ["run_1"]),
        ("?until=100&state=running", ["run_3"]),
        ("?since=90&limit=1", ["run_2"]),
    ],
)
async def test_run_list_is_filtered_by_its_query(query: str, found: list[str]) -> None:
    """By the state that is shown, by conversation, kind, caller, workflow and begin, to so many."""
    async with opened(
        parked(),
        held("run_2", "ap_2", created_s=110.0),
        going(run_id="run_3", created_s=90.0, conversation="c9", caller="bob"),
        going(run_id="run_4", created_s=80.0, state="completed", kind="workflow", workflow="report"),
    ) as desk:
        _, listed = await desk.get(f"/context/runs{query}")
        assert [view["id"] for view in listed["data"]] == found


async def test_run_page_shows_steps_approvals_answer_and_error() -> None:
    """Steps, approvals, its answer, or why there is none: for who comes back with its id (N27)."""
    done = new(
        run(
            state="completed",
            answer=b'{"content":"Done.","finish_reason":"stop"}',
        ),
        steps=(step(0, state="finished", result="whole", shown="sho", started_s=110.0, finished_s=120.0),),
    )
    async with opened(
        done, parked("run_2"), going(run_id="run_3", state="failed", error_code="agent_timeout", error="Too long.")
    ) as desk:
        _, view = await desk.get(ONE, key="agent")
        assert view["answer"] == {"content": "Done.", "finish_reason": "stop"} and view["error"] is None
        assert view["steps"] == [
            {
                "number": 0,
                "round": 1,
                "call_id": "call_1",
                "tool": "execute_command",
                "arguments": {"command": "make"},
                "sha256": "a" * 64,
                "decision": "confirm",
                "basis": "default",
                "rule": "unknown_command",
                "reason": "",
                "state": "finished",
                "approval_id": None,
                "result": "whole",
                "tainted": False,
                "late": None,
                "started_at": 110.0,
                "finished_at": 120.0,
            }
        ]
        _, view = await desk.get("/context/runs/run_2")
        assert (view["pending"], [one["id"] for one in view["approvals"]], view["answer"]) == (1, ["ap_1"], None)
        own = {"parameters": None, "assigned_to": None, "notes": []}  # what only its page has
        assert {**view["approvals"][0], **own} == (await desk.get("/context/approvals/ap_1"))[1]
        _, view = await desk.get("/context/runs/run_3")
        assert view["error"] == {"code": "agent_timeout", "message": "Too long."}


@pytest.mark.parametrize(
    ("method", "path", "key", "expected"),
    [
        ("GET", ONE, "rival", (404, "run_not_found")),
        ("GET", "/context/runs/run_9", "boss", (404, "run_not_found")),
        ("GET", ONE, "reader", (403, "scope_missing")),
        ("GET", ONE, "", (401, "missing_api_key")),
        ("POST", f"{ONE}/cancel", "rival", (404, "run_not_found")),
        ("POST", f"{ONE}/cancel", "reader", (403, "scope_missing")),
        ("GET", "/context/audit", "boss", (403, "scope_missing")),
    ],
)
async def test_run_pages_require_scope_and_the_same_tenant(
    method: str, path: str, key: str, expected: tuple[int, str]
) -> None:
    """Those of the tenant; to another there is none. The audit log is for administrators."""
    async with opened() as desk:
        assert code_of(await desk.ask(method, path, key=key)) == expected
        assert (await desk.get("/context/runs", key="rival")) == (200, {"object": "list", "data": [], "next": None})
        assert (await desk.get(ONE))[1]["state"] == "awaiting_approval"


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("GET", "/context/runs?status=running", None, "unknown_field"),
        ("GET", "/context/runs?state=lost", None, "invalid_field"),
        ("GET", "/context/runs?limit=many", None, "invalid_field"),
        ("GET", "/context/runs?kind=batch", None, "invalid_field"),
        ("GET", "/context/runs?since=yesterday", None, "invalid_field"),
        ("GET", "/context/runs?until=-1", None, "invalid_field"),
        ("GET", "/context/runs?workflow=a&workflow=b", None, "invalid_field"),
        ("GET", "/context/runs?after=run_9", None, "invalid_field"),
        ("GET", f"{ONE}?steps=1", None, "unknown_field"),
        ("GET", "/context/audit?after=-1", None, "invalid_field"),
        ("POST", f"{ONE}/cancel?x=1", None, "unknown_field"),
        ("POST", f"{ONE}/resume", {"step": 1}, "missing_field"),
        ("POST", f"{ONE}/resume", {"step": "1", "as": "done"}, "invalid_field"),
        ("POST", f"{ONE}/resume", {"step": -1, "as": "done"}, "invalid_field"),
        ("POST", f"{ONE}/resume", {"step": True, "as": "done"}, "invalid_field"),
        ("POST", f"{ONE}/resume", {"step": 1, "as": "maybe"}, "invalid_field"),
        ("POST", f"{ONE}/resume", {"step": 1, "outcome": "done", "as": "done"}, "unknown_field"),
        ("POST", f"{ONE}/resume", {"step": 1, "as": "retry", "result": "x"}, "invalid_field"),
        ("POST", f"{ONE}/resume", {"step": 1, "as": "done", "result": "x" * 32_769}, "invalid_field"),
    ],
)
async def test_invalid_run_request_is_refused_and_changes_nothing(
    method: str, path: str, body: object, told: str
) -> None:
    """And nothing changes."""
    async with opened(LOST) as desk:
        key = "root" if "audit" in path else "boss"
        assert code_of(await desk.ask(method, path, body, key=key)) == (400, told)
        assert (await desk.get(ONE))[1]["state"] == "unknown"


async def test_cancelled_run_loses_its_approvals_and_cancels_once() -> None:
    """Its approvals are, too; again is no mistake, and after another end it is one."""
    async with opened(parked(), going(run_id="run_2", state="completed")) as desk:
        first = await desk.post(f"{ONE}/cancel", key="agent")
        assert (first[0], first[1]["state"], first[1]["pending"]) == (200, "cancelled", 0)
        assert await desk.post(f"{ONE}/cancel") == first
        assert (await desk.get("/context/approvals/ap_1"))[1]["state"] == "cancelled"
        assert code_of(await desk.post("/context/runs/run_2/cancel")) == (409, "run_ended")


async def test_resolving_an_unknown_call_resumes_the_run() -> None:
    """The call was done, the run is under way again."""
    async with opened(LOST) as desk:
        status, view = await desk.post(f"{ONE}/resume", {"step": 1, "as": "done", "result": "3 rows"})
        assert (status, view["state"]) == (200, "running")
        assert desk.office.resumed == ["run_1"]
        _, whole = await desk.get(ONE)
        assert (whole["steps"][1]["state"], whole["steps"][1]["result"]) == ("finished", "3 rows")
        assert whole["approvals"][0]["state"] == "done"
        _, log = await desk.get("/context/audit", key="root")
        assert [(line["event"], line["decision"], line["by"]) for line in log["data"]] == [("resolved", "done", "bob")]
        assert code_of(await desk.post(f"{ONE}/resume", {"step": 1, "as": "done"})) == (409, "run_not_waiting")


@pytest.mark.parametrize(("key", "expected"), [("agent", 200), ("boss", 200), ("reader", 403), ("rival", 404)])
async def test_run_resume_requires_a_viewing_scope(key: str, expected: int) -> None:
    """Whoever may look: nothing runs that nobody allowed. OpenAPI names the same scopes."""
    async with opened(going(state="awaiting_client", request=b'{"credential": false}')) as desk:
        status, _ = await desk.post(f"{ONE}/resume", {}, key=key)
        assert status == expected
        assert desk.office.resumed == (["run_1"] if expected == 200 else [])
    (operation,) = [one for one in OPERATIONS if one.name == "settleStep"]
    assert operation.scopes == VIEWING


@pytest.mark.parametrize(
    ("key", "step_number", "expected"),
    [
        ("rival", 1, (404, "run_not_found")),
        ("spy", 1, (404, "run_not_found")),
        ("agent", 1, (403, "scope_missing")),
        ("boss", 0, (409, "run_not_waiting")),
        ("boss", 5, (400, "invalid_field")),
    ],
)
async def test_step_settlement_requires_approve_scope_and_an_unknown_step(
    key: str, step_number: int, expected: tuple[int, str]
) -> None:
    """A person with the scope, a call of which nobody knows."""
    async with opened(LOST) as desk:
        assert code_of(await desk.post(f"{ONE}/resume", {"step": step_number, "as": "retry"}, key=key)) == expected
        assert desk.office.resumed == []


async def test_resolution_with_a_full_store_returns_507_and_is_retryable() -> None:
    """And says so. Once it can write, the same word is taken: the one that was not written holds nothing."""
    async with opened(LOST) as desk:
        desk.office.store.full = True
        assert code_of(await desk.post(f"{ONE}/resume", {"step": 1, "as": "retry"})) == (507, "store_full")
        assert desk.office.resumed == []
        desk.office.store.full = False
        assert (await desk.post(f"{ONE}/resume", {"step": 1, "as": "retry"}))[0] == 200


async def test_audit_log_is_paginated_and_its_hash_chain_verifies() -> None:
    """Page by page; each hash covers the line as it is shown and the hash before."""
    lines = tuple(audit_line(created_s=100.0 + i) for i in range(5))
    async with opened(new(audit=lines)) as desk:
        rows, after, sizes = [], "0", []
        while after is not None:
            _, page = await desk.get(f"/context/audit?after={after}&limit=2", key="root")
            rows += page["data"]
            sizes.append(len(page["data"]))
            after = page["next"]
        assert sizes == [2, 2, 1]
        assert (await desk.get("/context/audit?after=3&limit=2", key="root"))[1]["next"] is None, "just two are left"
        names = set(asdict(lines[0]))
        assert verify([(row["seq"], {name: row[name] for name in names}, row["hash"]) for row in rows]) is None
        assert [row["created_s"] for row in rows] == [100.0, 101.0, 102.0, 103.0, 104.0]


async def test_concurrent_cancellations_cancel_the_run_once() -> None:
    """It is cancelled once; each is told the same."""
    async with opened() as desk:
        answers = await asyncio.gather(*(desk.post(f"{ONE}/cancel") for _ in range(30)))
        assert all(answer == answers[0] for answer in answers) and answers[0][0] == 200
        lines = (await desk.get("/context/audit", key="root"))[1]["data"]
        assert [line["event"] for line in lines] == ["cancelled", "decision"], "the question, and the run"


async def test_run_list_page_with_scan_limit_has_a_next_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rare combination is found page by page, where what waits in memory is looked for, too."""
    monkeypatch.setattr("gateway.plugins.stores.sqlite.run_lists.LOOKED_AT", 10)
    others = [going(run_id=f"run_{n:02}", created_s=200.0 + n, caller="bob") for n in range(25)]
    async with opened(going(), *others, held("run_w", "ap_w", created_s=90.0)) as desk:
        for state, wanted in (("running", ["run_1"]), ("awaiting_approval", ["run_w"])):
            found, after, pages = [], "", 0
            while after is not None:
                status, page = await desk.get(f"/context/runs?caller=ann&state={state}{after}")
                assert status == 200
                found += [view["id"] for view in page["data"]]
                after, pages = None if page["next"] is None else f"&after={page['next']}", pages + 1
            assert (found, pages) == (wanted, 3)


async def test_summary_counts_pending_approvals_and_runs() -> None:
    """Of one tenant: pending approvals, the first expiry, and the runs that have not ended by the state shown."""
    ended = going(run_id="run_4", state="completed")
    async with opened(parked(), held("run_2", "ap_2"), going(run_id="run_3"), ended) as desk:
        summary = {"pending": 2, "next_expires_at": 1000.0, "runs": {"awaiting_approval": 2, "running": 1}}
        for key in ("agent", "console"):
            assert await desk.get("/context/summary", key=key) == (200, {"object": "summary", **summary})
        nothing = {"pending": 0, "next_expires_at": None, "runs": {}}
        assert await desk.get("/context/summary", key="rival") == (200, {"object": "summary", **nothing})
        assert code_of(await desk.get("/context/summary", key="reader")) == (403, "scope_missing")
        assert code_of(await desk.get("/context/summary?all=1")) == (400, "unknown_field")


async def test_run_page_lists_its_model_calls() -> None:
    """For a timeline; a run of which none is on record has an empty list."""
    entry = [0, 100.5, 1.25, "m", 10, None, "up", "up.example"]
    async with opened(going(progress=orjson.dumps({"model_calls": [entry]})), going(run_id="run_2")) as desk:
        _, view = await desk.get(ONE)
        assert view["model_calls"] == [
            {
                "round": 0,
                "started_at": 100.5,
                "spent_s": 1.25,
                "model": "m",
                "prompt_tokens": 10,
                "completion_tokens": None,
                "upstream": "up",
                "endpoint": "up.example",
            }
        ]
        assert (await desk.get("/context/runs/run_2"))[1]["model_calls"] == []
