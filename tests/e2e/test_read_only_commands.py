"""Commands of a model at the gateway's door: what runs without anybody's word for it changes nothing."""

from pathlib import Path

import pytest

from gateway.cli.plugin_new import write_plugin
from tests.sandbox.machine import READ_ONLY_LEVELS

from .gated import SAFE, asked_first, ran_at_once
from .models import Json, calls, says
from .talking import talking


def mistaken(folder: Path) -> Json:
    """A gateway whose assessor takes every short command for harmless, and whose operator wants no sandbox."""
    write_plugin("assessors", "short_texts", folder=folder / "plugins")
    (folder / "work").mkdir()
    return {
        "plugins": {"folder": str(folder / "plugins")},
        "tools": {"execute_command": {"cwd": str(folder / "work"), "sandbox": "none"}},
        "risk": {"assessors": {"execute_command": {"use": "short_texts"}}},
    }


@pytest.mark.parametrize("command", ["touch new", "echo x >new", "busybox find . -exec ls {} x + -exec touch new ;"])
async def test_mistaken_harmless_verdict_cannot_write(command: str, tmp_path: Path) -> None:
    """The command runs where it can have none, or asks on a machine that has no such place."""
    asked = calls("execute_command", risk_level=None, command=command)
    async with talking(asked, says(SAFE[1]), **mistaken(tmp_path)) as world:
        if READ_ONLY_LEVELS:
            await ran_at_once(world, tool="execute_command", basis="whitelist")
        else:
            await asked_first(world, tool="execute_command", basis="default")
    assert list((tmp_path / "work").iterdir()) == []


async def test_low_risk_call_keeps_write_access(tmp_path: Path) -> None:
    """As does one that a person approved."""
    asked = calls("execute_command", command="touch new", risk_level="low")
    async with talking(asked, says(SAFE[1]), **mistaken(tmp_path)) as world:
        await ran_at_once(world, tool="execute_command", basis="llm")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["new"]
