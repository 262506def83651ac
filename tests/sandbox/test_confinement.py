"""The choice of a level, on this machine and on machines that have less."""

import sys
from pathlib import Path

import pytest

from gateway.sandbox import landlock, seccomp
from gateway.sandbox.confinement import ACCEPTED, Choice, Sandbox, find_strongest
from gateway.sandbox.launch_messages import Level
from tests.sandbox.machine import CONFINED, READ_ONLY_LEVELS, in_child, order

#: Takes away what a machine may lack, then asks for the strongest level.
POORER = """
import asyncio, os
from pathlib import Path
from gateway.sandbox import seccomp
from gateway.sandbox.confinement import find_strongest
from tests.sandbox.machine import order
os.environ["PATH"] = "/nowhere"
seccomp.install([{missing}])
choice = asyncio.run(find_strongest({sandbox!r}, order(Path({folder!r}), level="none", read_only={read_only})))
print(choice.level, "|", choice.reason)
"""
NO_NAMESPACES = "seccomp.RefusedSyscall('unshare', 272, 97)"
NO_LANDLOCK = "seccomp.RefusedSyscall('landlock_create_ruleset', 444, 444)"
HAS_LANDLOCK = landlock.get_abi() > 0 and seccomp.is_known_machine()


def poorer(folder: Path, *missing: str, sandbox: Sandbox = "auto", read_only: bool = False) -> str:
    return in_child(POORER.format(missing=", ".join(missing), sandbox=sandbox, folder=str(folder), read_only=read_only))


@pytest.mark.parametrize("sandbox", ["auto", "bubblewrap", "landlock", "none"])
async def test_the_strongest_accepted_level_is_chosen(sandbox: Sandbox, tmp_path: Path) -> None:
    """Of those that this machine has; without any, the reasons are told."""
    possible = [level for level in ACCEPTED[sandbox] if level in (*CONFINED, "none")]
    choice = await find_strongest(sandbox, order(tmp_path, level="none"))
    assert choice.level == (possible[0] if possible else None)
    assert bool(choice.reason) is not bool(possible)


def test_landlock_is_chosen_without_namespaces(tmp_path: Path) -> None:
    """As in most containers."""
    said = poorer(tmp_path, NO_NAMESPACES)
    assert said.startswith("landlock |") is HAS_LANDLOCK


def test_command_is_refused_without_any_confinement(tmp_path: Path) -> None:
    """T21: never silently weaker; every reason is told."""
    said = poorer(tmp_path, NO_NAMESPACES, NO_LANDLOCK)
    assert said.startswith("None | bubblewrap: the program bwrap is not installed; namespaces: ")
    assert "; landlock: " in said


async def test_failed_confinement_trial_does_not_weaken_the_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is too busy, or short of memory for a moment, has the same means as before."""
    monkeypatch.setattr(sys, "executable", "/bin/false")  # the launcher is gone before it answers
    choice = await find_strongest("auto", order(tmp_path, level="none", read_only=True))
    assert choice == Choice(None, "namespaces: the launcher gave no answer")


def test_landlock_is_needed_beside_namespaces(tmp_path: Path) -> None:
    """They hide no files."""
    assert poorer(tmp_path, NO_LANDLOCK, sandbox="landlock").startswith("None |")


def test_configured_bubblewrap_is_not_replaced_by_another_level(tmp_path: Path) -> None:
    """A configuration that names bubblewrap gets it or nothing."""
    assert poorer(tmp_path, sandbox="bubblewrap") == "None | bubblewrap: the program bwrap is not installed"


def test_unconfined_level_requires_explicit_configuration(tmp_path: Path) -> None:
    """Only where the operator says so."""
    assert poorer(tmp_path, NO_NAMESPACES, NO_LANDLOCK, sandbox="none").startswith("none |")
    assert [choice for choice, levels in ACCEPTED.items() if "none" in levels] == ["none"]


@pytest.mark.parametrize("sandbox", ["auto", "bubblewrap", "landlock", "none"])
async def test_read_only_command_always_gets_the_strongest_level(sandbox: Sandbox, tmp_path: Path) -> None:
    """The choice of an operator is about commands that were approved."""
    choice = await find_strongest(sandbox, order(tmp_path, level="none", read_only=True))
    assert choice.level == (READ_ONLY_LEVELS[0] if READ_ONLY_LEVELS else None)


def test_read_only_command_uses_landlock_or_is_refused_without_namespaces(tmp_path: Path) -> None:
    """Landlock alone without namespaces; without both nothing, also where the operator wants no sandbox."""
    alone = poorer(tmp_path, NO_NAMESPACES, sandbox="none", read_only=True)
    assert alone.startswith("landlock |") is HAS_LANDLOCK
    said = poorer(tmp_path, NO_NAMESPACES, NO_LANDLOCK, sandbox="none", read_only=True)
    assert said.startswith("None | namespaces: ") and "; landlock: " in said


MOUNTED = """
import asyncio, os
from pathlib import Path
from gateway.sandbox import namespaces
from gateway.sandbox.kernel import mount
from gateway.sandbox.confinement import find_strongest
from tests.sandbox.machine import order
folder = {folder!r}
namespaces.enter_namespaces(mounts_only=True)
os.mkdir(folder + "/sub")
mount("tmpfs", folder + "/sub", kind="tmpfs", flags=0)
for fifo in (False, True):
    if fifo:
        os.mkfifo(folder + "/sub/fifo")
    choice = asyncio.run(find_strongest("auto", order(Path(folder), level="none", read_only=True)))
    print(choice.level, "landlock" in choice.reason, "fifo' is a FIFO" in choice.reason)
"""


@pytest.mark.parametrize("level", [level for level in READ_ONLY_LEVELS if level == "namespaces"])
def test_uncovered_fifo_refuses_weaker_confinement(level: Level, tmp_path: Path) -> None:
    """With mounts beneath a folder there is no overlay. Landlock alone would let a command empty the FIFO."""
    assert level == "namespaces"
    assert in_child(MOUNTED.format(folder=str(tmp_path))).splitlines() == ["namespaces False False", "None False True"]
