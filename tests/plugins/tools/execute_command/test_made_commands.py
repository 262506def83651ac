"""The judge's bench: whatever is called harmless runs for real, and leaves folder, home and all else as they were."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.plugins.assessors.command import CommandAssessor
from gateway.plugins.tools.execute_command import choose_way_to_run
from gateway.sandbox.confinement import find_strongest, replace_level
from gateway.sandbox.launch_messages import Order, ProcessLimits
from gateway.sandbox.programs import PATH, find_program
from gateway.sandbox.run import run
from tests.plugins.tools.execute_command import made_commands

_DRIVER: Final = Path(__file__).with_name("run_made.py")
#: Beside the tool's own way: every shell that may be the one.
_SHELLS: Final = (("dash",), ("bash", "--posix", "+B"), ("busybox", "sh"))
_BATCH: Final = 1000
_SEED: Final = 7


def arena(folder: Path) -> Path:
    """A folder to run in, with a home, a repository, and programs that leave a trace where commands may find them."""
    work = folder / "work"
    work.mkdir()
    for name in made_commands.FILES:
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("one,two\nthree\n")
    for name in made_commands.PROGRAMS:
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name} >>{folder}/ran\n")
        path.chmod(0o755)
    for name in (".profile", ".bashrc", ".gitconfig", ".npmrc", ".sh_rc"):
        (work / name).write_text(f"echo {name} >>{folder}/ran\n")
    repository = work / "src"
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True, env={"PATH": os.environ["PATH"], "HOME": "/"})
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    with (repository / ".git" / "config").open("a") as config:
        config.write(f'[core]\n fsmonitor = {work}/evil\n[filter "evil"]\n clean = {work}/evil\n')
        config.write(f'[diff "evil"]\n command = {work}/evil\n textconv = {work}/evil\n')
    return folder


def harmless(count: int) -> list[str]:
    """Of so many texts the ones that run by themselves, but for what only the hardened profile knows not to end."""
    standard, hardened = CommandAssessor("standard"), CommandAssessor("hardened")
    texts = itertools.islice(made_commands.made(random.Random(_SEED)), count)
    asked = [text for text in texts if standard.assess({"command": text}).decision == "auto"]
    long = ("command.endless", "command.large_output")
    return [text for text in asked if hardened.assess({"command": text}).rule not in long]


def commands(texts: list[str], *, folder: Path, every_shell: bool) -> list[dict[str, Any]]:
    """How each is run: as the tool does, and in a shell, with one of the environments; in all of them in turn."""
    shells = [shell for shell in _SHELLS if find_program(shell[0])]
    home = str(folder / "work")
    found = []
    for number, text in enumerate(texts):
        way = choose_way_to_run(text)
        plain = {**dict(way.settings), "PATH": ":".join(PATH), "HOME": home, "SHELL": "/bin/sh"}
        prelude = way.argv[-1].removesuffix(text) if "git()" in way.argv[-1] else ""
        ways = [way.argv, *((*shell, "-c", prelude + text) for shell in shells)]
        for index, argv in enumerate(ways if every_shell else [ways[number % len(ways)]]):
            variables = (
                made_commands.VARIABLES[(number + index) % len(made_commands.VARIABLES)] if argv != way.argv else {}
            )
            found.append({"text": text, "argv": argv, "environment": {**plain, **variables}})
    return found


async def slip(folder: Path, batch: list[dict[str, Any]]) -> str:
    """The first of them that left a trace, told by the driver from inside of the sandbox."""
    listing = folder.parent / "commands.json"
    listing.write_text(json.dumps(batch))
    order = Order(
        argv=(sys.executable, "-I", "-S", str(_DRIVER), str(listing)),
        cwd=str(folder),
        level="none",
        timeout_s=3600,
        limits=ProcessLimits(cpu_s=3600, memory_bytes=8 << 30, processes=512),
        readable=(sys.prefix, sys.base_prefix, str(_DRIVER), str(listing)),
    )
    level = (await find_strongest("auto", order)).level or "none"
    finished = await run(
        replace_level(order, level=level), stdout_bytes=1 << 16, stderr_bytes=1 << 16, flood_bytes=1 << 20
    )
    assert (finished.outcome.end, finished.outcome.code) == ("exited", 0), (finished.outcome, finished.stderr)
    return finished.stdout


async def _bench(tmp_path: Path, *, count: int, every_shell: bool) -> str:
    folder = tmp_path / "arena; touch ran"
    folder.mkdir()
    arena(folder)
    texts = harmless(count)
    ways = commands(texts, folder=folder, every_shell=every_shell)
    for start in range(0, len(ways), _BATCH):
        assert await slip(folder, ways[start : start + _BATCH]) == ""
    return (
        f"{count} commands judged, {len(texts)} harmless ({len(set(texts))} different), run {len(ways)} times: 0 slips"
    )


@pytest.mark.judged
async def test_commands_judged_harmless_change_nothing_in_any_shell(tmp_path: Path) -> None:
    """In the tool's own way and in every shell of the machine, whatever the variables hold."""
    await _bench(tmp_path, count=2000, every_shell=True)


@pytest.mark.soak_judge
async def test_200_000_commands_judged_harmless_change_nothing(tmp_path: Path) -> None:
    """The same for many more, each in one of the ways."""
    print(await _bench(tmp_path, count=int(os.environ.get("TWOLANE_COMMANDS", "200000")), every_shell=False))


async def test_bench_detects_the_side_effects_of_a_command(tmp_path: Path) -> None:
    """A change, a program that ran, a process that stays: each is told."""
    folder = tmp_path / "arena"
    folder.mkdir()
    arena(folder)
    environment = {"PATH": ":".join(PATH), "HOME": str(folder)}
    for text in ("touch x", "sort -oout a", "find . -name a -delete", "./evil", "sleep 5 &"):
        told = json.loads(await slip(folder, [{"text": text, "argv": ["sh", "-c", text], "environment": environment}]))
        assert told["text"] == text
