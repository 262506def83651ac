"""The pages of approvals, asked over HTTP."""

import asyncio
import time

import pytest
from gateways import until

from gateway.api.decisions import NOTES_MOST
from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.storage.endorsements import get_check_word
from gateway.contracts.storage.journal import Move
from gateway.contracts.tools import NoPreview, Preview, ToolCall
from gateway.tools.catalog import ConfiguredSource, load_catalog
from gateway.tools.grants import ApprovalBinding
from tests.plugins.stores.records import approval, moved, new, parked, run, step, write
from tests.tools.doubles import Source, spec

from .approval_pages import NOW_S, Desktop, code_of, opened

ONE = "/context/approvals/ap_1"
BATCH = "/context/approvals/batch"
APPROVE, REJECT = {"decision": "approve"}, {"decision": "reject"}


def group(*ids: str) -> object:
    """A run that waits for several approvals."""
    return new(
        run(state="awaiting_approval"),
        steps=tuple(step(i, state="requested", approval_id=one) for i, one in enumerate(ids)),
        approvals=tuple(approval(one, step=i, created_s=100.0 + i) for i, one in enumerate(ids)),
    )


async def test_approval_list_shows_pending_calls_with_all_fields() -> None:
    """Oldest first: the call, why it was held, its hash, until when."""
    async with opened(parked(), parked("run_2", approval_id="ap_2", created_s=90.0, conversation="c2")) as desk:
        status, listed = await desk.get("/context/approvals?status=pending")
        assert (status, listed["object"]) == (200, "list")
        assert [view["id"] for view in listed["data"]] == ["ap_2", "ap_1"]
        assert await desk.get(ONE) == (200, {**listed["data"][1], "parameters": None})
        assert listed["data"][1] == {
            "id": "ap_1",
            "run_id": "run_1",
            "step": 1,
            "conversation": "c1",
            "asked_by": "ann",
            "user": None,
            "client": None,
            "tool": "execute_command",
            "arguments": {"command": "make"},
            "sha256": "a" * 64,
            "check_word": get_check_word(approval()),
            "basis": "default",
            "rule": "unknown_command",
            "reason": "make is not on the list.",
            "state": "pending",
            "created_at": 100.0,
            "expires_at": 1000.0,
            "required_approvals": 1,
            "approved_by": [],
            "decided_at": None,
            "decided_by": None,
            "via": None,
            "comment": None,
            "edited_arguments": None,
            "remember": "once",
            "assigned_to": None,
            "notes": [],
        }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["ap_1", "ap_2"]),
        ("?limit=1", ["ap_1"]),
        ("?conversation=c2", ["ap_2"]),
        ("?run=run_1", ["ap_1"]),
        ("?status=approved", ["ap_2"]),
        ("?status=pending&run=run_2", []),
        ("?order=oldest&limit=1", ["ap_1"]),
        ("?order=newest", ["ap_2", "ap_1"]),
        ("?order=newest&after=ap_2", ["ap_1"]),
        ("?order=urgency&status=pending", ["ap_1"]),
    ],
)
async def test_approval_list_is_filtered_by_its_query(query: str, found: list[str]) -> None:
    """By state, conversation, run, and to so many."""
    async with opened(parked(), parked("run_2", approval_id="ap_2", created_s=110.0, conversation="c2")) as desk:
        await desk.office.store.decide_approval(write("ap_2"))
        _, listed = await desk.get(f"/context/approvals{query}")
        assert [view["id"] for view in listed["data"]] == found


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("GET", "/context/approvals?state=pending", None, "unknown_field"),
        ("GET", "/context/approvals?status=open", None, "invalid_field"),
        ("GET", "/context/approvals?limit=0", None, "invalid_field"),
        ("GET", "/context/approvals?limit=201", None, "invalid_field"),
        ("GET", "/context/approvals?run=a&run=b", None, "invalid_field"),
        ("GET", "/context/approvals?conversation=", None, "invalid_field"),
        ("GET", "/context/approvals?order=urgency", None, "invalid_field"),
        ("GET", "/context/approvals?order=urgency&status=approved", None, "invalid_field"),
        ("GET", "/context/approvals?order=fast", None, "invalid_field"),
        ("GET", f"{ONE}/preview?wait=1", None, "unknown_field"),
        ("GET", f"{ONE}?wait=61", None, "invalid_field"),
        ("GET", f"{ONE}?wait=-1", None, "invalid_field"),
        ("GET", f"{ONE}?wait=nan", None, "invalid_field"),
        ("GET", "/context/grants?status=pending", None, "unknown_field"),
        ("GET", "/context/grants?after=grant_9", None, "invalid_field"),
        ("GET", "/context/approvals?after=ap_9", None, "invalid_field"),
        ("POST", f"{ONE}?force=1", APPROVE, "unknown_field"),
        ("POST", ONE, {"decision": "yes"}, "invalid_field"),
        ("POST", ONE, {}, "missing_field"),
        ("POST", ONE, [], "invalid_json"),
        ("POST", ONE, {**APPROVE, "force": True}, "unknown_field"),
        ("POST", ONE, {**APPROVE, "arguments": "make"}, "invalid_field"),
        ("POST", ONE, {**APPROVE, "remember": "ever"}, "invalid_field"),
        ("POST", ONE, {**REJECT, "reason": "x" * 2001}, "invalid_field"),
        ("POST", BATCH, {**APPROVE, "approvals": []}, "invalid_field"),
        ("POST", BATCH, {**APPROVE, "approvals": [{"id": "ap_1"}] * 101}, "invalid_field"),
        ("POST", BATCH, {**APPROVE, "approvals": [{"id": "ap_1", "x": 1}]}, "unknown_field"),
    ],
)
async def test_invalid_approval_request_is_refused_and_decides_nothing(
    method: str, path: str, body: object, told: str
) -> None:
    """With the name of what is wrong, and nothing is decided."""
    async with opened() as desk:
        answer = await desk.ask(method, path, body)
        assert code_of(answer) == (400, told)
        assert answer[1]["error"]["param"] or told == "invalid_json"
        assert (await desk.get(ONE))[1]["state"] == "pending"


