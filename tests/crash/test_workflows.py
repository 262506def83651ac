"""A workflow with a risky step pauses, survives `kill -9`, and goes on after its approval; nothing of it runs twice."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from e2e.asking import born, ranch
from gateways import until_read

from tests.support.gateway_process import GATEWAY, GatewayProcess

from .effects import Json, broken_chain
from .talk import asking, post, session_with, told

#: Each needs a person for its one call, and the model behind it.
BIRTH = {
    "name": "birth",
    "description": "Writes a new pet down.",
    "parameters": {"name": {"required": True}, "words": {"default": ""}},
    "steps": [
        {"name": "born", "tool": "execute_sql", "with": {"sql": "INSERT INTO pets VALUES ('{{params.name}}', 4)"}},
        {"name": "wish", "model": "{{params.words}} Wish {{params.name}} well."},
        {"name": "card", "prompt": "{{params.name}} is here. {{steps.wish}}"},
    ],
}
#: How long the model thinks in the run that is killed meanwhile.
SLOW_S = 3
SOON_S = 20.0


def settings(folder: Path) -> str:
    """The demo model is built in."""
    flows = folder / "flows"
    flows.mkdir(mode=0o700)
    (flows / "birth.yaml").write_text(yaml.safe_dump(BIRTH, sort_keys=False))
    (flows / "birth.yaml").chmod(0o600)
    config = {
        "tools": ranch(folder),
        "workflows": {"folder": str(flows)},
        "store": f"sqlite:///{folder / 'gateway.db'}",
    }
    return json.dumps(config)


async def run_of(gateway: GatewayProcess, run_id: str, reached: Callable[[Json], bool]) -> Json:
    """The run, once it is so far."""
    async with session_with(gateway) as session:

        async def read() -> Json:
            async with session.get(f"/context/runs/{run_id}") as response:
                found: Json = await response.json()
                return found

        return await until_read(read, reached, timeout_s=SOON_S)


def is_completed(run: Json) -> bool:
    return bool(run["state"] == "completed")


def has_finished_its_step(run: Json) -> bool:
    return bool(run["steps"][0]["state"] == "finished")


async def begun(gateway: GatewayProcess, name: str, *, words: str = "") -> Json:
    """A run that waits for its approval."""
    async with session_with(gateway) as session:
        body = {"parameters": {"name": name, "words": words}, "model": "demo"}
        status, run = await post(session, "/workflows/birth/runs", body)
    assert (status, run["state"]) == (202, "awaiting_approval"), run
    return run


async def approved(gateway: GatewayProcess, run: Json, *, via: str) -> None:
    """By this way."""
    approval_id = run["approvals"][0]["id"]
    if via == "cli":
        command = (*GATEWAY, "approvals", "approve", approval_id, "--url", gateway.base_url)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert process.returncode == 0 and approval_id.encode() in out
        return
    async with session_with(gateway) as session:
        if via == "chat":
            assert "is here." in await told(session, f"approve {approval_id} {run['approvals'][0]['check_word']}")
        else:
            status, view = await post(session, f"/context/approvals/{approval_id}", {"decision": "approve"})
            assert status == 200, view


async def test_a_paused_workflow_survives_a_kill(tmp_path: Path) -> None:
    """Killed while three runs wait: after the restart each is decided by another way, and goes on to its end."""
    names = {"chat": "Di", "rest": "Ed", "cli": "Flo"}
    async with GatewayProcess(settings(tmp_path)) as gateway:
        runs = {via: await begun(gateway, name) for via, name in names.items()}
        await gateway.kill()
        assert born(tmp_path) == []
        await gateway.start()
        for via, run in runs.items():
            await approved(gateway, run, via=via)
            done = await run_of(gateway, run["id"], is_completed)
            assert done["result"].startswith(f"{names[via]} is here. Hello!") and done["workflow"] == "birth"
            assert [(one["state"], one["via"]) for one in done["approvals"]] == [("done", via)]
    assert born(tmp_path) == ["Di", "Ed", "Flo"] and broken_chain(tmp_path / "gateway.db") is None


@pytest.mark.crash
async def test_kill_after_an_approved_step_does_not_repeat_the_step(tmp_path: Path) -> None:
    """The model's answer is lost, and asked for again; the call that ran before it does not run again."""
    async with GatewayProcess(settings(tmp_path)) as gateway:
        run = await begun(gateway, "Di", words=f"slow {SLOW_S}")
        await approved(gateway, run, via="rest")
        assert (await run_of(gateway, run["id"], has_finished_its_step))["state"] == "running"
        assert born(tmp_path) == ["Di"]
        await gateway.kill()
        await gateway.start()
        done = await run_of(gateway, run["id"], is_completed)
        assert done["result"].startswith("Di is here. Hello!")
        assert [(step["name"], step["state"]) for step in done["steps"]] == [("born", "finished")]
        async with session_with(gateway) as session:  # who asks again is told what came of it
            status, again = await post(session, "/context/v1/chat/completions", asking(f"approve {_asked(run)}"))
        assert status == 200 and again["choices"][0]["message"]["content"] == done["result"]
    assert born(tmp_path) == ["Di"] and broken_chain(tmp_path / "gateway.db") is None


def _asked(run: Json) -> str:
    approval_id: str = run["approvals"][0]["id"]
    return approval_id
