"""A chat whose turn is cancelled in the middle of a call: the next turn's model sees the call."""

import json
from pathlib import Path

from gateways import until

from .models import native, says
from .serving import asks, behaving, serving, started
from .talking import Streamed, World, talking


async def test_cut_call_is_shown_as_unknown_in_the_next_turn(tmp_path: Path) -> None:
    """With an outcome that is unknown, in front of the text that its client has."""
    made = tmp_path / "made"
    slow = native(("execute_command", {"command": f"touch {made}; sleep 60", "risk_level": "low"}), text="I begin.")
    tools = {"execute_command": {"cwd": str(tmp_path), "sandbox": "none"}}
    async with talking(slow, says("I look first."), tools=tools) as world:
        async with world.streaming("Go.", headers={"X-Context-Conversation": "c"}) as events:
            await until(made.exists, timeout_s=120)
            await cancel(world, events)
        assert "unknown: it may have run or not" in await told_next(world, events.text)


async def test_cancelled_idempotent_call_is_reported_as_unknown() -> None:
    """Its run ended, so it is not called once more, and what it has done is done."""
    async with serving(servers={"box": behaving(idempotent=["sleep"])}) as world:
        world.model.then(asks("box.sleep", seconds=60), says("I look first."))
        async with world.streaming("Go.", headers={"X-Context-Conversation": "c"}) as events:
            await started(world, events)
            await cancel(world, events)
        assert "unknown: it may have run or not" in await told_next(world, events.text)


async def cancel(world: World, events: Streamed) -> None:
    """Cancel the run of an answer, and read what is left of that."""
    run_id = events.response.headers["X-Context-Run-Id"]
    assert (await world.post({}, path=f"/context/runs/{run_id}/cancel")).status == 200
    await events.rest()


async def told_next(world: World, text: str) -> str:
    """Return the result that the model of the next turn reads, behind an answer with this text."""
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "And now?"},
    ]
    assert (await world.chat(history, headers={"X-Context-Conversation": "c"})).status == 200
    (result,) = [json.dumps(message) for message in world.model.asked[-1]["messages"] if message["role"] == "tool"]
    return result
