"""The gateway's side of a command: bounded output, and cancellation that leaves nothing."""

import asyncio
from pathlib import Path

import pytest
from gateways import until
from hypothesis import given
from hypothesis import strategies as st

from gateway.sandbox.launch_messages import Level
from gateway.sandbox.run import OutputExcerpt, run
from tests.sandbox.machine import EVERY_LEVEL, in_child, order, run_order, shell, survivors


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(2, 50))
def test_output_excerpt_keeps_the_beginning_and_the_end(pieces: list[bytes], limit_bytes: int) -> None:
    """All of what fits, else both halves and the count of what is between."""
    excerpt = OutputExcerpt(limit_bytes=limit_bytes)
    for piece in pieces:
        excerpt.add(piece)
    whole, half = b"".join(pieces), limit_bytes // 2
    if len(whole) <= 2 * half:
        assert excerpt.get_text() == whole.decode(errors="replace")
    else:
        assert f"[... {len(whole) - 2 * half} bytes omitted ...]" in excerpt.get_text()
        assert excerpt.get_text().startswith(whole[:half].decode(errors="replace"))
        assert excerpt.get_text().endswith(whole[-half:].decode(errors="replace"))


@pytest.mark.parametrize("level", EVERY_LEVEL)
async def test_cancelling_ends_the_command(level: Level, tmp_path: Path) -> None:
    """With its whole group and whoever left it."""
    command = "trap '' TERM; setsid sleep 61 & echo >begun; while :; do sleep 62; done"
    running = asyncio.create_task(shell(tmp_path, command, level=level))
    await until(lambda: (tmp_path / "begun").exists())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 120)
    assert survivors(tmp_path) == []


async def test_cancelling_at_any_moment_leaves_no_process(tmp_path: Path) -> None:
    """Before, while and after the launcher starts."""
    for delay_s in (0.0, 0.001, 0.01, 0.03, 0.06, 0.1):
        running = asyncio.create_task(shell(tmp_path, "sleep 61", level="none"))
        await asyncio.sleep(delay_s)  # the moment is the case
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert survivors(tmp_path) == []


async def test_output_flood_ends_the_command(tmp_path: Path) -> None:
    """It neither fills memory nor goes on; what it said first and last is kept."""
    finished = await run_order(order(tmp_path, "yes", level="none", timeout_s=120), flood_bytes=4 << 20)
    assert finished.outcome.end == "output"
    assert finished.stdout.startswith("y\ny\n")
    assert len(finished.stdout) < 70_000
    assert survivors(tmp_path) == []


async def test_both_streams_are_read_at_the_same_time(tmp_path: Path) -> None:
    """A command that fills one of them before the other does not block."""
    noise = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; echo end"
    finished = await run(
        order(tmp_path, "/bin/sh", "-c", noise, level="none"),
        stdout_bytes=100,
        stderr_bytes=100,
        flood_bytes=1 << 24,
    )
    assert finished.outcome.code == 0
    assert finished.stdout.endswith("end\n")
    assert "299900 bytes omitted" in finished.stderr


async def test_commands_run_side_by_side(tmp_path: Path) -> None:
    """Each gets its own output."""
    results = await asyncio.gather(*(shell(tmp_path, f"echo {number}", level="none") for number in range(6)))
    assert [finished.stdout for finished in results] == [f"{number}\n" for number in range(6)]


ON_UVLOOP = """
import asyncio, uvloop
from pathlib import Path
from tests.sandbox.machine import order, run_order, shell, survivors
folder = Path({folder!r})
async def main():
    finished = await shell(folder, "echo out; echo err >&2; exit 2", level="none")
    print(finished.outcome.code, finished.stdout.strip(), finished.stderr.strip())
    print((await run_order(order(folder, "yes", level="none"), flood_bytes=1 << 20)).outcome.end)
    running = asyncio.create_task(shell(folder, "echo >begun; sleep 61", level="none"))
    while not (folder / "begun").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    print(type((await asyncio.gather(running, return_exceptions=True))[0]).__name__, survivors(folder))
uvloop.run(main())
"""


def test_uvloop_runs_and_cancels_commands_like_asyncio(tmp_path: Path) -> None:
    """Output, an output bomb and cancelling, on uvloop."""
    printed = in_child(ON_UVLOOP.format(folder=str(tmp_path))).splitlines()
    assert printed == ["2 out err", "output", "CancelledError []"]