@pytest.mark.parametrize(
    "body",
    [b'{"decision": "reject", "decision": "approve"}', b'{"decision": "approve"', b"\xff", b"[" * 5000, b""],
)
async def test_malformed_decision_body_is_refused_and_decides_nothing(body: bytes) -> None:
    """A key twice, half an object, no UTF-8: nothing is decided."""
    async with opened() as desk:
        headers = {"X-Gateway-Key": "boss"}
        async with desk.session.post(desk.url(ONE), data=body, headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, "invalid_json")
        assert (await desk.get(ONE))[1]["state"] == "pending"


async def test_decision_is_audited_and_resumes_the_run() -> None:
    """Approved by whom, when, by which way; the audit log has it."""
    async with opened() as desk:
        status, view = await desk.post(ONE, {**APPROVE, "sha256": "a" * 64, "reason": "fine", "remember": "run"})
        assert status == 200
        told = [view[key] for key in ("state", "decided_by", "decided_at", "via", "comment", "remember")]
        assert told == ["approved", "bob", 200.0, "rest", "fine", "run"]
        assert desk.office.resumed == ["run_1"]
        _, log = await desk.get("/context/audit", key="root")
        assert [(line["event"], line["decision"], line["by"], line["via"]) for line in log["data"]] == [
            ("decision", "approved", "bob", "rest")
        ]


async def test_decision_stands_when_its_run_cannot_resume_yet() -> None:
    """The decision is made; whoever looks after runs takes it up later."""
    async with opened() as desk:
        desk.office.resumes = False
        status, view = await desk.post(ONE, APPROVE)
        assert (status, view["state"]) == (200, "approved")


@pytest.mark.parametrize(
    ("key", "path", "expected"),
    [
        ("rival", ONE, (404, "approval_not_found")),
        ("spy", ONE, (404, "approval_not_found")),
        ("agent", ONE, (403, "scope_missing")),
        ("reader", ONE, (403, "scope_missing")),
        ("", ONE, (401, "missing_api_key")),
        ("boss", "/context/approvals/ap_2", (404, "approval_not_found")),
    ],
)
async def test_decision_requires_approve_scope_and_the_same_tenant(
    key: str, path: str, expected: tuple[int, str]
) -> None:
    """Another tenant is told that there is nothing; a key without the scope may not; nothing runs (A4)."""
    async with opened() as desk:
        assert code_of(await desk.post(path, APPROVE, key=key)) == expected
        assert desk.office.resumed == []
        assert (await desk.get(ONE))[1]["state"] == "pending"


