"""An MCP server's definition changes behind a decision."""

import json
import sys
from pathlib import Path

import pytest
from gateways import until, until_read

from tests.support.gateway_process import GatewayProcess

from .effects import settings
from .looking import RECOVERS_S, approved, asked, page, pending
from .talk import CHAT, Stream, asking, session_with


def lines_of(folder: Path) -> list[int]:
    """The numbers of the lines that the MCP server wrote."""
    file = folder / "ledger.jsonl"
    lines = map(json.loads, file.read_bytes().splitlines() if file.exists() else [])
    return [line["n"] for line in lines if line["run"]]


async def until_changed(gateway: GatewayProcess) -> None:
    tools = "/mcp/services/lines/tools"
    await until_read(lambda: page(gateway, tools), lambda found: '"changed": true' in json.dumps(found))


@pytest.mark.parametrize("held", [False, True])
async def test_changed_tool_definition_after_approval_requires_new_approval(tmp_path: Path, *, held: bool) -> None:
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
    await until_read(lambda: page(gateway, "/mcp/services"), lambda found: found["data"][0]["state"] == "running")


async def until_asked_anew(gateway: GatewayProcess) -> None:
    await until_read(lambda: pending(gateway))
