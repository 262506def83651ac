"""`gateway approvals`, `gateway runs` and `gateway audit` as they are typed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from api.approval_pages import Desktop, opened
from api.mcp_pages import ServedMcp, moored
from api.workflow_pages import Counter, bureau
from unanswered_ports import refusing_port

from gateway.cli.main import main
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import approval, audit_line, new, parked, run, step

HASH = "a" * 64
Said: TypeAlias = tuple[int, str, str]
Says: TypeAlias = Callable[..., Awaitable[Said]]
LOST = new(
    run("run_2", state="unknown"),
    steps=(step(3, run_id="run_2", state="unknown", approval_id="ap_2"),),
    approvals=(approval("ap_2", run_id="run_2", step=3, state="unknown"),),
)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Says:
    """(exit code, standard output, standard error) of a command, typed where there is no gateway.yaml."""
    monkeypatch.chdir(tmp_path)

    async def says(*argv: str, desk: Desktop | Counter | ServedMcp | None = None, key: str = "boss") -> Said:
        monkeypatch.setenv("GATEWAY_API_KEY", key)
        url = () if desk is None else ("--url", f"http://127.0.0.1:{desk.lane.port}")
        try:
            code = await asyncio.to_thread(main, [*argv, *url])
        except SystemExit as end:
            code = int(str(end.code))
        return code, *capsys.readouterr()

    return says


async def test_remembered_grant_is_listed_and_revoked_by_commands(said: Says) -> None:
    """Approved for a conversation, listed, taken back; then the list is empty."""
    async with opened() as desk:
        await said("approvals", "approve", "ap_1", "--remember", "conversation", desk=desk)
        code, out, err = await said("approvals", "grants", "--json", desk=desk)
        assert (code, err) == (0, "")
        grant_id = json.loads(out)["id"]
        assert await said("approvals", "revoke", grant_id, desk=desk) == (0, f"{grant_id}  revoked\n", "")
        assert await said("approvals", "grants", desk=desk) == (0, "none\n", "")
        assert await said("approvals", "asks", desk=desk) == (0, "none\n", "")
        code, out, err = await said("approvals", "revoke", grant_id, desk=desk)
        assert (code, out) == (1, "") and "no grant with this id" in err


async def test_approval_is_listed_shown_and_approved_by_commands(said: Says) -> None:
    """What is pending is listed, shown, approved; then nothing is pending any more."""
    async with opened() as desk:
        code, out, err = await said("approvals", "list", desk=desk)
        assert (code, err) == (0, "") and out.startswith("ap_1  pending")
        code, out, _ = await said("approvals", "show", "ap_1", desk=desk)
        assert code == 0 and f"gateway approvals approve ap_1 --sha256 {HASH}\n" in out
        code, out, err = await said("approvals", "approve", "ap_1", "--sha256", HASH.upper(), desk=desk)
        assert (code, out, err) == (0, 'ap_1  approved  execute_command {"command":"make"}\n', "")
        assert await said("approvals", "list", desk=desk) == (0, "none\n", "")
        code, out, _ = await said("approvals", "list", "--status", "all", "--json", desk=desk)
        assert code == 0 and json.loads(out)["state"] == "approved"


async def test_approve_command_accepts_edited_arguments_from_a_file(said: Says) -> None:
    """Or as they are typed."""
    Path("arguments.json").write_text('{"command": "make -n"}')
    async with opened(parked(), parked("run_2", approval_id="ap_2")) as desk:
        for approval_id, given in (("ap_1", "@arguments.json"), ("ap_2", '{"command": "make -n"}')):
            code, out, err = await said("approvals", "approve", approval_id, "--arguments", given, desk=desk)
            assert (code, out, err) == (0, f'{approval_id}  approved  execute_command {{"command":"make -n"}}\n', "")


async def test_approvals_commands_decide_several_and_report_failures(said: Says) -> None:
    """And approved in one go; who is left is told on standard error."""
    changes = [parked(f"run_{i}", approval_id=f"ap_{i}") for i in (1, 2, 3, 4)]
    async with opened(*changes) as desk:
        code, out, err = await said("approvals", "reject", "ap_1", "ap_2", "--reason", "no", desk=desk)
        assert (code, out.count("rejected"), err) == (0, 2, "")
        assert (await desk.get("/context/approvals/ap_2"))[1]["comment"] == "no"
        code, out, err = await said("approvals", "approve", "ap_3", "ap_1", "ap_4", desk=desk)
        assert (code, out.count("approved"), err) == (
            1,
            2,
            "gateway: ap_1: This approval was rejected by 'bob' already.\n",
        )


async def test_runs_commands_list_resume_and_cancel_runs(said: Says) -> None:
    """One is told what became of its call, the other is cancelled."""
    async with opened(parked(), LOST) as desk:
        code, out, _ = await said("runs", "list", "--state", "unknown", desk=desk)
        assert code == 0 and out.startswith("run_2  unknown") and out.count("\n") == 1
        code, out, _ = await said("runs", "show", "run_2", desk=desk)
        assert code == 0 and "  gateway runs resume run_2 --step 3 --as done|retry|failed\n" in out
        argv = ("runs", "resume", "run_2", "--step", "3", "--as", "done", "--result", "built")
        assert await said(*argv, desk=desk) == (0, "run_2  running\n", "")
        assert await said("runs", "cancel", "run_1", desk=desk) == (0, "run_1  cancelled\n", "")
        code, out, err = await said(*argv, desk=desk)
        assert (code, out) == (1, "") and "run_not" not in err and "only a run in the state 'unknown'" in err


async def test_mcp_commands_add_control_and_remove_a_service(said: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is read from the environment of the command, so that nobody sees it on its command line."""
    monkeypatch.setenv("TOKEN", "sk-canary-12345")
    Path("more.json").write_text('{"start_timeout": "5s"}')
    async with moored() as harbour:
        mcp = partial(said, "mcp", desk=harbour, key="root")
        argv = ("add", "time", "--command", "uvx 'mcp server'", "--env", "TOKEN", "--env", "A=b=c", "--keyword", "几点")
        code, out, err = await mcp(*argv, "--description", "Clocks.", "--timeout", "5s", "--settings", "more.json")
        assert (code, out, err) == (0, "time  running  registered, stdio, 1 tool\n", "")
        options = harbour.service().options
        assert options["env"] == {"TOKEN": "sk-canary-12345", "A": "b=c"}
        assert (options["command"], options["args"]) == ("uvx", ["mcp server"])
        assert (options["timeout"], options["start_timeout"], options["trigger_keywords"]) == (5.0, 5.0, ["几点"])
        code, out, _ = await mcp("add", "docs", "--server-url", "https://mcp.example/x", "--header", "X-Key=v")
        assert code == 0 and harbour.service("docs").options["headers"] == {"X-Key": "v"}
        for argv, told in (
            (("stop", "time"), "time  stopped"),
            (("start", "time"), "time  running"),
            (("restart", "time"), "time  running"),
            (("tools", "time"), "look  "),
            (("accept", "time", "look"), "look  "),
            (("list",), "docs  running"),
            (("remove", "time"), "time  removed"),
        ):
            code, out, err = await mcp(*argv)
            assert (code, err) == (0, "") and out.startswith(told)
        code, out, err = await mcp("stop", "time")
        assert (code, out) == (1, "") and "answered 404: The gateway has no service of this name" in err


