"""A filter of system calls: no network at all, and what the other layers of the sandbox leave open.

A filter sees numbers and registers, never paths. Refused calls answer EPERM; those of another architecture or ABI,
whose numbers mean something else, ENOSYS.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.confine.kernel import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

#: AUDIT_ARCH_* of the machines whose numbers are below.
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32: Final = 0x40000000
_SECCOMP_MODE_FILTER: Final = 2

# BPF: load a word, jump if equal, jump if at least, return.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_EPERM, _ENOSYS = 1, 38
# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that is refused, with its numbers on x86_64 and aarch64; with `zero`, only if that argument is not 0."""

    name: str
    x86_64: int | None
    aarch64: int | None
    zero: int | None = None


#: The network, other processes' memory and limits, and parts of the kernel that no command needs.
ALWAYS: Final = (
    Refused("socket", 41, 198),
    Refused("io_uring_setup", 425, 425),
    Refused("ptrace", 101, 117),
    Refused("process_vm_readv", 310, 270),
    Refused("process_vm_writev", 311, 271),
    Refused("pidfd_getfd", 438, 438),
    Refused("kcmp", 312, 272),
    Refused("add_key", 248, 217),
    Refused("request_key", 249, 218),
    Refused("keyctl", 250, 219),
    Refused("bpf", 321, 280),
    Refused("perf_event_open", 298, 241),
    Refused("userfaultfd", 323, 282),
    Refused("prlimit64", 302, 261, zero=0),
    Refused("sched_setaffinity", 203, 122, zero=0),
    Refused("sched_setparam", 142, 118, zero=0),
    Refused("sched_setscheduler", 144, 119, zero=0),
    Refused("sched_setattr", 314, 274, zero=0),
    Refused("setpriority", 141, 140),
    Refused("ioprio_set", 251, 30),
)
#: Modes, owners, times and attributes, which Landlock does not guard: needed where mounts are not read-only.
METADATA: Final = (
    Refused("chmod", 90, None),
    Refused("fchmod", 91, 52),
    Refused("fchmodat", 268, 53),
    Refused("fchmodat2", 452, 452),
    Refused("chown", 92, None),
    Refused("fchown", 93, 55),
    Refused("lchown", 94, None),
    Refused("fchownat", 260, 54),
    Refused("setxattr", 188, 5),
    Refused("lsetxattr", 189, 6),
    Refused("fsetxattr", 190, 7),
    Refused("setxattrat", 463, 463),
    Refused("removexattr", 197, 14),
    Refused("lremovexattr", 198, 15),
    Refused("fremovexattr", 199, 16),
    Refused("removexattrat", 466, 466),
    Refused("file_setattr", 469, 469),
    Refused("utime", 132, None),
    Refused("utimes", 235, None),
    Refused("futimesat", 261, None),
    Refused("utimensat", 280, 88, zero=1),  # without a path it is about a file that could be opened
)
#: Where Landlock is too old for it (ABI < 3).
TRUNCATE: Final = (Refused("truncate", 76, 45),)
#: Where Landlock is too old for it (ABI < 6) and all processes of the machine can be named.
SIGNALS: Final = (
    Refused("kill", 62, 129),
    Refused("tkill", 200, 130),
    Refused("tgkill", 234, 131),
    Refused("rt_sigqueueinfo", 129, 138),
    Refused("rt_tgsigqueueinfo", 297, 240),
    Refused("pidfd_send_signal", 424, 424),
)


def known_machine() -> bool:
    """Whether the numbers of this machine are known."""
    return os.uname().machine in _ARCHITECTURES


def program(refused: Sequence[Refused]) -> bytes:
    """The filter as a BPF program, `struct sock_filter[]`, for this machine."""
    machine = os.uname().machine
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    for call in refused:
        number = call.x86_64 if machine == "x86_64" else call.aarch64
        if number is None:
            continue
        if call.zero is None:
            lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
            continue
        low = _ARGUMENTS + 8 * call.zero
        # Both machines are little-endian. After the two loads no number is needed any more: the verdict is final.
        lines += [
            (_EQUAL, 0, 6, number),
            (_LOAD, 0, 0, low),
            (_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, low + 4),
            (_EQUAL, 0, 1, 0),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ERRNO | _EPERM),
        ]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def install(refused: Sequence[Refused]) -> None:
    """Filters the calls of this thread and of all its children, for good."""
    code = program(refused)
    buffer = ctypes.create_string_buffer(code, len(code))
    length = len(code) // 8
    # struct sock_fprog: a 16-bit length, padding, a pointer.
    fprog = (ctypes.c_uint64 * 2)(length, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(fprog))
