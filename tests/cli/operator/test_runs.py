"""`gateway runs`: what a run did, and a person's word on how it goes on."""

import json

import pytest
from api.approval_pages import opened
from cli_cases import remote, told

from gateway.cli.operator.remote import RemoteError
from gateway.cli.operator.runs import cancel_run, list_runs, resume_run, show_run
from gateway.contracts.api_bounds import LIMIT_MOST
from tests.plugins.stores.records import approval, new, parked, run, step

LOST = new(
    run(state="unknown", effects=True),
    steps=(step(0, state="finished", result="ok\n"), step(1, state="unknown", started_s=150.0, approval_id="ap_1")),
    approvals=(approval(state="unknown"),),
)


async def test_runs_are_listed() -> None:
    """Newest first, with what they wait for."""
    async with opened(parked(), new(run("run_2", created_s=110.0, conversation="c9"))) as desk:
        assert await told(lambda: list_runs(remote(desk), state=None, conversation=None, most=200, as_json=False)) == [
            "run_2  running  chat of ann, began 1970-01-01 00:01:50 UTC, waits for no decision",
            "run_1  awaiting_approval  chat of ann, began 1970-01-01 00:01:40 UTC, waits for 1 approval",
        ]
        for narrowed, found in (
            ({"state": "running", "conversation": None}, ["run_2"]),
            ({"state": None, "conversation": "c9"}, ["run_2"]),
            ({"state": "failed", "conversation": None}, []),
        ):
            lines = await told(lambda narrowed=narrowed: list_runs(remote(desk), **narrowed, most=200, as_json=True))
            assert [json.loads(line)["id"] for line in lines] == found
        assert await told(
            lambda: list_runs(remote(desk), state="failed", conversation=None, most=200, as_json=False)
        ) == ["none"]


@pytest.mark.parametrize("most", [LIMIT_MOST - 1, LIMIT_MOST, LIMIT_MOST + 1])
async def test_runs_list_reports_when_the_limit_truncates_it(most: int) -> None:
    """There may be more than are asked for, of which a gateway sends so many at once."""
    async with opened(*(new(run(f"r{i}", state="failed")) for i in range(LIMIT_MOST + 2))) as desk:
        lines = await told(lambda: list_runs(remote(desk), state="failed", conversation=None, most=most, as_json=False))
        assert (len(lines), lines[-1]) == (most + 1, f"... the newest {most}; --limit shows more")


async def test_runs_show_prints_each_call() -> None:
    """And what a person has to say about a call of which nobody knows."""
    async with opened(LOST) as desk:
        lines = await told(lambda: show_run(remote(desk), "run_1", as_json=False))
        assert lines[0] == "run_1  unknown"
        assert lines[lines.index("") :] == [
            "",
            "step 0  finished  confirm (default)",
            "  execute_command",
            '    command: "make"',
            "  because: [unknown_command]",
            "  result: ok\\n",
            "",
            "step 1  unknown  confirm (default), approval ap_1",
            "  execute_command",
            '    command: "make"',
            "  because: [unknown_command]",
            "  to continue, state its outcome:",
            "  gateway runs resume run_1 --step 1 --as done|retry|failed",
        ]
        (line,) = await told(lambda: show_run(remote(desk), "run_1", as_json=True))
        assert json.loads(line)["steps"][0]["result"] == "ok\n"


async def test_resume_records_the_reported_outcome_of_a_lost_call() -> None:
    """It is written down with who said so, and the run goes on."""
    async with opened(LOST) as desk:
        with pytest.raises(RemoteError, match="answered 409: step: Step 0 is finished"):
            await told(lambda: resume_run(remote(desk), "run_1", step=0, outcome="done", result=None))
        lines = await told(lambda: resume_run(remote(desk), "run_1", step=1, outcome="done", result="built"))
        assert lines == ["run_1  running"]
        assert desk.office.resumed == ["run_1"]
        (_, after) = (await desk.get("/context/runs/run_1"))[1]["steps"]
        assert (after["state"], after["result"]) == ("finished", "built")


async def test_cancel_ends_a_run() -> None:
    """Again it is the same; a run that has ended otherwise is not cancelled."""
    async with opened(parked(), new(run("run_2", state="completed"))) as desk:
        for _ in range(2):
            assert await told(lambda: cancel_run(remote(desk), "run_1")) == ["run_1  cancelled"]
        with pytest.raises(RemoteError, match="answered 409: This run is completed already"):
            await told(lambda: cancel_run(remote(desk), "run_2"))
        assert (await desk.get("/context/approvals/ap_1"))[1]["state"] == "cancelled"
