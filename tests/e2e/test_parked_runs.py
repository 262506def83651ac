"""A run that is parked behind a failed upstream: an operator's terminal, and the next message of its conversation."""

import asyncio
from pathlib import Path

import pytest

from gateway.cli.main import main

from .models import calls, refuses, says
from .talking import World, desk, talking

WRITE = calls("file_operations", operation="write", path="new.txt", content="x")
RAN = 'gateway_tool_calls_total{outcome="ok",tool="file_operations"}'
ASKED = {"role": "user", "content": "Write."}
NEXT = {"role": "user", "content": "And what is 6 x 7?"}
CONVERSATION = {"X-Context-Conversation": "c1"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal stands where there is no gateway.yaml."""
    monkeypatch.chdir(tmp_path)


async def parked(world: World, *, stream: bool = False) -> str:
    """The id of a run whose tool has run, and whose upstream refused the second round."""
    if stream:
        async with world.streaming([ASKED], headers=CONVERSATION) as streamed:
            run_id = streamed.response.headers["X-Context-Run-Id"]
            await streamed.rest()
    else:
        run_id = (await world.chat([ASKED], headers=CONVERSATION)).headers["x-request-id"]
    await world.run(run_id, state="awaiting_client")
    return run_id


async def typed(world: World, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    code = await asyncio.to_thread(main, [*argv, "--url", world.gateway.base_url])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("stream", [False, True])
async def test_operator_resumes_a_parked_run_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, stream: bool
) -> None:
    """The run is listed with its state, goes on without its client, and has its answer; no tool runs twice."""
    async with talking(WRITE, refuses(401), says("Written."), tools=desk(tmp_path, write=True)) as world:
        run_id = await parked(world, stream=stream)
        code, out, err = await typed(world, capsys, "runs", "list", "--state", "awaiting_client")
        assert (code, err) == (0, "") and out.startswith(f"{run_id}  awaiting_client  ")
        code, out, err = await typed(world, capsys, "runs", "resume", run_id)
        assert (code, err) == (0, "") and out.startswith(f"{run_id}  ") and out.count("\n") == 1
        await world.run(run_id, state="completed")
        code, out, err = await typed(world, capsys, "runs", "show", run_id)
        assert (code, err) == (0, "") and "\nanswer\n  Written.\n" in out
        code, out, err = await typed(world, capsys, "runs", "resume", run_id)
        assert (code, out) == (1, "") and "answered 409" in err and err.count("\n") == 1
        assert await world.counted(RAN) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("history", [[ASKED], [ASKED, {"role": "assistant", "content": "(error)"}], []])
async def test_next_message_starts_a_new_run_beside_a_parked_one(
    tmp_path: Path, history: list[dict[str, str]], *, stream: bool
) -> None:
    """Another message does not let the parked run go on, which stays for the same request or an operator."""
    async with talking(WRITE, refuses(401), says("42."), says("Written."), tools=desk(tmp_path, write=True)) as world:
        run_id = await parked(world, stream=stream)
        ask = world.stream if stream else world.chat
        assert (await ask([*history, NEXT], headers=CONVERSATION)).text == "42."
        assert [message["role"] for message in world.model.asked[-1]["messages"]].count("tool") == 0
        assert (await world.run(run_id))["state"] == "awaiting_client"
        assert (await ask([ASKED], headers=CONVERSATION)).text == "Written."
        await world.run(run_id, state="completed")
        assert await world.counted(RAN) == 1
