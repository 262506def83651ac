"""Real processes between a decision and its call: signals, reloads, restarts with another configuration, zombies."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from e2e.asking import born, ranch
from running import until

from gateway.testing.run import GATEWAY, GatewayProcess

from .disk import Disk
from .effects import ASKS, Json, effects, settings, stored
from .talk import CHAT, Stream, approval_asked, asking, post, session_with

#: A run whose worker froze is another one's within 7 s.
RECOVERS_S = 30.0
#: From the effect to the end of a call that is frozen meanwhile, for longer than this: a worker's lease.
ENDS_S = 5.0


def line(run: str, n: int = ASKS) -> str:
    return f'tool ledger {{"run": "{run}", "n": {n}}}'


def dog(name: str) -> str:
    sql = f"INSERT INTO pets VALUES ('{name}', 4)"
    return f"tool execute_sql {json.dumps({'sql': sql})}"


def state_of(folder: Path, run: str) -> str:
    found = stored(folder / "gateway.db", run)
    return found[0].state if found else "absent"


async def until_state(folder: Path, run: str, *states: str) -> None:
    await until(lambda: state_of(folder, run) in states, timeout_s=RECOVERS_S)


def run_ids(folder: Path, run: str) -> str:
    (found,) = stored(folder / "gateway.db", run)
    return found.run_id


async def approved(gateway: GatewayProcess, approval_id: str, **more: object) -> tuple[int, Json]:
    async with session_with(gateway) as session:
        return await post(session, f"/context/approvals/{approval_id}", {"decision": "approve", **more})


async def page(gateway: GatewayProcess, path: str) -> Json:
    async with session_with(gateway) as session, session.get(path) as response:
        found: Json = await response.json()
        return found


async def pending(gateway: GatewayProcess) -> list[Json]:
    """Oldest first."""
    listed: list[Json] = (await page(gateway, "/context/approvals?status=pending"))["data"]
    return listed


async def asked(gateway: GatewayProcess, text: str) -> dict[str, str]:
    """The ids of what one request asks for, by tool."""
    async with session_with(gateway) as session:
        status, answer = await post(session, CHAT, asking(text))
    assert status == 200, answer
    return {one["tool"]: one["id"] for one in answer["context"]["approvals"]}


def rewrite(gateway: GatewayProcess, **sections: object) -> None:
    """Other sections in the file that the next start, or a reload, reads."""
    file = gateway.folder / "gateway.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **sections}))


async def reload(gateway: GatewayProcess) -> None:
    before = gateway.stderr_text().count("configuration reloaded")
    gateway.signal(signal.SIGHUP)
    await until(lambda: gateway.stderr_text().count("configuration reloaded") > before, timeout_s=RECOVERS_S)


def denying(config: Json, tool: str = "ledger") -> Json:
    return {**config["risk"], "rules": {tool: "deny"}}


# SIGTERM.


@pytest.mark.parametrize("held", [False, True])
async def test_sigterm_right_behind_an_approval(tmp_path: Path, *, held: bool) -> None:
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


async def test_a_reload_denies_what_was_approved_behind_another_call(tmp_path: Path) -> None:
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


async def test_a_reload_denies_a_call_whose_start_is_being_written(tmp_path: Path) -> None:
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
async def test_a_restart_denies_what_was_approved(tmp_path: Path, stop: signal.Signals) -> None:
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


async def test_what_was_raised_stays_raised_after_a_restart(tmp_path: Path) -> None:
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


async def test_a_zombie_in_a_call_is_told_and_repeats_nothing(tmp_path: Path) -> None:
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
        await until(lambda: "was lost" in owner.stderr_text(), timeout_s=RECOVERS_S)
        step = await told_late(other, run_id)
        assert step["state"] == "finished" and "had lost the run" in step["late"]
    assert [effect.n for effect in effects(tmp_path)] == [ASKS]


@pytest.mark.crash
async def test_a_zombie_that_waited_for_a_person_runs_nothing(tmp_path: Path) -> None:
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
        await until(lambda: "is not this worker's any more" in owner.stderr_text(), timeout_s=RECOVERS_S)
        stream.response.close()
    assert [effect.n for effect in effects(tmp_path)] == [ASKS]


# Definitions.


def lines_of(folder: Path) -> list[int]:
    """The numbers of the lines that the MCP server wrote."""
    file = folder / "ledger.jsonl"
    lines = map(json.loads, file.read_bytes().splitlines() if file.exists() else [])
    return [line["n"] for line in lines if line["run"]]


async def until_changed(gateway: GatewayProcess) -> None:
    async with asyncio.timeout(RECOVERS_S):
        while '"changed": true' not in json.dumps(await page(gateway, "/mcp/services/lines/tools")):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("held", [False, True])
async def test_a_definition_that_changes_behind_a_decision_asks_anew(tmp_path: Path, *, held: bool) -> None:
    """Two calls approved; during the first the server describes its tool otherwise. The second does not run: its
    approval is cancelled, a new one is pending, the run waits, its client reads the new question; then it runs once.
    """
    (tmp_path / "title").write_text("Writes a line.")
    server = [str(Path(__file__).with_name("lines.py")), str(tmp_path / "ledger.jsonl"), str(tmp_path / "title"), "2"]
    config = {**settings(tmp_path), "mcp": {"servers": {"lines": {"command": sys.executable, "args": server}}}}
    text = " ".join(f'tool lines.write {{"run": "r", "n": {n}}}' for n in (5, 6))
    async with GatewayProcess(json.dumps(config)) as gateway, session_with(gateway) as session:
        await until_served(gateway)
        if held:
            stream = await Stream.ask(session, text)
            await stream.until_asked()
        else:
            await asked(gateway, text)
        first, second = await pending(gateway)
        for one in (first, second):
            assert (await approved(gateway, one["id"]))[0] == 200
        await until(lambda: lines_of(tmp_path), timeout_s=RECOVERS_S)
        (tmp_path / "title").write_text("Deletes a line.")
        await until_changed(gateway)
        await until_asked_anew(gateway)
        (anew,) = await pending(gateway)
        assert anew["arguments"] == {"run": "r", "n": 6} and anew["id"] != second["id"]
        run = await page(gateway, f"/context/runs/{anew['run_id']}")
        assert run["state"] == "awaiting_approval" and lines_of(tmp_path) == [5]
        assert {one["id"]: one["state"] for one in run["approvals"]}[second["id"]] == "cancelled"
        again, answer = await approved(gateway, second["id"])
        assert (again, answer["error"]["code"]) == (409, "decision_conflict")
        if held:
            assert await stream.until_asked() == anew["id"]
        else:
            headers = {"X-Stainless-Retry-Count": "1"}
            async with session.post(CHAT, json=asking(text), headers=headers) as response:
                repeated = await response.json()
            assert [one["id"] for one in repeated["context"]["approvals"]] == [anew["id"]]
        assert (await approved(gateway, anew["id"]))[0] == 200
        if held:
            assert "wrote 6" in await stream.rest()
        await until(lambda: lines_of(tmp_path) == [5, 6], timeout_s=RECOVERS_S)


async def until_served(gateway: GatewayProcess) -> None:
    async with asyncio.timeout(RECOVERS_S):
        while (await page(gateway, "/mcp/services"))["data"][0]["state"] != "running":
            await asyncio.sleep(0.01)


async def told_late(gateway: GatewayProcess, run_id: str) -> Json:
    """The only step of a run, once a process that had lost it has added what it saw: behind its line in the log."""
    async with asyncio.timeout(RECOVERS_S):
        while True:
            step: Json
            (step,) = (await page(gateway, f"/context/runs/{run_id}"))["steps"]
            if step["late"] is not None:
                return step
            await asyncio.sleep(0.01)


async def until_asked_anew(gateway: GatewayProcess) -> None:
    async with asyncio.timeout(RECOVERS_S):
        while not await pending(gateway):
            await asyncio.sleep(0.01)


# What clients do meanwhile.


async def test_the_same_idempotency_key_after_an_approval(tmp_path: Path) -> None:
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


async def test_a_terminal_shows_the_whole_call(tmp_path: Path) -> None:
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


# Taint.


async def said(gateway: GatewayProcess, *turns: str) -> Json:
    """The answer to the last of these turns of one conversation; the client sends each answer back."""
    messages: list[Json] = []
    async with session_with(gateway) as session:
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            status, answer = await post(session, CHAT, {"model": "demo", "messages": messages})
            assert status == 200, answer
            messages.append(answer["choices"][0]["message"])
    return answer


def tainting(folder: Path, **sections: object) -> Json:
    """The model's low counts until strangers have written something; what the ledger says is a stranger's."""
    config = settings(folder, **sections)
    config["risk"]["trust_llm"] = "until_tainted"
    config["tools"] |= ranch(folder)
    config["tools"]["ledger"]["untrusted"] = True
    return config


async def test_a_strangers_text_taints_the_next_turn_also_after_a_restart(tmp_path: Path) -> None:
    """The model calls a deletion low in risk: before it read the stranger's text that counts, behind it it does not."""
    low = f"risk_level low {dog('Di')}"
    async with GatewayProcess(json.dumps(tainting(tmp_path))) as gateway:
        first = await said(gateway, low)
        assert "approvals" not in first.get("context", {}) and born(tmp_path) == ["Di"]
        behind = await said(gateway, line("r", n=1), low)
        assert [one["tool"] for one in behind["context"]["approvals"]] == ["execute_sql"]
        messages = [
            {"role": "user", "content": line("s", n=1)},
            (await said(gateway, line("s", n=1)))["choices"][0]["message"],
            {"role": "user", "content": low},
        ]
        await gateway.kill()
        await gateway.start()
        async with session_with(gateway) as session:
            status, after = await post(session, CHAT, {"model": "demo", "messages": messages})
        assert status == 200 and [one["tool"] for one in after["context"]["approvals"]] == ["execute_sql"]
    assert born(tmp_path) == ["Di"]


