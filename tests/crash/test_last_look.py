"""Real processes between a decision and its call: signals, reloads, restarts, zombies."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from e2e.asking import born, ranch
from gateways import until, until_read

from tests.support.gateway_process import GATEWAY, GatewayProcess

from .disk import Disk
from .effects import ASKS, Json, effects, settings, stored
from .looking import RECOVERS_S, approved, asked, dog, line, page, pending, run_ids, until_state
from .talk import CHAT, Stream, approval_asked, asking, post, session_with

#: From the effect to the end of a call that is frozen meanwhile, for longer than this: a worker's lease.
ENDS_S = 5.0


def rewrite(gateway: GatewayProcess, **sections: object) -> None:
    """Other sections in the file that the next start, or a reload, reads."""
    file = gateway.folder / "gateway.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **sections}))


async def reload(gateway: GatewayProcess) -> None:
    before = gateway.read_stderr().count("configuration reloaded")
    gateway.signal(signal.SIGHUP)
    await until(lambda: gateway.read_stderr().count("configuration reloaded") > before, timeout_s=RECOVERS_S)


def denying(config: Json, tool: str = "ledger") -> Json:
    return {**config["risk"], "rules": {tool: "deny"}}


# SIGTERM.


@pytest.mark.parametrize("held", [False, True])
async def test_approved_call_runs_once_after_an_immediate_sigterm(tmp_path: Path, *, held: bool) -> None:
    """The decision was accepted: its call runs once, in this process or in the next one, and its run ends well."""
    async with GatewayProcess(json.dumps(settings(tmp_path, limits={"drain": "1s"}))) as gateway:
        async with session_with(gateway) as session:
            stream = await Stream.ask(session, line("r")) if held else None
            approval_id = await (approval_asked(session, line("r")) if stream is None else stream.until_asked())
            status, view = await post(session, f"/context/approvals/{approval_id}", {"decision": "approve"})
            gateway.signal(signal.SIGTERM)
            assert (status, view["state"]) == (200, "approved")
            assert await gateway.wait() == 0
        await gateway.start()
        await until_state(tmp_path, "r", "completed")
        (run,) = stored(tmp_path / "gateway.db", "r")
        assert run.approvals == {approval_id: "done"}
    assert [effect.n for effect in effects(tmp_path)] == [ASKS]


# Deny between a decision and its call.


async def test_reload_denies_an_approved_call_queued_behind_another(tmp_path: Path) -> None:
    """Two calls, the second one approved first: it waits for the first, is denied meanwhile, and does not run."""
    config = settings(tmp_path)
    config["tools"] |= ranch(tmp_path)
    async with GatewayProcess(json.dumps(config)) as gateway:
        ids = await asked(gateway, f"{dog('Di')} {line('r')}")
        assert (await approved(gateway, ids["ledger"]))[0] == 200
        rewrite(gateway, risk=denying(config))
        await reload(gateway)
        assert (await approved(gateway, ids["execute_sql"]))[0] == 200
        await until_state(tmp_path, "r", "completed")
        view = await page(gateway, f"/context/runs/{run_ids(tmp_path, 'r')}")
        (sql, ledger) = view["steps"]
        assert (sql["state"], ledger["state"]) == ("finished", "refused") and "policy" in ledger["result"]
        assert {one["id"]: one["state"] for one in view["approvals"]} == {
            ids["execute_sql"]: "done",
            ids["ledger"]: "cancelled",
        }
    assert effects(tmp_path) == [] and born(tmp_path) == ["Di"]


async def test_reload_denies_an_approved_call_before_its_start_is_stored(tmp_path: Path) -> None:
    """One call, approved; the reload comes while its line `started` is on its way to a slow disk."""
    config, disk = settings(tmp_path), Disk(tmp_path / "gateway.db", tmp_path)
    async with GatewayProcess(json.dumps(config), env=disk.env) as gateway:
        async with session_with(gateway) as session:
            approval_id = await approval_asked(session, line("r"))
        disk.slow(3000)
        assert (await approved(gateway, approval_id))[0] == 200
        rewrite(gateway, risk=denying(config))
        await reload(gateway)
        assert effects(tmp_path) == [], "its start is not on record yet"
        disk.heal()
        await until_state(tmp_path, "r", "completed")
        view = await page(gateway, f"/context/runs/{run_ids(tmp_path, 'r')}")
        assert [step["state"] for step in view["steps"]] == ["refused"]
        assert [one["state"] for one in view["approvals"]] == ["cancelled"]
    assert effects(tmp_path) == []


@pytest.mark.parametrize("stop", [pytest.param(signal.SIGTERM, marks=pytest.mark.crash), signal.SIGKILL])
async def test_restart_with_denying_policy_cancels_an_approved_call(tmp_path: Path, stop: signal.Signals) -> None:
    """Approved behind a call that still waits; the next process starts with a rule that denies the tool."""
    config = settings(tmp_path)
    config["tools"] |= ranch(tmp_path)
    async with GatewayProcess(json.dumps(config)) as gateway:
        ids = await asked(gateway, f"{dog('Di')} {line('r')}")
        assert (await approved(gateway, ids["ledger"]))[0] == 200
        gateway.signal(stop)
        await gateway.wait()
        rewrite(gateway, risk=denying(config))
        await gateway.start()
        assert (await approved(gateway, ids["execute_sql"]))[0] == 200
        await until_state(tmp_path, "r", "completed")
        again, answer = await approved(gateway, ids["ledger"])
        assert (again, answer["error"]["code"]) == (409, "decision_conflict"), "what does not run is not approved"
    assert effects(tmp_path) == [] and born(tmp_path) == ["Di"]


async def test_raised_risk_level_survives_a_restart(tmp_path: Path) -> None:
    """An everyday call that the model itself called high in risk: it waits for an approval of its own."""
    config = settings(tmp_path)
    config["tools"] |= ranch(tmp_path)
    async with GatewayProcess(json.dumps(config)) as gateway:
        ids = await asked(gateway, f"risk_level high {dog('Di')} {line('r', n=1)}")
        await gateway.kill()
        await gateway.start()
        assert (await approved(gateway, ids["execute_sql"]))[0] == 200
        (left,) = await pending(gateway)
        assert (left["id"], left["basis"]) == (ids["ledger"], "llm") and effects(tmp_path) == []
        assert (await approved(gateway, ids["ledger"]))[0] == 200
        await until_state(tmp_path, "r", "completed")
    assert [effect.n for effect in effects(tmp_path)] == [1] and born(tmp_path) == ["Di"]


# Zombies.


async def test_frozen_worker_records_its_late_outcome_without_repeating_the_effect(tmp_path: Path) -> None:
    """Frozen behind its effect for longer than its lease: the other one asks a person; the zombie adds what it saw."""
    config = settings(tmp_path)
    config["tools"]["ledger"]["with"]["after_s"] = ENDS_S
    async with GatewayProcess(json.dumps(config)) as owner, GatewayProcess(json.dumps(config)) as other:
        async with session_with(owner) as session:
            approval_id = await approval_asked(session, line("r"))
        assert (await approved(owner, approval_id))[0] == 200
        await until(lambda: effects(tmp_path))
        os.kill(owner.pid, signal.SIGSTOP)
        await until_state(tmp_path, "r", "unknown")
        run_id = run_ids(tmp_path, "r")
        async with session_with(other) as session:
            status, _ = await post(session, f"/context/runs/{run_id}/resume", {"step": 0, "as": "done"})
        assert status == 200
        await until_state(tmp_path, "r", "completed")
        os.kill(owner.pid, signal.SIGCONT)
        await until(lambda: "was lost" in owner.read_stderr(), timeout_s=RECOVERS_S)
        step = await told_late(other, run_id)
        assert step["state"] == "finished" and "had lost the run" in step["late"]
    assert [effect.n for effect in effects(tmp_path)] == [ASKS]


@pytest.mark.crash
async def test_frozen_process_runs_no_call_after_its_run_is_taken_over(tmp_path: Path) -> None:
    """Frozen in a held stream: the other process takes the run, the call is approved there and runs there, once."""
    config = settings(tmp_path)
    async with (
        GatewayProcess(json.dumps(config)) as owner,
        GatewayProcess(json.dumps(config)) as other,
        session_with(owner) as session,
    ):
        stream = await Stream.ask(session, line("r"))
        approval_id = await stream.until_asked()
        os.kill(owner.pid, signal.SIGSTOP)
        await until_state(tmp_path, "r", "awaiting_approval")
        assert (await approved(other, approval_id))[0] == 200
        await until_state(tmp_path, "r", "completed")
        os.kill(owner.pid, signal.SIGCONT)
        async with asyncio.timeout(RECOVERS_S):  # it notices by its lease, or by the line that it may not write
            assert b"run_cancelled" in await stream.response.read()
    assert [effect.n for effect in effects(tmp_path)] == [ASKS]


async def told_late(gateway: GatewayProcess, run_id: str) -> Json:
    """The only step of a run, once a process that had lost it has added what it saw: behind its line in the log."""
    path = f"/context/runs/{run_id}"
    run = await until_read(lambda: page(gateway, path), lambda run: run["steps"][0]["late"] is not None)
    step: Json
    (step,) = run["steps"]
    return step


# What clients do meanwhile.


async def test_idempotency_key_returns_the_same_answer_after_approval(tmp_path: Path) -> None:
    """It brings the answer of the run that it began, not another question, also after a restart; one effect."""
    key = {"Idempotency-Key": "k-1"}
    async with GatewayProcess(json.dumps(settings(tmp_path))) as gateway:
        async with session_with(gateway) as session:
            async with session.post(CHAT, json=asking(line("r")), headers=key) as response:
                (approval,) = (await response.json())["context"]["approvals"]
            assert (await approved(gateway, approval["id"]))[0] == 200
            await until_state(tmp_path, "r", "completed")
            async with session.post(CHAT, json=asking(line("r")), headers=key) as response:
                again = await response.json()
        assert "context" not in again or "approvals" not in again["context"], again
        text = again["choices"][0]["message"]["content"]
        assert f"wrote {ASKS}" in text and "approve ap_" not in text
        await gateway.kill()
        await gateway.start()
        async with session_with(gateway) as session:
            async with session.post(CHAT, json=asking(line("r")), headers=key) as response:
                assert (await response.json())["choices"][0]["message"]["content"] == text
            assert len((await page(gateway, "/context/runs"))["data"]) == 1
    assert [effect.n for effect in effects(tmp_path)] == [ASKS]


async def test_approvals_show_prints_the_whole_call(tmp_path: Path) -> None:
    """`gateway approvals show`: as long as it is, to its last character."""
    names = ", ".join(f"'dog {n}'" for n in range(2000))
    sql = f"DELETE FROM pets WHERE name IN ({names}) OR name = 'the last one'"
    assert len(sql) > 20_000
    config = settings(tmp_path)
    config["tools"] |= ranch(tmp_path)
    async with GatewayProcess(json.dumps(config)) as gateway:
        ids = await asked(gateway, f"tool execute_sql {json.dumps({'sql': sql})}")
        command = ("approvals", "show", ids["execute_sql"], "--url", gateway.base_url)
        shown = await asyncio.create_subprocess_exec(*GATEWAY, *command, stdout=asyncio.subprocess.PIPE)
        text, _ = await shown.communicate()
    assert shown.returncode == 0 and sql in text.decode()