async def test_refused_command_exits_1_with_one_error_line(said: Says) -> None:
    """By the gateway, or because there is none."""
    async with opened() as desk:
        for argv, key, reason in (
            (("approvals", "approve", "ap_9"), "boss", "answered 404: There is no such approval"),
            (("approvals", "approve", "ap_1"), "agent", "answered 403: Your key may not decide"),
            (("approvals", "list"), "", "answered 401"),
            (("runs", "show", "run_9"), "boss", "answered 404: There is no such run"),
        ):
            code, out, err = await said(*argv, desk=desk, key=key)
            assert (code, out, err.count("\n")) == (1, "", 1) and reason in err and err.startswith("gateway: ")
    with refusing_port() as port:
        code, out, err = await said("approvals", "list", "--url", f"127.0.0.1:{port}")
        assert (code, out) == (1, "") and f"127.0.0.1:{port} does not answer" in err
        Path("gateway.yaml").write_text(f"listen: 127.0.0.1:{port}\n")
        code, out, err = await said("runs", "list")
        assert (code, out) == (1, "") and f"127.0.0.1:{port} does not answer" in err


async def test_workflows_commands_list_show_and_run_workflows(said: Says) -> None:
    """Parameters as they are typed, and from a file; a run that nobody waits for, and one that waits for a person."""
    Path("more.json").write_text('{"language": "German", "text": "x"}')
    async with bureau() as counter:
        code, out, err = await said("workflows", "list", desk=counter)
        assert (code, err) == (0, "") and "writing\n  translate  Translates a text.\n" in out
        code, out, _ = await said("workflows", "show", "translate", "--json", desk=counter)
        assert code == 0 and json.loads(out)["steps"] == [{"name": "said", "kind": "model"}]
        argv = ("workflows", "run", "translate", "text=Hi = there", "times=2", "--json", "more.json")
        assert await said(*argv, desk=counter) == (0, "[Into German: Hi = there]\n", "")
        code, out, _ = await said("workflows", "run", "translate", "text=sleep", "--async", desk=counter)
        assert (code, out) == (0, "run_2  running\n")
        code, out, _ = await said("workflows", "run", "deploy", "--conversation", "c1", desk=counter)
        assert code == 0 and out.startswith("run_3  awaiting_approval\n")
        assert counter.bureau.wanted[-1].conversation == "c1"
        code, out, err = await said("workflows", "run", "translate", "times=2", desk=counter)
        assert (code, out, err.count("\n")) == (1, "", 1) and "'text': it is required" in err


