"""Descendants: found by whoever reaps orphans, and ended all together."""

import os

from gateway.sandbox import process_tree as family
from tests.sandbox.machine import in_child

REAPER = """
import os, subprocess, time
from gateway.sandbox import process_tree as family
from gateway.sandbox.kernel import PR_SET_CHILD_SUBREAPER, call_prctl
call_prctl(PR_SET_CHILD_SUBREAPER, 1)
def wait_for(count):
    while len(family.list_members()) != count:
        time.sleep(0.005)
def command(member):
    try:
        return open(f"/proc/{member.pid}/comm").read().strip()
    except OSError:
        return "gone"
def wait_for_commands(*names):
    while sorted(map(command, family.list_members())) != sorted(names):
        time.sleep(0.005)
"""


def test_orphans_in_sessions_of_their_own_are_found_and_ended() -> None:
    """Two forks and a new session do not leave the family."""
    code = REAPER + (
        "done = subprocess.run(['/bin/sh', '-c', 'setsid sleep 60 & (sleep 60 &) & exit 3'])\n"
        "wait_for_commands('sleep', 'sleep')\n"  # and no shell on its way to them
        "print(done.returncode, sorted(m.depth for m in family.list_members()))\n"
        "family.end_descendants(grace_s=0)\n"
        "print(family.list_members())\n"
    )
    assert in_child(code).splitlines() == ["3 [1, 1]", "[]"]


def test_process_with_an_ended_main_thread_is_found_and_killed() -> None:
    """The kernel calls it a zombie, and its other threads go on."""
    leaderless = "import ctypes, os, threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"
    leaderless += "; ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)"
    code = REAPER + (
        "import sys\n"
        f"process = subprocess.Popen([sys.executable, '-c', {leaderless!r}])\n"
        "while ') Z ' not in open(f'/proc/{process.pid}/stat').read():\n"
        "    time.sleep(0.005)\n"
        "print([(m.pid == process.pid, m.tasks) for m in family.list_members()])\n"
        "print(family.end_descendants(grace_s=0) == {process.pid: 137}, family.list_members())\n"
        "print(os.path.exists(f'/proc/{process.pid}'))\n"
    )
    assert in_child(code).splitlines() == ["[(True, 2)]", "True []", "False"]


def test_unreaped_zombie_is_listed_only_on_request() -> None:
    """Nobody can end it, and it has a number of the machine's until its parent or its reaper takes note."""
    code = REAPER + (
        "process = subprocess.Popen(['/bin/true'])\n"
        "while ') Z ' not in open(f'/proc/{process.pid}/stat').read():\n"
        "    time.sleep(0.005)\n"
        "print(family.list_members(), [(m.pid == process.pid, m.tasks) for m in family.list_members(ended=True)])\n"
        "process.wait()\n"
        "print(family.list_members(ended=True))\n"
    )
    assert in_child(code).splitlines() == ["[] [(True, 1)]", "[]"]


def test_process_tree_end_sends_sigterm_before_sigkill() -> None:
    """SIGTERM first; whoever does not listen is killed after the grace."""
    code = REAPER + (
        "polite = subprocess.Popen(['/bin/sh', '-c', 'trap \"exit 7\" TERM; sleep 60 & wait'])\n"
        "deaf = subprocess.Popen(['/bin/sh', '-c', 'trap \"\" TERM; while :; do sleep 60; done'])\n"
        "wait_for(4)\n"  # each shell has a child, so it has set its trap
        "codes = family.end_descendants(grace_s=0.3)\n"
        "print(codes[polite.pid], codes[deaf.pid], family.list_members())\n"
    )
    assert in_child(code).endswith("7 137 []")


def test_exit_codes_of_signals_follow_the_shell_convention() -> None:
    """128 and the signal."""
    code = REAPER + (
        "one = subprocess.Popen(['/bin/sh', '-c', 'kill -9 $$'])\n"
        "two = subprocess.Popen(['/bin/sh', '-c', 'exit 4'])\n"
        "wait_for(0)\n"
        "codes = family.reap()\n"
        "print(codes[one.pid], codes[two.pid])\n"
    )
    assert in_child(code) == "137 4"


def test_the_tasks_of_this_user_are_counted() -> None:
    """At least this one."""
    assert family.count_user_tasks() >= 1
    assert all(member.pid != os.getpid() for member in family.list_members())
