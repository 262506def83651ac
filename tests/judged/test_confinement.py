"""Commands run where no effect is possible, without any judge: nothing changes, whatever the grammar makes."""

import asyncio
import multiprocessing
import os
import random
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from gateway.plugins.assessors.command import CommandAssessor
from gateway.sandbox.confinement import READ_ONLY
from gateway.sandbox.kernel import PR_SET_CHILD_SUBREAPER, call_prctl
from gateway.sandbox.launch_messages import Level
from tests.plugins.tools.execute_command import made_commands
from tests.sandbox.machine import READ_ONLY_LEVELS

from .confinement import Arena, Bench

#: Of the strongest level, and of each other one.
COUNT, OTHER_COUNT, SINGLES = 2000, 400, 10
SOAK_COUNT = int(os.environ.get("TWOLANE_CONFINED", "300000"))
SOAK_SEED = int(os.environ.get("TWOLANE_SEED", "1"))
#: As many as wait for their limits at the same time.
_WORKERS: Final = 4


@pytest.mark.judged
@pytest.mark.parametrize("level", READ_ONLY_LEVELS)
async def test_confined_random_commands_change_nothing(level: Level, tmp_path: Path) -> None:
    """No file, FIFO, socket or device outside of the scratch folder; no packet and no process stays."""
    bench = Bench(level)
    count = COUNT if level == READ_ONLY[0] else OTHER_COUNT
    await bench.run(tmp_path / "arena", seed=7, count=count)
    await bench.run(tmp_path / "single", seed=8, count=SINGLES, batch=1)
    assert not bench.slips, bench.slips[:3]
    assert (bench.commands, bench.packets) == (count + SINGLES, 0), bench.figures()


def of_the_judge(_: Arena, chance: random.Random) -> Iterator[str]:
    """The texts that the judge is tried with, whatever it says of them."""
    return made_commands.made(chance)


def judged_harmless(arena: Arena, chance: random.Random) -> Iterator[str]:
    """Of those the ones that it lets run by themselves."""
    assessor = CommandAssessor("standard")
    texts = of_the_judge(arena, chance)
    return (text for text in texts if assessor.assess({"command": text}).decision == "auto")


@pytest.mark.judged
@pytest.mark.parametrize("level", READ_ONLY_LEVELS[:1])
@pytest.mark.parametrize("grammar", [of_the_judge, judged_harmless])
async def test_confined_commands_change_nothing_under_any_verdict(
    level: Level, grammar: Callable[[Arena, random.Random], Iterator[str]], tmp_path: Path
) -> None:
    """What the judge lets run changes nothing where it runs, and neither does what it does not."""
    bench = Bench(level)
    await bench.run(tmp_path / "arena", seed=9, count=COUNT // 2, grammar=grammar)
    assert not bench.slips, bench.slips[:3]
    assert (bench.commands, bench.packets) == (COUNT // 2, 0), bench.figures()


@pytest.mark.soak_judge
@pytest.mark.parametrize("level", READ_ONLY_LEVELS[:1])
def test_confined_300_000_commands_change_nothing(level: Level, tmp_path: Path) -> None:
    """The same with many more, by several workers; prints the figures."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_WORKERS, mp_context=context) as pool:
        shares = [
            pool.submit(_share, level, tmp_path / str(number), SOAK_SEED + number, SOAK_COUNT // _WORKERS)
            for number in range(_WORKERS)
        ]
        benches = [share.result() for share in shares]
    print("\n" + "\n".join(bench.figures() for bench in benches))
    assert not [slip for bench in benches for slip in bench.slips][:3]
    assert sum(bench.packets for bench in benches) == 0


def _share(level: Level, folder: Path, seed: int, count: int) -> Bench:
    call_prctl(PR_SET_CHILD_SUBREAPER, 1)  # an orphan stays with this process, and is seen
    bench = Bench(level)
    asyncio.run(bench.run(folder, seed=seed, count=count))
    return bench


@pytest.mark.judged
@pytest.mark.parametrize("level", READ_ONLY_LEVELS[:1])
async def test_bench_reports_changes_by_writable_commands(level: Level, tmp_path: Path) -> None:
    """With the rights of an approved command, in the same folder: the bench sees it."""
    bench = Bench(level, read_only=False)
    await bench.run(tmp_path / "arena", seed=7, count=100, batch=25)
    assert len([slip for slip in bench.slips if slip.startswith("changed")]) >= 3, bench.figures()


def _write_fifo(arena: Arena) -> None:
    with (arena.work / "fifo").open("w") as fifo:
        fifo.write("x")


def _read_fifo(arena: Arena) -> None:
    with (arena.work / "sub/fifo").open("rb", buffering=0) as fifo:
        fifo.read(1)


def _send_datagram(arena: Arena) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("127.0.0.1", arena.udp))


def _connect(arena: Arena) -> None:
    socket.create_connection(("127.0.0.1", arena.tcp)).close()


@pytest.mark.parametrize("act", [_write_fifo, _read_fifo, _send_datagram, _connect])
def test_arena_reports_each_outside_access_once(act: Callable[[Arena], None], tmp_path: Path) -> None:
    """Bytes in a FIFO, fewer bytes in a FIFO, a datagram, a connection: once each."""
    with Arena(tmp_path / "arena") as arena:
        act(arena)
        arena.notice()
        assert len(arena.told) == 1
        arena.notice()
        assert len(arena.told) == 1


def _change_mode(work: Path) -> None:
    (work / "a").chmod(0o600)


def _change_attribute(work: Path) -> None:
    os.setxattr(work / "b c", "user.new", b"x")


def _change_time(work: Path) -> None:
    os.utime(work / "sub", (1, 1))


def _replace_link(work: Path) -> None:
    (work / "link").unlink()
    (work / "link").symlink_to("b c")


@pytest.mark.parametrize("act", [_change_mode, _change_attribute, _change_time, _replace_link])
def test_arena_state_detects_each_change(act: Callable[[Path], None], tmp_path: Path) -> None:
    """Also of what is no content."""
    with Arena(tmp_path / "arena") as arena:
        before = arena.state()
        act(arena.work)
        assert arena.state() != before
