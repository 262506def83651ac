"""A filter of system calls: no network at all, and what the other layers of the sandbox leave open.

A filter sees numbers and registers, never paths or structures in memory. Refused calls return EPERM. Calls of another
architecture or ABI, whose numbers mean something else, return ENOSYS, and so does a call with an older form that a
filter can read: programs then use that one.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.sandbox.kernel import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

#: AUDIT_ARCH_* of the machines whose numbers are below.
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32: Final = 0x40000000
_SECCOMP_MODE_FILTER: Final = 2

# BPF: load a word, jump if equal, jump if at least, jump if any bit is set, return, combine with a mask.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_EPERM, _ENOSYS = 1, 38
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_SET_ID: Final = 0o6000  # set-user-id and set-group-id
#: CLONE_NEW* of every kind of namespace but that of time.
_NEW: Final = 0x7E020000
_CREATES: Final = 0x40 | 0x400000  # O_CREAT and O_TMPFILE: without them a mode means nothing
# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


@dataclass(frozen=True, slots=True)
class Bits:
    """A condition on the low half of an argument: one of the bits `any` is set, or all of the bits `all` are."""

    argument: int
    any: int = 0
    all: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that is refused, with its numbers on x86_64 and aarch64.

    `zero`: only if that argument is not 0. `bits`: only if every one of these conditions holds. `answer`: the errno.
    """

    name: str
    x86_64: int | None
    aarch64: int | None
    zero: int | None = None
    bits: tuple[Bits, ...] = ()
    answer: int = _EPERM


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
    # Memory that no process has mapped, and that the launcher therefore cannot count; SysV's outlives its processes.
    Refused("memfd_create", 319, 279),
    Refused("memfd_secret", 447, 447),
    Refused("shmget", 29, 194),
    Refused("semget", 64, 190),
    Refused("msgget", 68, 186),
    Refused("mq_open", 240, 180),
    Refused("mmap", 9, 222, bits=(Bits(3, all=_MAP_SHARED | _MAP_ANONYMOUS),)),
    # In a namespace of users of its own a process has every right: to mount a tmpfs, whose pages no process has mapped,
    # and to reach parts of the kernel that only root reaches. Programs that get ENOSYS for clone3 use clone.
    Refused("unshare", 272, 97),
    Refused("setns", 308, 268),
    Refused("clone", 56, 220, bits=(Bits(0, any=_NEW),)),
    Refused("clone3", 435, 435, answer=_ENOSYS),
    Refused("mount", 165, 40),
    Refused("fsopen", 430, 430),
    Refused("open_tree", 428, 428),
    Refused("move_mount", 429, 429),
    # A file that another user would execute with the rights of the gateway's.
    Refused("chmod", 90, None, bits=(Bits(1, any=_SET_ID),)),
    Refused("fchmod", 91, 52, bits=(Bits(1, any=_SET_ID),)),
    Refused("fchmodat", 268, 53, bits=(Bits(2, any=_SET_ID),)),
    Refused("fchmodat2", 452, 452, bits=(Bits(2, any=_SET_ID),)),
    Refused("creat", 85, None, bits=(Bits(1, any=_SET_ID),)),
    Refused("open", 2, None, bits=(Bits(1, any=_CREATES), Bits(2, any=_SET_ID))),
    Refused("openat", 257, 56, bits=(Bits(2, any=_CREATES), Bits(3, any=_SET_ID))),
    Refused("openat2", 437, 437, answer=_ENOSYS),
    Refused("mknod", 133, None, bits=(Bits(1, any=_SET_ID),)),
    Refused("mknodat", 259, 33, bits=(Bits(2, any=_SET_ID),)),
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
    """Return whether the numbers of this machine are known."""
    return os.uname().machine in _ARCHITECTURES


def program(refused: Sequence[Refused]) -> bytes:
    """Return the filter as a BPF program, `struct sock_filter[]`, for this machine."""
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
        if number is not None:
            verdict = _verdict(call)
            lines += [(_EQUAL, 0, len(verdict), number), *verdict]
            if call.zero is not None or call.bits:
                # The arguments have replaced the number: look at it again for what follows.
                lines.append((_LOAD, 0, 0, _NUMBER))
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _verdict(call: Refused) -> list[tuple[int, int, int, int]]:
    """Return the lines that refuse the call; where a condition does not hold, they end behind the last of them."""
    lines = [(_RETURN, 0, 0, _ERRNO | call.answer)]
    if call.zero is not None:  # both machines are little-endian
        low = _ARGUMENTS + 8 * call.zero
        return [(_LOAD, 0, 0, low), (_EQUAL, 0, 2, 0), (_LOAD, 0, 0, low + 4), (_EQUAL, 1, 0, 0), *lines]
    for bits in reversed(call.bits):
        tested = [(_ANY_BIT, 0, len(lines), bits.any)] if bits.any else []
        if bits.all:
            tested = [(_AND, 0, 0, bits.all), (_EQUAL, 0, len(lines), bits.all)]
        lines = [(_LOAD, 0, 0, _ARGUMENTS + 8 * bits.argument), *tested, *lines]
    return lines


def install(refused: Sequence[Refused]) -> None:
    """Filter the calls of this thread and of all its children, for good."""
    code = program(refused)
    buffer = ctypes.create_string_buffer(code, len(code))
    length = len(code) // 8
    # struct sock_fprog: a 16-bit length, padding, a pointer.
    fprog = (ctypes.c_uint64 * 2)(length, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(fprog))
