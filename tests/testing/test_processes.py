"""A program's family is found by descent and by session, and strangers are never part of it."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from dataclasses import replace

from gateways import until

from gateway.testing.processes import find_living_process, list_family, list_living, list_processes

# A child in a session of its own and one in ours, both waiting for ever; then the parent waits for a line.
PARENT = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
for own_session in (True, False):
    child = subprocess.Popen(sleep, start_new_session=own_session, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
sys.stdin.readline()
"""


async def test_process_family_is_found_before_and_after_the_parent_ends() -> None:
    """Afterwards only the session tells: what had left it must have been looked at before."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    assert parent.stdin is not None and parent.stdout is not None
    away, near = [int(await parent.stdout.readline()) for _ in range(2)]
    leader = find_living_process(parent.pid)
    assert leader is not None and leader.parent == os.getpid() and leader.session == parent.pid

    before = list_family(leader)
    assert {process.pid for process in before} == {parent.pid, away, near}

    parent.stdin.write(b"\n")
    await parent.wait()
    assert {process.pid for process in list_family(leader)} == {near}
    assert [process.pid for process in list_living(before)] == sorted((away, near))

    for process in list_living(before):
        os.kill(process.pid, 9)
    await until(lambda: not list_living(before))
    assert list_family(leader) == set()


def test_reused_process_id_is_not_part_of_the_family() -> None:
    """It is not in the family, and it is not still living."""
    me = list_processes()[os.getpid()]
    earlier = replace(me, started=me.started - 1)
    assert list_family(earlier) == set() and list_living({earlier}) == []
    assert list_living({me}) == [me]


def test_process_id_zero_returns_none() -> None:
    """None, not an error."""
    assert find_living_process(0) is None
