"""Runs commands one after another in the folder `work`, and prints the first that left a trace, as one line of JSON.

A program of its own, started in the sandbox, with the file of commands as its argument: a JSON array of
`{"text", "argv", "environment"}`. It needs nothing but Python.
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

#: Far longer than any of them takes on a busy machine.
LIMIT_S = 30
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Ends with "" where nothing happened."""
    commands = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    arena = str(Path.cwd())
    os.chdir("work")
    before = seen(arena)
    for command in commands:
        slip = run(command["argv"], command["environment"]) or ("" if seen(arena) == before else "the folder changed")
        if slip:
            changed = sorted(set(before.items()) ^ set(seen(arena).items()))[:5]
            print(json.dumps({"slip": slip, "text": command["text"], "argv": command["argv"], "changed": changed}))
            return


def run(argv: list[str], environment: dict[str, str]) -> str:
    """Return the problem of the run; "": none."""
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    try:
        pid = os.posix_spawnp(argv[0], argv, environment, file_actions=actions, setpgroup=0)
    except FileNotFoundError:
        return ""
    finally:
        os.close(null)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, 1)
    try:
        os.waitpid(pid, 0)
    except InterruptedError:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return f"it ran longer than {LIMIT_S} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        os.killpg(pid, signal.SIGKILL)
        return "a process stayed"
    return ""


def seen(folder: str) -> dict[str, str]:
    """All that is below the folder; times of reading do not count."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            found[entry.path] = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_mode}"
            if entry.is_dir(follow_symlinks=False):
                found.update(seen(entry.path))
    return found


main()