@pytest.mark.parametrize(
    ("key", "status"), [("boss", 200), ("agent", 200), ("console", 200), ("reader", 403), ("rival", 404), ("spy", 404)]
)
async def test_approval_views_require_scope_and_the_same_tenant(key: str, status: int) -> None:
    """Whoever asks or decides in the tenant."""
    async with opened() as desk:
        assert (await desk.get(ONE, key=key))[0] == status
        listed = await desk.get("/context/approvals", key=key)
        if status == 404:
            assert listed == (200, {"object": "list", "data": [], "next": None})
        else:
            assert listed[0] == status


async def test_decision_with_another_call_hash_is_refused() -> None:
    """A hash of other arguments (A2)."""
    async with opened() as desk:
        assert code_of(await desk.post(ONE, {**APPROVE, "sha256": "f" * 64})) == (409, "approval_stale")
        assert desk.office.resumed == []
        assert (await desk.get(ONE))[1]["state"] == "pending"


async def test_changed_tool_makes_the_approval_stale_and_replaces_it() -> None:
    """What was approved would not be what was shown: a new approval stands in its place (A2, A16)."""
    async with opened() as desk:
        desk.office.judges.bound = ApprovalBinding("e" * 64, "b" * 64)
        assert code_of(await desk.post(ONE, APPROVE)) == (409, "approval_stale")
        _, listed = await desk.get("/context/approvals?status=pending")
        (fresh,) = listed["data"]
        assert fresh["id"] != "ap_1" and (await desk.get(ONE))[1]["state"] == "cancelled"
        assert (await desk.post(f"/context/approvals/{fresh['id']}", APPROVE))[0] == 200


async def test_repeated_decision_returns_the_same_answer() -> None:
    """Also when its call has run since; the other decision is a conflict (A3)."""
    async with opened() as desk:
        first = await desk.post(ONE, APPROVE)
        assert await desk.post(ONE, APPROVE) == first
        assert code_of(await desk.post(ONE, REJECT)) == (409, "decision_conflict")
        there = await desk.office.store.run("run_1", tenant="acme")
        assert there is not None
        await desk.office.store.write(moved(there, Move("ap_1", "approved", "executing")))
        await desk.office.store.write(moved(there, Move("ap_1", "executing", "done")))
        assert await desk.post(ONE, APPROVE) == first
        assert (await desk.get(ONE))[1]["state"] == "done"


async def test_concurrent_decisions_are_recorded_once() -> None:
    """Each is told the same, and it was decided once; of two who disagree one is told so (A3)."""
    async with opened(parked(), parked("run_2", approval_id="ap_2")) as desk:
        answers = await asyncio.gather(*(desk.post(ONE, APPROVE) for _ in range(100)))
        assert all(answer == answers[0] for answer in answers) and answers[0][0] == 200
        _, log = await desk.get("/context/audit?limit=200", key="root")
        assert len(log["data"]) == 1
        two = await asyncio.gather(*(desk.post("/context/approvals/ap_2", body) for body in (APPROVE, REJECT)))
        assert sorted(status for status, _ in two) == [200, 409]


async def test_late_decision_is_refused_and_runs_nothing() -> None:
    """After the expiry, after the run was cancelled, after a rejection: nothing runs (A6)."""
    async with opened(
        parked(), parked("run_2", approval_id="ap_2"), parked("run_3", approval_id="ap_3", expires_s=300.0)
    ) as desk:
        assert (await desk.post(ONE, {**REJECT, "reason": "no"}))[1]["comment"] == "no"
        assert (await desk.post("/context/runs/run_2/cancel"))[0] == 200
        desk.office.clock.now_s = 300.0
        desk.office.resumed.clear()
        assert code_of(await desk.post(ONE, APPROVE)) == (409, "decision_conflict")
        assert code_of(await desk.post("/context/approvals/ap_2", APPROVE)) == (409, "decision_conflict")
        assert code_of(await desk.post("/context/approvals/ap_3", APPROVE)) == (410, "approval_expired")
        assert desk.office.resumed == []


