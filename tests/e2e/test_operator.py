"""An operator at the command line beside a running gateway: what waits is seen, decided, and found in the audit log."""

import asyncio
import re
from pathlib import Path

import pytest

from gateway.cli.main import main

from .asking import GO, HOLD, asks, behind_question, born, held, ranch, whole
from .models import says
from .talking import World, talking

DONE = says("Di is here.")


async def typed(world: World, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Return the output of a command that succeeds."""
    url = () if argv[0] == "audit" else ("--url", world.gateway.base_url)
    code = await asyncio.to_thread(main, [*argv, *url])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


async def test_operator_approves_a_waiting_stream_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A4: exactly what was shown runs, once; the audit log tells who let it, and is whole."""
    monkeypatch.chdir(tmp_path)
    store = "sqlite:///" + str(tmp_path / "kept.db")
    Path("gateway.yaml").write_text(f"store: {store}\n")
    async with (
        talking(asks(), DONE, tools=ranch(tmp_path), store=store) as world,
        world.streaming(GO, headers=HOLD) as stream,
    ):
        (approval,) = await held(stream)
        shown = await typed(world, capsys, "approvals", "show", approval["id"])
        assert "  execute_sql\n    sql: \"INSERT INTO pets VALUES ('Di', 4)\"\n" in shown
        (command,) = re.findall(r"^to approve +gateway (.*)$", shown, re.MULTILINE)
        await typed(world, capsys, *command.split())
        assert behind_question(await whole(stream)) == "Di is here." and born(tmp_path) == ["Di"]
        run_id = approval["run_id"]
        await world.run(run_id, state="completed")
        assert f"{run_id}  completed\n" in await typed(world, capsys, "runs", "show", run_id)
        assert "none of them changed or missing" in await typed(world, capsys, "audit", "verify")
        assert "decision: approved by local" in await typed(world, capsys, "audit", "list")


async def test_operator_rejects_a_turn_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing runs; the run says why."""
    monkeypatch.chdir(tmp_path)
    async with talking(asks(), tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO)).asks
        assert approval["id"] in await typed(world, capsys, "approvals", "list")
        told = await typed(world, capsys, "approvals", "reject", approval["id"], "--reason", "No more dogs.")
        assert told.startswith(f"{approval['id']}  rejected  execute_sql ")
        await world.run(approval["run_id"], state="rejected")
        run = await typed(world, capsys, "runs", "show", approval["run_id"])
        assert "because: `No more dogs.`" in run and born(tmp_path) == []