@pytest.mark.parametrize("trusted", [False, pytest.param(True, marks=pytest.mark.crash)])
async def test_a_result_that_a_person_reports_is_a_strangers(tmp_path: Path, *, trusted: bool) -> None:
    """Killed in a call; what `resume --result` brings taints the call behind it, unless it is said to be trusted."""
    config = tainting(tmp_path)
    del config["tools"]["ledger"]["untrusted"]
    config["tools"]["ledger"]["with"]["after_s"] = 60.0
    async with GatewayProcess(json.dumps(config)) as gateway:
        async with session_with(gateway) as session:
            text = f"risk_level low {line('r')} {dog('Di')}"
            talk = asyncio.create_task(post(session, CHAT, asking(text)))
            await until(lambda: effects(tmp_path))
            await gateway.kill()
            with pytest.raises(aiohttp.ClientError):
                await talk
        await gateway.start()
        await until_state(tmp_path, "r", "unknown")
        finding = ("runs", "resume", run_ids(tmp_path, "r"), "--step", "0", "--as", "done", "--result", "It is there.")
        command = (*GATEWAY, *finding, *(["--trusted"] if trusted else []), "--url", gateway.base_url)
        resuming = await asyncio.create_subprocess_exec(*command)
        assert await resuming.wait() == 0
        await until_state(tmp_path, "r", *(["completed"] if trusted else ["awaiting_approval"]))
        assert [one["tool"] for one in await pending(gateway)] == ([] if trusted else ["execute_sql"])
    assert born(tmp_path) == (["Di"] if trusted else []) and len(effects(tmp_path)) == 1
