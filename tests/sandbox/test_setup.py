"""The steps before a command: each failure is told, and nothing runs after it."""

import asyncio
from pathlib import Path

import pytest
from gateways import until

from gateway.sandbox import setup
from gateway.sandbox.launch_messages import Level
from tests.sandbox.machine import EVERY_LEVEL, in_child, order, run_order, shell, survivors


@pytest.mark.parametrize("level", EVERY_LEVEL)
async def test_missing_work_folder_prevents_the_command(level: Level, tmp_path: Path) -> None:
    """Nothing runs anywhere else instead."""
    finished = await shell(tmp_path / "gone", "echo ran", level=level)
    assert finished.outcome.end in ("not_started", "unconfined")
    assert finished.stdout == ""


async def test_non_executable_program_is_reported_with_its_name(tmp_path: Path) -> None:
    """With the name and the reason."""
    (tmp_path / "text").write_text("no program")
    finished = await run_order(order(tmp_path, "./text", level="none"))
    assert finished.outcome.end == "not_started"
    assert finished.outcome.detail == "'./text': Permission denied"


@pytest.mark.parametrize("level", EVERY_LEVEL)
async def test_command_starts_with_default_signal_handlers(level: Level, tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a pipeline must still end when its reader does."""
    finished = await shell(tmp_path, "yes | head -n 1; trap", level=level)
    assert (finished.outcome.end, finished.stdout, finished.stderr) == ("exited", "y\n", "")


@pytest.mark.parametrize("level", EVERY_LEVEL)
async def test_command_inherits_only_the_standard_descriptors(level: Level, tmp_path: Path) -> None:
    """No way to the launcher's own pipes: every other number is closed."""
    tries = "for n in 3 4 5 6 7 8 9; do (: >&$n) 2>/dev/null && echo open $n; done; cat; echo end"
    finished = await shell(tmp_path, tries, level=level)
    assert finished.stdout == "end\n"


@pytest.mark.parametrize("level", EVERY_LEVEL)
async def test_command_has_a_higher_oom_score_than_the_gateway(level: Level, tmp_path: Path) -> None:
    """The kernel is told so."""
    running = asyncio.create_task(shell(tmp_path, "sleep 60; true", level=level))
    await until(lambda: survivors(tmp_path))
    scores = {Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in survivors(tmp_path)}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert scores == {"500\n"}


def test_exception_in_the_child_is_reported_and_exits() -> None:
    """Whatever goes wrong in the child: it never returns into the launcher's code."""
    printed = in_child(
        "import os\nfrom gateway.sandbox import setup\n"
        "r, w = os.pipe()\n"
        "def become(): raise RuntimeError('odd')\n"
        "pid = setup.fork(become, report=w)\n"
        "os.close(w)\n"
        "print(os.read(r, 999).decode().strip(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert "odd" in printed and '"unconfined"' in printed and printed.endswith("125")


def test_automounter_is_detected() -> None:
    """Wherever it waits for names, but for the one of systemd in /proc."""
    usual = """22 28 0:20 / /proc rw,nosuid - proc proc rw
38 22 0:33 / /proc/sys/fs/binfmt_misc rw,relatime shared:16 - autofs systemd-1 rw,fd=29,pgrp=1,direct
60 28 0:50 / /autofs rw - tmpfs autofs rw
"""
    assert setup.find_network_folder(usual, ("/",)) is None
    hosts = usual + "61 28 0:51 / /net rw shared:9 - autofs -hosts rw,fd=6,indirect\n"
    assert setup.find_network_folder(hosts, ("/",)) == "/net"


def test_automount_below_a_shown_path_is_detected() -> None:
    """Also where its name holds a blank, and not where only its neighbour is shown, or something lies over it.

    So is AFS, which asks for cells.
    """
    automounted = "61 28 0:51 / /srv/a\\040b rw shared:9 - autofs /etc/auto.misc rw,fd=6,indirect\n"
    for shown in (("/usr", "/srv"), ("/srv/a b",), ("/",)):
        assert setup.find_network_folder(automounted, shown) == "/srv/a b"
    for elsewhere in ((), ("/srv/a",), ("/srv/a b/host/export",)):
        assert setup.find_network_folder(automounted, elsewhere) is None
    mounted = automounted + "70 61 8:1 / /srv/a\\040b rw shared:9 - ext4 /dev/sda1 rw\n"
    assert setup.find_network_folder(mounted, ("/",)) is None
    assert setup.find_network_folder("61 28 0:51 / /afs rw,relatime - afs none rw,dyn\n", ("/",)) == "/afs"


def test_core_pattern_socket_is_detected() -> None:
    """The kernel connects to it whatever limit of core files a process has; a file and a handler look at the limit."""
    assert [setup.connects_at_crashes(p) for p in ("core", "|/bin/handler %p", "@/run/crash", "@@/run/crash", "")] == [
        *(False, False, True, True, False)
    ]