async def test_approval_past_its_deadline_is_shown_as_expired() -> None:
    """Without anybody having tried it."""
    async with opened() as desk:
        desk.office.clock.now_s = 1000.0
        assert (await desk.get(ONE))[1]["state"] == "expired"


async def test_edited_arguments_are_checked_by_the_gate_and_audited() -> None:
    """They are shown beside the model's, unless the gate refuses them."""
    async with opened() as desk:
        desk.office.judges.refuses = True
        edit = {**APPROVE, "arguments": {"command": "make test"}}
        assert code_of(await desk.post(ONE, edit)) == (422, "edit_refused")
        desk.office.judges.refuses = False
        _, view = await desk.post(ONE, edit)
        assert (view["arguments"], view["edited_arguments"]) == ({"command": "make"}, {"command": "make test"})
        _, log = await desk.get("/context/audit", key="root")
        assert log["data"][0]["sha256"] == call_sha256("execute_command", '{"command":"make test"}')


async def test_decision_with_a_full_store_returns_507_and_is_retryable() -> None:
    """And says so; afterwards all is well."""
    async with opened() as desk:
        desk.office.store.full = True
        assert code_of(await desk.post(ONE, APPROVE)) == (507, "store_full")
        assert desk.office.resumed == []
        desk.office.store.full = False
        assert (await desk.post(ONE, APPROVE))[0] == 200


async def test_batch_decides_only_listed_approvals_with_individual_results() -> None:
    """Also when one more call has come since; each is answered for itself, and the runs go on once (A12)."""
    async with opened(group("ap_1", "ap_2", "ap_3", "ap_4"), parked("run_2", approval_id="ap_5")) as desk:
        await desk.office.store.decide_approval(write("ap_4", approve=False))
        listed = [
            {"id": "ap_1", "sha256": "a" * 64},
            {"id": "ap_2", "sha256": "f" * 64},
            {"id": "ap_4"},
            {"id": "ap_5"},
            {"id": "ap_6"},
            {"id": "ap_1"},
        ]
        status, answer = await desk.post(BATCH, {**APPROVE, "approvals": listed})
        assert (status, answer["object"]) == (200, "list")
        assert [(one["id"], one["status"]) for one in answer["data"]] == [
            ("ap_1", 200),
            ("ap_2", 409),
            ("ap_4", 409),
            ("ap_5", 200),
            ("ap_6", 404),
            ("ap_1", 200),
        ]
        assert answer["data"][0]["approval"]["state"] == "approved"
        assert answer["data"][1]["error"]["code"] == "approval_stale"
        assert "approval" not in answer["data"][1] and "error" not in answer["data"][0]
        assert desk.office.resumed == ["run_1", "run_2"]
        _, waiting = await desk.get("/context/approvals?status=pending")
        assert [view["id"] for view in waiting["data"]] == ["ap_2", "ap_3"]


async def test_batch_decision_cannot_reach_another_tenants_approvals() -> None:
    """And a key that may not decide need not list any."""
    async with opened() as desk:
        body = {**APPROVE, "approvals": [{"id": "ap_1"}]}
        _, answer = await desk.post(BATCH, body, key="rival")
        assert [(one["status"], one["error"]["code"]) for one in answer["data"]] == [(404, "approval_not_found")]
        assert code_of(await desk.post(BATCH, body, key="agent")) == (403, "scope_missing")


async def waited(desk: Desktop, path: str) -> str:
    """The state that a long poll ends with."""
    async with asyncio.timeout(20):  # shorter than the wait that is asked for
        _, view = await desk.get(path)
    return str(view["state"])


