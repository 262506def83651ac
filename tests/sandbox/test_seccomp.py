"""The filter of system calls, installed for real."""

from collections.abc import Sequence

import pytest

from gateway.sandbox import seccomp
from tests.sandbox.machine import in_child

INSTALLED = """
import fcntl, mmap, os, resource, shutil, signal, socket, termios
from pathlib import Path
from gateway.sandbox import seccomp
def told(action):
    try:
        action()
    except (OSError, ValueError) as error:
        return type(error).__name__
    return "done"
if seccomp.is_known_machine():
    seccomp.install({groups})
    print(told({action}))
else:
    print("unknown machine")
"""


def expected(outcome: str) -> str:
    return outcome if seccomp.is_known_machine() else "unknown machine"


@pytest.mark.parametrize(
    ("groups", "action", "outcome"),
    [
        ("seccomp.ALWAYS", "lambda: socket.socket(socket.AF_INET)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: socket.socket(socket.AF_UNIX)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: socket.socketpair()[0].close()", "done"),
        ("seccomp.ALWAYS", "lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0].close()", "done"),
        ("seccomp.ALWAYS", "lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: socket.socketpair(socket.AF_INET)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: resource.prlimit(0, resource.RLIMIT_NOFILE)", "done"),
        ("seccomp.ALWAYS", "lambda: os.sched_setaffinity(os.getppid(), {0})", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: os.kill(os.getpid(), 0)", "done"),
        ("seccomp.ALWAYS", "lambda: os.memfd_create('held')", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: mmap.mmap(-1, 4096)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)", "done"),
        ("seccomp.ALWAYS", "lambda: os.chmod('/nowhere', 0o4755)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: os.chmod('/nowhere', 0o2755)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: os.chmod('/nowhere', 0o755)", "FileNotFoundError"),
        ("seccomp.ALWAYS", "lambda: os.open('/nowhere/new', os.O_CREAT, 0o4755)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: os.open('/nowhere/new', os.O_CREAT, 0o755)", "FileNotFoundError"),
        ("seccomp.ALWAYS", "lambda: os.open('/nowhere/old', os.O_RDONLY, 0o4755)", "FileNotFoundError"),
        ("seccomp.ALWAYS", "lambda: os.mknod('/nowhere/new', 0o104755)", "PermissionError"),
        ("seccomp.ALWAYS", "lambda: os.mknod('/nowhere/new', 0o100755)", "FileNotFoundError"),
        ("seccomp.ALWAYS", "lambda: os.splice(os.open('/bin/sh', 0), os.pipe()[1], 1, offset_src=0)", "OSError"),
        ("seccomp.ALWAYS", "lambda: os.sendfile(os.pipe()[1], os.open('/bin/sh', 0), 0, 1)", "OSError"),
        ("seccomp.ALWAYS", "lambda: shutil.copyfile('/bin/sh', '/dev/null')", "done"),
        ("seccomp.METADATA", "lambda: os.chmod('.', 0o755)", "PermissionError"),
        ("seccomp.METADATA", "lambda: os.chown('.', -1, -1)", "PermissionError"),
        ("seccomp.METADATA", "lambda: os.utime('.')", "PermissionError"),
        ("seccomp.METADATA", "lambda: os.utime(os.open('.', os.O_RDONLY))", "done"),
        ("seccomp.TRUNCATE", "lambda: os.truncate('/nowhere', 0)", "PermissionError"),
        ("seccomp.TRUNCATE", "lambda: os.open('/nowhere', os.O_RDONLY | os.O_TRUNC)", "PermissionError"),
        ("seccomp.TRUNCATE", "lambda: os.open('/nowhere', os.O_WRONLY | os.O_TRUNC)", "FileNotFoundError"),
        ("seccomp.TRUNCATE", "lambda: os.open('/nowhere', os.O_RDONLY)", "FileNotFoundError"),
        ("seccomp.SIGNALS", "lambda: os.kill(os.getppid(), 0)", "PermissionError"),
        ("seccomp.SIGNALS", "lambda: fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())", "PermissionError"),
        ("seccomp.SIGNALS", "lambda: fcntl.fcntl(1, fcntl.F_GETOWN)", "done"),
        ("seccomp.SIGNALS", "lambda: fcntl.ioctl(socket.socketpair()[0], 0x8901, b'1234')", "PermissionError"),
        ("seccomp.SIGNALS", "lambda: fcntl.ioctl(socket.socketpair()[0], 0x8902, b'1234')", "PermissionError"),
        ("seccomp.SIGNALS", "lambda: fcntl.ioctl(os.pipe()[0], termios.FIONREAD, b'1234')", "done"),
        ("seccomp.READ_ONLY", "lambda: mmap.mmap(-1, 4096, flags=0x40022)", "PermissionError"),
        ("seccomp.READ_ONLY", "lambda: mmap.mmap(-1, 4096, flags=0x22)", "done"),
        ("seccomp.READ_ONLY", "lambda: fcntl.flock(0, fcntl.LOCK_SH)", "PermissionError"),
        ("seccomp.READ_ONLY", "lambda: fcntl.lockf(1, fcntl.LOCK_EX)", "PermissionError"),
        ("seccomp.READ_ONLY", "lambda: fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 9)", "done"),
        ("seccomp.READ_ONLY", "lambda: fcntl.fcntl(1, fcntl.F_SETFD, 0)", "done"),
        ("seccomp.READ_ONLY", "lambda: fcntl.ioctl(os.pipe()[0], termios.FIONREAD, b'1234')", "done"),
        ("seccomp.READ_ONLY", "lambda: fcntl.ioctl(os.pipe()[0], termios.TIOCSTI, b'x')", "OSError"),
        ("seccomp.READ_ONLY", "lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", "ValueError"),
        ("seccomp.READ_ONLY", "lambda: resource.getrlimit(resource.RLIMIT_CORE)", "done"),
        ("seccomp.READ_ONLY", "lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))", "done"),
        ("seccomp.READ_ONLY_METADATA", "lambda: os.utime(os.open('.', os.O_RDONLY))", "PermissionError"),
    ],
)
def test_refused_calls_answer_eperm(groups: str, action: str, outcome: str) -> None:
    """And the calls beside them work."""
    code = INSTALLED.replace("{groups}", groups).replace("{action}", action)
    assert in_child(code) == expected(outcome)


def test_all_filter_groups_together_load_into_the_kernel() -> None:
    """Programs have at most 4096 instructions and must end."""
    groups = (
        "(*seccomp.ALWAYS, *seccomp.READ_ONLY_METADATA, *seccomp.TRUNCATE, *seccomp.SIGNALS, *seccomp.READ_ONLY),"
        " newer=False"
    )
    code = INSTALLED.replace("{groups}", groups).replace("{action}", "lambda: None")
    assert in_child(code) == expected("done")


def test_unknown_newer_system_calls_return_not_implemented() -> None:
    """Where they are not allowed: a call of a number that this file does not know may do anything."""
    code = INSTALLED.replace("{groups}", "(), newer=False").replace("{action}", "lambda: os.pidfd_open(os.getpid())")
    assert in_child(code) == expected("done")
    older = code.replace("def told", "seccomp._NEWEST = 433  # pidfd_open is 434\ndef told")
    assert in_child(older) == expected("OSError")


@pytest.mark.parametrize("calls", [seccomp.ALWAYS, seccomp.METADATA, seccomp.TRUNCATE, seccomp.READ_ONLY])
def test_system_call_is_listed_only_once(calls: Sequence[seccomp.RefusedSyscall]) -> None:
    """Two lines for one call would contradict each other unseen, unless each is about some of its uses."""
    for numbers in ([c.x86_64 for c in calls], [c.aarch64 for c in calls], [c.name for c in calls]):
        given = [number for number in numbers if number is not None]
        repeated = {number for number in given if given.count(number) > 1}
        assert all(call.when for call, number in zip(calls, numbers, strict=True) if number in repeated)
