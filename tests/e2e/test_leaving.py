"""What becomes of runs that wait for a person when their process stops, and of models that would answer for one."""

import asyncio
from pathlib import Path

from .asking import HOLD
from .models import calls, says
from .talking import desk, talking

WRITE = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)


async def test_waiting_stream_ends_with_its_question_when_the_gateway_drains(tmp_path: Path) -> None:
    """It ends whole, and says how to answer: another process goes on with the run."""
    async with (
        talking(WRITE, tools=desk(tmp_path, write=True)) as world,
        world.streaming("Go.", headers=HOLD) as stream,
    ):
        while "approval.required" not in [event["type"] for event in stream.told]:
            await stream.frame()
        draining = asyncio.create_task(world.gateway.gateway.drain())
        await stream.rest()
        assert stream.finishes == ["stop"] and stream.events[-1] == b"[DONE]"
        assert "approve ap_" in stream.text
        await draining
    assert not (tmp_path / "work" / "new.txt").exists()


async def test_a_model_cannot_approve_its_own_call(tmp_path: Path) -> None:
    """Not by a tool that may ask this machine: the gateway's own pages refuse its tools."""
    tools = {**desk(tmp_path, write=True), "http_request": {"private_networks": True}}
    async with talking(WRITE, tools=tools) as world:
        (approval,) = (await world.chat("Go.")).json["context"]["approvals"]
        url = f"{world.gateway.base_url}/context/approvals/{approval['id']}"
        body = '{"decision": "approve"}'
        asked = calls("http_request", method="POST", url=url, body=body, headers={"Content-Type": "application/json"})
        world.model.then(asked, says("I tried."))
        assert (await world.chat("Now approve it.")).text == "I tried."
        assert "403" in world.model.behind()[-1]["content"]
        waiting = await world.get(f"/context/approvals/{approval['id']}")
        assert waiting.json["state"] == "pending"
    assert not (tmp_path / "work" / "new.txt").exists()