async def test_approval_wait_returns_at_the_decision() -> None:
    """At once, not at the next look; another run's decision does not end it."""
    async with opened(parked(), parked("run_2", approval_id="ap_2")) as desk:
        waiting = asyncio.create_task(waited(desk, f"{ONE}?wait=30"))
        await until(lambda: bool(desk.office.approval_pages._waiting))
        await desk.post("/context/approvals/ap_2", APPROVE)
        await desk.post(ONE, REJECT)
        assert await waiting == "rejected"
        assert await waited(desk, f"{ONE}?wait=30") == "rejected"


async def test_approval_wait_returns_pending_at_its_timeout() -> None:
    """With what there is then; 0 is no wait."""
    async with opened() as desk:
        began = time.monotonic()
        assert await waited(desk, f"{ONE}?wait=0.05") == "pending"
        assert time.monotonic() - began >= 0.04
        assert await waited(desk, f"{ONE}?wait=0") == "pending"


async def test_approval_wait_returns_expired_at_the_expiry() -> None:
    """Nobody has to try it first."""
    async with opened(parked(expires_s=200.02)) as desk:
        waiting = asyncio.create_task(waited(desk, f"{ONE}?wait=30"))
        await until(lambda: bool(desk.office.approval_pages._waiting))
        desk.office.clock.now_s = 201.0
        assert await waiting == "expired"


async def test_pages_report_expired_approvals_as_expired() -> None:
    """No page has an expired one among the pending, though nothing else has ended it yet."""
    both = parked(expires_s=300.0), parked("run_2", approval_id="ap_2", expires_s=900.0)
    for path, shown in (
        ("/context/approvals", ["expired", "pending"]),
        ("/context/approvals?status=pending", ["pending"]),
        ("/context/approvals?status=pending&order=urgency", ["pending"]),
        ("/context/approvals?status=expired", ["expired"]),
    ):
        async with opened(*both) as desk:
            desk.office.clock.now_s = 300.0
            assert [view["state"] for view in (await desk.get(path))[1]["data"]] == shown
    async with opened(*both) as desk:
        desk.office.clock.now_s = 300.0
        summary = (await desk.get("/context/summary"))[1]
        assert (summary["pending"], summary["next_expires_at"]) == (1, 900.0)
    async with opened(*both) as desk:
        desk.office.clock.now_s = 300.0
        (approval,) = (await desk.get("/context/runs/run_1"))[1]["approvals"]
        assert approval["state"] == "expired"


async def test_waits_end_when_the_gateway_stops() -> None:
    """They are answered, and hold nothing up."""
    async with opened() as desk:
        waiting = asyncio.create_task(waited(desk, f"{ONE}?wait=30"))
        await until(lambda: bool(desk.office.approval_pages._waiting))
        await desk.office.approval_pages.close()
        assert await waiting == "pending"
        assert await waited(desk, f"{ONE}?wait=30") == "pending"
        await desk.office.approval_pages.close()


@pytest.mark.parametrize("path", [ONE, BATCH])
async def test_run_resumes_when_the_approver_disconnects_during_the_decision(path: str) -> None:
    """A browser is closed while the decision is stored: who looks next finds its run under way."""
    async with opened() as desk:
        desk.office.store.answers.clear()
        body = APPROVE if path == ONE else {**APPROVE, "approvals": [{"id": "ap_1"}]}
        asking = asyncio.create_task(desk.post(path, body))
        await desk.office.store.ruled.wait()
        asking.cancel()
        await until(lambda: not desk.lane.listener.connections)
        desk.office.store.answers.set()
        await until(lambda: desk.office.resumed == ["run_1"])


async def test_disconnected_client_stops_waiting_on_the_approval() -> None:
    """The page notices."""
    async with opened() as desk:
        waiting = asyncio.create_task(desk.get(f"{ONE}?wait=30"))
        await until(lambda: bool(desk.office.approval_pages._waiting))
        waiting.cancel()
        await until(lambda: not desk.office.approval_pages._waiting)


@pytest.mark.parametrize("path", ["/context/approvals", ONE, "/context/grants"])
async def test_head_answers_as_get_does(path: str) -> None:
    """The same head, and no body."""
    async with opened() as desk:
        lengths = []
        for method in ("GET", "HEAD"):
            async with desk.session.request(method, desk.url(path), headers={"X-Gateway-Key": "boss"}) as response:
                assert response.status == 200
                lengths.append(response.headers["Content-Length"])
        assert lengths[0] == lengths[1]


