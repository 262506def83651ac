"""A chat whose turn is cancelled in the middle of a call: the next turn's model sees the call."""

from pathlib import Path

from gateways import until

from .models import native, says
from .talking import talking


async def test_a_call_that_was_cut_is_seen_by_the_next_turn(tmp_path: Path) -> None:
    """With an outcome that is unknown, in front of the text that its client has."""
    made = tmp_path / "made"
    slow = native(("execute_command", {"command": f"touch {made}; sleep 60", "risk_level": "low"}), text="I begin.")
    tools = {"execute_command": {"cwd": str(tmp_path), "sandbox": "none"}}
    async with talking(slow, says("I look first."), tools=tools) as world:
        async with world.streaming("Go.", headers={"X-Context-Conversation": "c"}) as events:
            await until(made.exists, timeout_s=120)
            run_id = events.response.headers["X-Context-Run-Id"]
            assert (await world.post({}, path=f"/context/runs/{run_id}/cancel")).status == 200
            await events.rest()
        history = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": events.text},
            {"role": "user", "content": "And now?"},
        ]
        assert (await world.chat(history, headers={"X-Context-Conversation": "c"})).status == 200
        (result,) = [message for message in world.model.asked[-1]["messages"] if message["role"] == "tool"]
        assert "unknown: it may have run or not" in result["content"]
