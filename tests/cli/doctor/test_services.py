"""MCP servers as the doctor sees them: started for real, and gone afterwards."""

import json
import sys
from pathlib import Path

from tests.cli.doctor.examined import examined
from tests.mcp.misbehaving import command


async def test_doctor_starts_and_names_mcp_servers(tmp_path: Path) -> None:
    """Each by itself: one that cannot start does not hide the other."""
    program, *args = command("ok")
    good = json.dumps({"command": program, "args": args})
    bad = f"{{command: '{sys.executable}', args: ['-c', 'raise SystemExit(3)']}}"
    found = await examined(f"mcp: {{servers: {{good: {good}, bad: {bad}}}}}", folder=tmp_path)
    assert found["MCP good"].level == "ok" and found["MCP good"].text.startswith(
        "misbehaving 1, MCP 2025-11-25: 14 tools after "
    )
    assert found["MCP bad"].level == "fail" and "exit code 3" in found["MCP bad"].text


async def test_a_server_that_is_off_is_not_started(tmp_path: Path) -> None:
    text = f"mcp: {{servers: {{kb: {{command: '{sys.executable}', enabled: false}}}}}}"
    assert not any(about.startswith("MCP") for about in await examined(text, folder=tmp_path))


async def test_doctor_fails_a_silent_mcp_server_after_the_timeout(tmp_path: Path) -> None:
    text = f"mcp: {{servers: {{mute: {{command: '{sys.executable}', args: ['-c', 'input()']}}}}}}"
    found = (await examined(text, folder=tmp_path, timeout_s=0.0))["MCP mute"]
    assert found.level == "fail" and found.text.startswith("still starting")