async def test_urgent_approvals_are_paginated_by_expiry() -> None:
    """The one that expires first, first."""
    urgent = (("a", 900.0), ("b", 300.0), ("c", 500.0))
    async with opened(*(parked(f"run_{n}", approval_id=n, expires_s=at) for n, at in urgent)) as desk:
        path = "/context/approvals?status=pending&order=urgency&limit=2"
        _, first = await desk.get(path)
        _, second = await desk.get(f"{path}&after={first['next']}")
        assert [view["id"] for view in (*first["data"], *second["data"])] == ["b", "c", "a"]
        assert second["next"] is None


class Showing(Source):
    """A tool that shows what its calls change."""

    async def preview(self, call: ToolCall) -> Preview | NoPreview:
        return Preview(before=None, after=call.arguments["command"], label="notes.txt")


async def test_single_approval_shows_the_parameters_of_its_tool() -> None:
    """As the tool in use has them; no list and no event has them."""
    async with opened() as desk:
        tool = spec("execute_command")
        desk.office.catalog = await load_catalog({"s": ConfiguredSource(Source(tool))})
        _, shown = await desk.get(ONE)
        assert shown["parameters"] == tool.parameters
        _, listed = await desk.get("/context/approvals")
        assert "parameters" not in listed["data"][0]
        assert "parameters" not in (await desk.post(ONE, APPROVE))[1]


async def test_preview_of_a_pending_approval_requires_decision_rights() -> None:
    """A key that may decide gets one, while the approval is pending; other keys get none."""
    async with opened() as desk:
        nothing = {"label": None, "before": None, "after": None}
        told = {"object": "approval.preview", "available": False, "reason": "The tool of this approval is not there."}
        assert await desk.get(f"{ONE}/preview") == (200, {**told, **nothing})
        desk.office.catalog = await load_catalog({"s": ConfiguredSource(Showing(spec("execute_command")))})
        shown = {"available": True, "reason": None, "label": "notes.txt", "before": None, "after": "make"}
        assert await desk.get(f"{ONE}/preview", key="console") == (200, {"object": "approval.preview", **shown})
        assert code_of(await desk.get(f"{ONE}/preview", key="agent")) == (403, "scope_missing")
        assert code_of(await desk.get(f"{ONE}/preview", key="rival")) == (404, "approval_not_found")
        assert code_of(await desk.get("/context/approvals/ap_9/preview")) == (404, "approval_not_found")
        await desk.post(ONE, REJECT)
        _, after = await desk.get(f"{ONE}/preview")
        assert not after["available"] and "rejected" in after["reason"]


async def test_pending_approvals_are_filtered_and_grouped() -> None:
    """By tool, caller, text, age and equal calls; groups say how many, and show the call that expires first."""
    other = parked("run_2", approval_id="ap_2", caller="bob", arguments='{"command":"rm"}', created_s=120.0)
    async with opened(parked(), other, parked("run_3", approval_id="ap_3", created_s=130.0)) as desk:

        async def found(query: str) -> list[str]:
            status, listed = await desk.get(f"/context/approvals?status=pending&{query}")
            assert status == 200, listed
            return [view["id"] for view in listed["data"]]

        assert await found("q=RM") == ["ap_2"]
        assert await found("caller=ann") == ["ap_1", "ap_3"]
        assert await found("tool=execute_command&since=110&until=125") == ["ap_2"]
        assert await found("equal_to=ap_3&order=newest") == ["ap_3", "ap_1"]
        assert await found("equal_to=ap_9") == []
        status, groups = await desk.get("/context/approvals/groups")
        assert status == 200
        assert [(one["count"], one["calls"], one["tool"], one["asked_by"]) for one in groups["data"]] == [
            (2, 1, "execute_command", None),
            (1, 1, "execute_command", None),
        ]
        assert groups["data"][0]["first"]["id"] == "ap_1" and groups["data"][0]["expires_at"] == 1000.0
        _, by_caller = await desk.get("/context/approvals/groups?by=caller&q=make")
        assert [(one["count"], one["tool"], one["asked_by"]) for one in by_caller["data"]] == [(2, None, "ann")]
        assert (await desk.get("/context/approvals/groups", key="rival"))[1]["data"] == []


