"""Runs commands one after another in its folder, and prints the number of each that has ended.

A program of its own, started in the sandbox; its arguments: a file with a JSON array of `[argv, limit_s]`, and the
number of the first to run. It needs nothing but Python.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

#: The number of this process in a sandbox with processes of its own.
_SECOND = 2


def main() -> None:
    """End behind the last one, or when one of them ends this program."""
    commands = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    signal.signal(signal.SIGALRM, interrupt)
    for number in range(int(sys.argv[2]), len(commands)):
        print(number, "begun", flush=True)
        run(*commands[number])
        print(number, "ended", flush=True)


def run(argv: list[str], limit_s: float) -> None:
    """Run one to its end, or to its limit; what it started ends with it."""
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions, setpgroup=0)
    os.close(null)
    with suppress(TimeoutError, ChildProcessError):
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        os.waitpid(pid, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if os.getpid() == _SECOND:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but the first and this one
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def interrupt(*_: object) -> None:
    """Raise TimeoutError, so that nothing waits again (PEP 475)."""
    raise TimeoutError


main()
