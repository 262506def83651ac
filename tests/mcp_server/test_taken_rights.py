"""Held calls whose key may not make them any more after a reload: none runs, whoever approves it."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gateways import until_read

from gateway.contracts.storage.store import Json
from tests.mcp_server.serving import World, keys, texts, world
from tests.mcp_server.test_workflow_tools import CALL, flows

TEAM = keys(agent=["tools", "context"], anna=["context", "approve"], root=["admin"])
Change = Callable[[Json], Json]


def agent(**facts: object) -> Change:
    """A configuration in which the key `agent` is otherwise."""

    def changed(config: Json) -> Json:
        return {**config, "keys": [{**key, **facts} if key["name"] == "agent" else key for key in config["keys"]]}

    return changed


def serve(**facts: object) -> Change:
    """A configuration in which `mcp.serve` is otherwise."""
    return lambda config: {
        **config,
        "mcp": {**config["mcp"], "serve": {**config["mcp"]["serve"], **facts}},
    }


def gone(config: Json) -> Json:
    return {**config, "keys": [key for key in config["keys"] if key["name"] != "agent"]}


def denied(config: Json) -> Json:
    return {**config, "risk": {**config["risk"], "rules": {"here.echo": "deny"}}}


TAKEN: dict[str, Change] = {
    "tools of the key": agent(tools=["here.calls"]),
    "scope": agent(scopes=["context"]),
    "tools of all": serve(tools=["here.calls"]),
    "tenant": agent(tenant="others"),
}


async def pending(made: World) -> Json:
    (one,) = await until_read(lambda: made.approvals(key="anna"), lambda found: len(found) == 1)
    return one


async def decided(made: World, approval: Json, decision: str) -> tuple[int, Any]:
    return await made.post(f"/context/approvals/{approval['id']}", {"decision": decision}, key="anna")


@pytest.mark.parametrize("change", TAKEN.values(), ids=TAKEN)
async def test_held_call_cannot_be_approved_after_its_key_lost_access(change: Change) -> None:
    """The decision says so, and the call waits until a person rejects it."""
    async with world(keys=TEAM) as made, made.client(key="agent") as client:
        call = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
        approval = await pending(made)
        await made.gateway.reload(change(made.config))
        status, refused = await decided(made, approval, "approve")
        assert status == 409 and refused["error"]["code"] == "approval_stale"
        assert "cannot run any more; reject it" in refused["error"]["message"]
        status, _ = await decided(made, approval, "reject")
        assert status == 200
        result = await call
        assert result.is_error and "hi" not in texts(result).splitlines()


async def test_held_workflow_cannot_be_approved_after_its_key_lost_access(tmp_path: Path) -> None:
    """It needs the scope of workflows, too."""
    async with world(**flows(tmp_path, keys=TEAM)) as made, made.client(key="agent") as client:
        call = asyncio.create_task(client.call_tool(*CALL))
        approval = await pending(made)
        await made.gateway.reload(agent(scopes=["tools"])(made.config))
        status, refused = await decided(made, approval, "approve")
        assert status == 409 and "context" in refused["error"]["message"]
        assert (await decided(made, approval, "reject"))[0] == 200
        assert (await call).is_error


async def test_workflow_stops_at_a_step_its_key_may_no_longer_run(calm: Json, tmp_path: Path) -> None:
    """Also before a step that nobody is asked about; the refusal is in the audit log."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    steps = [
        {"name": "one", "tool": "here.wait", "with": {"text": str(pipe)}},
        {"name": "two", "tool": "here.echo", "with": {"text": "hi"}},
    ]
    flow = {"name": "twice", "description": "x", "parameters": {"text": {"required": True}}, "steps": steps}
    async with world(**flows(tmp_path, flow, keys=TEAM, **calm)) as made, made.client(key="agent") as client:
        call = asyncio.create_task(client.call_tool(*CALL))
        with await asyncio.to_thread(pipe.open, "w"):  # opens once the first step reads it
            await made.gateway.reload(agent(tools=["here.wait", "workflow.*"])(made.config))
        result = await call
        assert result.is_error and "may not use this tool any more" in texts(result)
        log = (await made.get("/context/audit", key="root"))["data"]
        assert any((line["tool"], line["rule"]) == ("here.echo", "not_allowed") for line in log)


@pytest.mark.parametrize("change", [gone, lambda config: config], ids=["key gone", "no change"])
async def test_call_can_be_approved_after_its_key_was_removed(change: Change) -> None:
    """As docs/keys.md has it."""
    async with world(keys=TEAM) as made, made.client(key="agent") as client:
        await client.list_tools()  # its library would list them before it returns the result
        call = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
        approval = await pending(made)
        await made.gateway.reload(change(made.config))
        assert (await decided(made, approval, "approve"))[0] == 200
        assert texts(await call) == "hi"


@pytest.mark.parametrize("change", [denied, agent(tools=["here.calls"])], ids=["rule", "key"])
async def test_waiting_client_is_notified_when_approval_becomes_impossible(change: Change) -> None:
    """It is not sent for an approval that would be refused."""
    async with world({"wait": "3s"}, keys=TEAM) as made, made.client(key="agent") as client:
        call = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
        approval = await pending(made)
        await made.gateway.reload(change(made.config))
        told = texts(await call)
        assert "cannot run any more" in told and f"gateway approvals reject {approval['id']}" in told
        assert "approvals approve" not in told