@pytest.mark.parametrize(
    "argv",
    [
        "workflows",
        "workflows run",
        "workflows run w text",
        "workflows run w =x",
        "workflows run w a=1 a=2",
        "workflows run w --json missing.json",
        "workflows show",
        "approvals",
        "approvals approve",
        "approvals list --status open",
        "approvals show ap_1 ap_2",
        "approvals approve ap_1 --sha256 abc",
        "approvals approve ap_1 --remember ever",
        "approvals approve ap_1 --arguments [1]",
        "approvals approve ap_1 --arguments {",
        'approvals approve ap_1 --arguments {"a":1,"a":2}',
        "approvals approve ap_1 --arguments @missing.json",
        f"approvals approve ap_1 ap_2 --sha256 {HASH}",
        "approvals approve ap_1 ap_2 --remember run",
        "approvals approve ap_1 ap_2 --arguments {}",
        "runs resume run_1 --step 1",
        "runs resume run_1 --as done",
        "runs resume run_1 --step one --as done",
        "runs resume run_1 --step 1 --as finished",
        "runs list --state lost",
        "mcp",
        "mcp add",
        "mcp add x --command a --server-url http://b",
        "mcp add x --command '",
        "mcp add x --env NOT_SET_HERE",
        "mcp add x --settings missing.json",
        "mcp accept",
        "audit",
        f"audit verify --expect {HASH}",
        "audit verify --at 1",
        "audit verify --expect abc --at 1",
        "audit list --after x",
    ],
)
async def test_wrong_usage_is_exit_code_2(said: Says, argv: str) -> None:
    """With the usage on standard error; nobody is asked."""
    code, out, err = await said(*argv.split(" "))
    assert (code, out) == (2, "") and err.startswith("usage: gateway")


async def test_audit_commands_read_the_configured_store(said: Says, tmp_path: Path) -> None:
    """It is checked and listed without a gateway; a break is exit code 1."""
    Path("gateway.yaml").write_text("store: sqlite:///kept.db\n")
    code, out, err = await said("audit", "verify")
    assert (code, out) == (1, "") and "there is no store" in err
    store = SqliteStore(str(tmp_path / "kept.db"))
    await store.open()
    await store.write(new(run(), audit=(audit_line(), audit_line("finished"))))
    code, out, err = await said("audit", "verify")
    assert (code, err) == (0, "") and out.startswith("2 lines, none of them changed or missing\n")
    noted = out.splitlines()[-1].partition("gateway ")[2].split()
    assert (await said(*noted))[0] == 0
    code, out, err = await said("audit", "verify", "--expect", HASH, "--at", "2")
    assert (code, out, err.count("\n")) == (1, "", 1) and "the log was written anew" in err
    code, out, _ = await said("audit", "list", "--after", "1", "--json")
    assert code == 0 and (json.loads(out)["seq"], json.loads(out)["event"]) == (2, "finished")
    code, out, _ = await said("audit", "list")
    assert code == 0 and out.count("\n") == 2
    await store.close()


@pytest.mark.parametrize("argv", [("approvals", "approve", "a", "b", "--sha256", HASH), ("memories", "delete")])
async def test_wrong_usage_is_reported_before_a_broken_configuration(argv: tuple[str, ...], said: Says) -> None:
    """Exit code 2, whatever the file holds."""
    Path("gateway.yaml").write_text("lisen: 127.0.0.1:1\n")
    code, out, err = await said(*argv)
    assert (code, out) == (2, "") and err.startswith("usage: gateway") and "lisen" not in err