async def test_approval_pages_are_cut_by_size_of_long_calls() -> None:
    """A page has a `next` then, and groups say that there are more; a call longer than all of that comes alone."""
    lengths = {"ap_1": 4_100_000, "ap_2": 2_500_000, "ap_3": 1_000, "ap_4": 2_600_000}
    waiting = []
    for number, (name, chars) in enumerate(lengths.items()):
        call = {"arguments": f'{{"command":"{"x" * chars}"}}', "created_s": float(number), "expires_s": 900.0 + number}
        waiting.append(parked(f"run_{name}", approval_id=name, **call))
    async with opened(*waiting) as desk:
        pages, query = [], ""
        while not pages or query:
            _, listed = await desk.get(f"/context/approvals?status=pending{query}")
            pages.append([view["id"] for view in listed["data"]])
            query = listed["next"] and f"&after={listed['next']}"
        assert pages == [["ap_1"], ["ap_2", "ap_3"], ["ap_4"]]
        _, groups = await desk.get("/context/approvals/groups")
        assert ([one["first"]["id"] for one in groups["data"]], groups["more"]) == (["ap_1"], True)
        _, groups = await desk.get("/context/approvals/groups?until=3&since=1")
        assert ([one["first"]["id"] for one in groups["data"]], groups["more"]) == (["ap_2", "ap_3"], False)
        _, groups = await desk.get("/context/approvals/groups?until=3&since=1&limit=1")
        assert ([one["first"]["id"] for one in groups["data"]], groups["more"]) == (["ap_2"], True)


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("?q=make", "q"),
        ("?status=done&tool=look", "tool"),
        ("?status=pending&q=" + "x" * 201, "q"),
        ("?status=pending&since=monday", "since"),
        ("/groups?by=age", "by"),
        ("/groups?status=done", "status"),
    ],
)
async def test_invalid_approval_filter_is_refused_naming_the_parameter(path: str, param: str) -> None:
    """Of decided ones there are too many to look at each; a query that is not valid is refused by name."""
    async with opened(parked()) as desk:
        status, answer = await desk.get(f"/context/approvals{path}")
        assert (status, answer["error"]["param"]) == (400, param)


async def test_approvals_accept_assignment_and_notes_and_filter_by_assignee() -> None:
    """By a name or `me`, taken back by null; notes keep their order. Lists are narrowed by it."""
    async with opened(parked()) as desk:
        for to, found in (("zoe", "zoe"), (None, None), ("me", "bob")):
            status, approval = await desk.post(f"{ONE}/assign", {"to": to})
            assert (status, approval["assigned_to"], approval["state"]) == (200, found, "pending")
        for text in ("first", "second"):
            status, approval = await desk.post(f"{ONE}/notes", {"text": text})
        assert [(note["by"], note["via"], note["at"], note["text"]) for note in approval["notes"]] == [
            ("bob", "rest", NOW_S, "first"),
            ("bob", "rest", NOW_S, "second"),
        ]
        for who, count in (("me", 1), ("bob", 1), ("zoe", 0)):
            _, listed = await desk.get(f"/context/approvals?status=pending&assigned={who}")
            assert len(listed["data"]) == count
        for place, body, param in (
            ("assign", {"to": ""}, "to"),
            ("notes", {"text": "x" * 501}, "text"),
            ("notes", {}, "text"),
        ):
            status, answer = await desk.post(f"{ONE}/{place}", body)
            assert (status, answer["error"]["param"]) == (400, param)
        for key, status in (("agent", 403), ("rival", 404)):
            assert (await desk.post(f"{ONE}/notes", {"text": "x"}, key=key))[0] == status
        for _ in range(NOTES_MOST - 2):
            await desk.post(f"{ONE}/notes", {"text": "x"})
        assert (await desk.post(f"{ONE}/notes", {"text": "one too many"}))[0] == 400
        await desk.post(ONE, APPROVE)
        assert (await desk.post(f"{ONE}/notes", {"text": "late"}))[0] == 409
