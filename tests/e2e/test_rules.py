"""The operator's own rules on tools (config: risk.rules), as a client meets them."""

from pathlib import Path

import pytest

from .models import calls, says
from .talking import desk, talking

WRITE = calls("file_operations", operation="write", path="new.txt", content="x")


def written(folder: Path) -> bool:
    return (folder / "work" / "new.txt").exists()


@pytest.mark.parametrize("rules", [{"file_operations": "deny"}, {"file_*": "deny", "*": "floor"}])
async def test_a_denied_tool_never_runs(tmp_path: Path, rules: dict[str, str]) -> None:
    """Nobody is asked; the model is told that policy refuses it. The strictest rule that matches holds."""
    async with talking(WRITE, says("I may not."), tools=desk(tmp_path, write=True), risk={"rules": rules}) as world:
        assert (await world.chat("Go.")).text == "I may not."
        assert "refused by policy" in world.model.behind()[-1]["content"]
        assert (await world.get("/context/approvals")).json["data"] == []
    assert not written(tmp_path)


@pytest.mark.parametrize("rule", ["floor", "confirm"])
async def test_low_risk_from_the_model_does_not_pass_the_floor_rule(tmp_path: Path, rule: str) -> None:
    """A7: what is not known to be harmless is asked for, whatever the model says of its risk."""
    risk = {"rules": {"file_operations": rule}}
    async with talking(WRITE, tools=desk(tmp_path, write=True), risk=risk) as world:
        answer = await world.chat("Go.")
        assert answer.json["context"]["status"] == "awaiting_approval"
    assert not written(tmp_path)


async def test_floor_rule_still_allows_whitelisted_calls(tmp_path: Path) -> None:
    """The whitelist still lets reads run; `confirm` would ask for those as well."""
    read, tools = calls("file_operations", operation="read", path="notes.txt"), desk(tmp_path)
    async with talking(read, says("Found."), tools=tools, risk={"rules": {"*": "floor"}}) as world:
        assert (await world.chat("Go.")).text == "Found."
    async with talking(read, tools=tools, risk={"rules": {"*": "confirm"}}) as world:
        assert (await world.chat("Go.")).json["context"]["status"] == "awaiting_approval"
