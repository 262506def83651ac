"""Calls that ran at once, and calls that were asked about first."""

from pathlib import Path

from gateway.cli.plugin_new import write_plugin

from .models import Answer, Json, calls
from .talking import World, desk

SAFE = ("Is it safe?", "It is.")


def box(folder: Path, *, commands: bool = False) -> Json:
    """Tools none of which refuses by itself what the gate is to decide on.

    `commands`: with `execute_command`, which runs a command at each start to see that it can.
    """
    tools = desk(folder, write=True)
    tools["execute_sql"]["read_only"] = False
    tools["http_request"] = {"private_networks": True}
    if commands:
        tools["execute_command"] = {"cwd": str(folder / "work"), "sandbox": "none"}
    return tools


WRITE: Json = {"operation": "write", "path": "new.txt", "content": "x"}


def write(risk_level: str | None) -> Answer:
    """A call that no whitelist knows, with the model's own word about its risk."""
    return calls("file_operations", risk_level=risk_level, **WRITE)


async def ran_at_once(world: World, *, tool: str, basis: str) -> Json:
    """The only step of the only run, which nobody was asked about."""
    assert (await world.chat(SAFE[0])).text == SAFE[1]
    (run,) = (await world.get("/context/runs")).json["data"]
    shown = await world.run(run["id"])
    (step,) = shown["steps"]
    assert (step["tool"], step["decision"], step["basis"], step["state"]) == (tool, "auto", basis, "finished")
    assert shown["approvals"] == [] and step["approval_id"] is None
    assert await world.counted(f'gateway_risk_decisions_total{{basis="{basis}",decision="auto"}}') == 1
    return dict(step)


async def asked_first(world: World, *, tool: str, basis: str) -> Json:
    """The approval of the only call, which has not run."""
    answered = await world.chat(SAFE[0])
    (approval,) = answered.asks
    assert (approval["tool"], approval["basis"], approval["state"]) == (tool, basis, "pending")
    run = await world.run(approval["run_id"])
    assert (run["state"], run["effects"]) == ("awaiting_approval", False)
    assert [step["state"] for step in run["steps"]] == ["requested"]
    assert len(world.model.asked) == 1
    assert await world.counted(f'gateway_risk_decisions_total{{basis="{basis}",decision="confirm"}}') == 1
    return approval


def own(folder: Path, *, assessor: bool) -> Json:
    """A tool of the operator's own, with or without an assessor of its own."""
    write_plugin("tools", "count_words", folder=folder / "plugins")
    risk = {}
    if assessor:
        write_plugin("assessors", "short_texts", folder=folder / "plugins")
        risk = {"assessors": {"count_words": {"use": "short_texts"}}}
    return {"plugins": {"folder": str(folder / "plugins")}, "tools": {"count_words": {}}, "risk": risk}
