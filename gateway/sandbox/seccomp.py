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
from typing import Final, TypeAlias

from gateway.sandbox.kernel import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, call_prctl

#: AUDIT_ARCH_* of the machines whose numbers are below.
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32: Final = 0x40000000
_SECCOMP_MODE_FILTER: Final = 2

# BPF: load a word, jump if equal, jump if at least, jump if any bit is set, return, combine with a mask.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_EPERM, _EAGAIN, _EINVAL, _ENOTTY, _ENOSYS = 1, 11, 22, 25, 38
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000
_SET_ID: Final = 0o6000  # set-user-id and set-group-id
#: CLONE_NEW* of every kind of namespace but that of time.
_NEW: Final = 0x7E020000
_CREATES: Final = 0x40 | 0x400000  # O_CREAT and O_TMPFILE: without them a mode means nothing
_ACCESS, _TRUNCATES = 0x3, 0x200  # O_WRONLY and O_RDWR; O_TRUNC
_DATAGRAM: Final = 0x2  # a bit of SOCK_DGRAM and SOCK_RAW, and not of SOCK_STREAM and SOCK_SEQPACKET
_NOT_UNIX: Final = 0xFFFFFFFE  # every bit that AF_UNIX lacks
#: fcntl(2): F_SETOWN and F_SETOWN_EX name the process that a descriptor sends signals to.
_OWNERS: Final = (8, 15)
#: fcntl(2): F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE, F_NOTIFY, F_SET_RW_HINT, F_SET_FILE_RW_HINT.
_LOCKS_AND_HINTS: Final = (6, 7, 37, 38, 1024, 1026, 1036, 1038)
#: ioctl(2), what only reads, or is about the descriptor itself: TCGETS, TIOCGPGRP, TIOCOUTQ, TIOCGWINSZ, FIONREAD,
#: FIONBIO, FIONCLEX, FIOCLEX, FIGETBSZ, FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FIEMAP, FS_IOC_FSGETXATTR.
_ASKING: Final = (
    *(0x5401, 0x540F, 0x5411, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x2),
    *(0x80086601, 0x80087601, 0xC020660B, 0x801C581F),
)
#: ioctl(2): FIOSETOWN and SIOCSPGRP, the same for a socket.
_SOCKET_OWNERS: Final = (0x8901, 0x8902)
_RLIMIT_CORE: Final = 4
_PR_SET_DUMPABLE: Final = 4
#: futex(2): a bit of what stays within a process; FUTEX_WAIT and FUTEX_WAIT_BITSET, with and without
#: FUTEX_CLOCK_REALTIME; FUTEX_WAKE and FUTEX_WAKE_BITSET.
_FUTEX_PRIVATE: Final = 0x80
_FUTEX_WAITS: Final = (0, 9, 0x100, 0x109)
_FUTEX_WAKES: Final = (1, 10)
#: The newest call that this file knows (file_setattr, Linux 6.17): the same number on every machine.
_NEWEST: Final = 469
# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


@dataclass(frozen=True, slots=True)
class Bits:
    """A condition on the low half of an argument: a bit of `any` is set, all of `all` are, and none of `none`."""

    argument: int
    any: int = 0
    all: int = 0
    none: int = 0


@dataclass(frozen=True, slots=True)
class OneOf:
    """A condition on the low half of an argument: it is one of the values, or, `inverted`, none of them."""

    argument: int
    values: tuple[int, ...]
    inverted: bool = False


@dataclass(frozen=True, slots=True)
class NotZero:
    """A condition on the whole of an argument."""

    argument: int


Condition: TypeAlias = Bits | OneOf | NotZero


@dataclass(frozen=True, slots=True)
class RefusedSyscall:
    """A call that is refused, with its numbers on x86_64 and aarch64.

    `when`: only if every one of these conditions holds. `answer`: the errno.
    """

    name: str
    x86_64: int | None
    aarch64: int | None
    when: tuple[Condition, ...] = ()
    answer: int = _EPERM


#: The network, other processes' memory and limits, and parts of the kernel that no command needs.
ALWAYS: Final = (
    RefusedSyscall("socket", 41, 198),
    # A datagram socket sends to any address, although it has a peer: to /dev/log, for one.
    RefusedSyscall("socketpair", 53, 199, when=(Bits(1, any=_DATAGRAM),)),
    RefusedSyscall("socketpair", 53, 199, when=(Bits(0, any=_NOT_UNIX),)),
    RefusedSyscall("io_uring_setup", 425, 425),
    RefusedSyscall("ptrace", 101, 117),
    RefusedSyscall("process_vm_readv", 310, 270),
    RefusedSyscall("process_vm_writev", 311, 271),
    RefusedSyscall("pidfd_getfd", 438, 438),
    RefusedSyscall("kcmp", 312, 272),
    RefusedSyscall("add_key", 248, 217),
    RefusedSyscall("request_key", 249, 218),
    RefusedSyscall("keyctl", 250, 219),
    RefusedSyscall("bpf", 321, 280),
    RefusedSyscall("perf_event_open", 298, 241),
    RefusedSyscall("userfaultfd", 323, 282),
    RefusedSyscall("prlimit64", 302, 261, when=(NotZero(0),)),
    RefusedSyscall("sched_setaffinity", 203, 122, when=(NotZero(0),)),
    RefusedSyscall("sched_setparam", 142, 118, when=(NotZero(0),)),
    RefusedSyscall("sched_setscheduler", 144, 119, when=(NotZero(0),)),
    RefusedSyscall("sched_setattr", 314, 274, when=(NotZero(0),)),
    RefusedSyscall("setpriority", 141, 140),
    RefusedSyscall("ioprio_set", 251, 30),
    # Memory that no process has mapped, and that the launcher therefore cannot count; SysV's outlives its processes.
    RefusedSyscall("memfd_create", 319, 279),
    RefusedSyscall("memfd_secret", 447, 447),
    RefusedSyscall("shmget", 29, 194),
    RefusedSyscall("semget", 64, 190),
    RefusedSyscall("msgget", 68, 186),
    RefusedSyscall("mq_open", 240, 180),
    # The number of another process's segment, set or queue is easily guessed, and is all that these need.
    RefusedSyscall("shmat", 30, 196),
    RefusedSyscall("shmctl", 31, 195),
    RefusedSyscall("semop", 65, 193),
    RefusedSyscall("semtimedop", 220, 192),
    RefusedSyscall("semctl", 66, 191),
    RefusedSyscall("msgsnd", 69, 189),
    RefusedSyscall("msgrcv", 70, 188),
    RefusedSyscall("msgctl", 71, 187),
    RefusedSyscall("mq_unlink", 241, 181),
    RefusedSyscall("mmap", 9, 222, when=(Bits(3, all=_MAP_SHARED | _MAP_ANONYMOUS),)),
    # A pipe that holds a part of a huge page keeps the whole of it, also when its process has given it back.
    RefusedSyscall("vmsplice", 278, 75, answer=_ENOSYS),
    # So does a pipe that holds one byte of a file, of the pages in which the file is cached. Programs then copy.
    RefusedSyscall("splice", 275, 76, answer=_EINVAL),
    RefusedSyscall("sendfile", 40, 71, answer=_EINVAL),
    # A set of rules holds a few MB of the kernel's memory. Without this call there seems to be no Landlock.
    RefusedSyscall("landlock_create_ruleset", 444, 444, answer=_ENOSYS),
    # In its own user namespace a process has every right: to mount a tmpfs, whose pages no process has mapped, and to
    # reach parts of the kernel that only root reaches. Programs that get ENOSYS for clone3 use clone.
    RefusedSyscall("unshare", 272, 97),
    RefusedSyscall("setns", 308, 268),
    RefusedSyscall("clone", 56, 220, when=(Bits(0, any=_NEW),)),
    RefusedSyscall("clone3", 435, 435, answer=_ENOSYS),
    RefusedSyscall("mount", 165, 40),
    RefusedSyscall("fsopen", 430, 430),
    RefusedSyscall("open_tree", 428, 428),
    RefusedSyscall("move_mount", 429, 429),
    # A file that another user would execute with the rights of the gateway's.
    RefusedSyscall("chmod", 90, None, when=(Bits(1, any=_SET_ID),)),
    RefusedSyscall("fchmod", 91, 52, when=(Bits(1, any=_SET_ID),)),
    RefusedSyscall("fchmodat", 268, 53, when=(Bits(2, any=_SET_ID),)),
    RefusedSyscall("fchmodat2", 452, 452, when=(Bits(2, any=_SET_ID),)),
    RefusedSyscall("creat", 85, None, when=(Bits(1, any=_SET_ID),)),
    RefusedSyscall("open", 2, None, when=(Bits(1, any=_CREATES), Bits(2, any=_SET_ID))),
    RefusedSyscall("openat", 257, 56, when=(Bits(2, any=_CREATES), Bits(3, any=_SET_ID))),
    RefusedSyscall("openat2", 437, 437, answer=_ENOSYS),
    RefusedSyscall("mknod", 133, None, when=(Bits(1, any=_SET_ID),)),
    RefusedSyscall("mknodat", 259, 33, when=(Bits(2, any=_SET_ID),)),
)
#: Modes, owners, times and attributes, which Landlock does not guard: needed where mounts are not read-only.
METADATA: Final = (
    RefusedSyscall("chmod", 90, None),
    RefusedSyscall("fchmod", 91, 52),
    RefusedSyscall("fchmodat", 268, 53),
    RefusedSyscall("fchmodat2", 452, 452),
    RefusedSyscall("chown", 92, None),
    RefusedSyscall("fchown", 93, 55),
    RefusedSyscall("lchown", 94, None),
    RefusedSyscall("fchownat", 260, 54),
    RefusedSyscall("setxattr", 188, 5),
    RefusedSyscall("lsetxattr", 189, 6),
    RefusedSyscall("fsetxattr", 190, 7),
    RefusedSyscall("setxattrat", 463, 463),
    RefusedSyscall("removexattr", 197, 14),
    RefusedSyscall("lremovexattr", 198, 15),
    RefusedSyscall("fremovexattr", 199, 16),
    RefusedSyscall("removexattrat", 466, 466),
    RefusedSyscall("file_setattr", 469, 469),
    RefusedSyscall("utime", 132, None),
    RefusedSyscall("utimes", 235, None),
    RefusedSyscall("futimesat", 261, None),
    RefusedSyscall("utimensat", 280, 88, when=(NotZero(1),)),  # without a path it is about a file that could be opened
)
#: Where Landlock is too old for it (ABI < 3).
TRUNCATE: Final = (
    RefusedSyscall("truncate", 76, 45),
    # What is opened for reading is truncated, too.
    RefusedSyscall("open", 2, None, when=(Bits(1, all=_TRUNCATES, none=_ACCESS),)),
    RefusedSyscall("openat", 257, 56, when=(Bits(2, all=_TRUNCATES, none=_ACCESS),)),
)
#: Where Landlock is too old for it (ABI < 6) and all processes of the machine can be named.
SIGNALS: Final = (
    RefusedSyscall("kill", 62, 129),
    RefusedSyscall("tkill", 200, 130),
    RefusedSyscall("tgkill", 234, 131),
    RefusedSyscall("rt_sigqueueinfo", 129, 138),
    RefusedSyscall("rt_tgsigqueueinfo", 297, 240),
    RefusedSyscall("pidfd_send_signal", 424, 424),
    RefusedSyscall("fcntl", 72, 25, when=(OneOf(1, _OWNERS),)),
    RefusedSyscall("ioctl", 16, 29, when=(OneOf(1, _SOCKET_OWNERS),)),
)
#: For commands that may have no effect: what needs no right to write, and others notice all the same.
READ_ONLY: Final = (
    # Locks, leases and hints on a file that is open for reading hold up its writers.
    RefusedSyscall("flock", 73, 32),
    RefusedSyscall("fcntl", 72, 25, when=(OneOf(1, _LOCKS_AND_HINTS),)),
    # Of watches a user has a few, for all processes together.
    RefusedSyscall("inotify_init", 253, None),
    RefusedSyscall("inotify_init1", 294, 26),
    RefusedSyscall("fanotify_init", 300, 262),
    RefusedSyscall("sync", 162, 81),
    RefusedSyscall("syncfs", 306, 267),
    RefusedSyscall("quotactl", 179, 60),  # Q_SYNC: it writes the quotas of every file system
    RefusedSyscall("quotactl_fd", 443, 443),
    # Flags, labels, snapshots and encryption of a file or folder that is open for reading; input for a terminal.
    RefusedSyscall("ioctl", 16, 29, when=(OneOf(1, _ASKING, inverted=True),), answer=_ENOTTY),
    RefusedSyscall("connect", 42, 203),
    RefusedSyscall("bind", 49, 200),
    RefusedSyscall("listen", 50, 201),
    # A socket that waits in another one (SCM_RIGHTS) belongs to no process, so that its memory is not counted.
    RefusedSyscall("sendmsg", 46, 211),
    RefusedSyscall("sendmmsg", 307, 269),
    # A limit of 1 byte keeps the machine's handler of crashes from storing one (core(5)); 0 does not.
    RefusedSyscall("setrlimit", 160, 164, when=(OneOf(0, (_RLIMIT_CORE,)),)),
    RefusedSyscall("prlimit64", 302, 261, when=(OneOf(1, (_RLIMIT_CORE,)), NotZero(2))),
    # Of a process that hides, the launcher sees neither the sockets nor what it watches.
    RefusedSyscall("prctl", 157, 167, when=(OneOf(0, (_PR_SET_DUMPABLE,)),)),
    # The machine has so many events of asynchronous I/O and so many huge pages, for all of its users together.
    RefusedSyscall("io_setup", 206, 0),
    RefusedSyscall("mmap", 9, 222, when=(Bits(3, all=_MAP_HUGETLB),)),
    # A futex in a file is one for all who map it, also for reading, also through an overlay. A process that waits there
    # takes another's wake-up, and one that requeues takes the waiters. A wait ends at once, as if the value had
    # changed, since C libraries join threads so; waking up others is harmless (futex(2): wake-ups may be spurious).
    RefusedSyscall("futex", 202, 98, when=(Bits(1, none=_FUTEX_PRIVATE), OneOf(1, _FUTEX_WAITS)), answer=_EAGAIN),
    RefusedSyscall(
        *("futex", 202, 98),
        when=(Bits(1, none=_FUTEX_PRIVATE), OneOf(1, _FUTEX_WAITS + _FUTEX_WAKES, inverted=True)),
        answer=_ENOSYS,
    ),
    RefusedSyscall("futex_waitv", 449, 449, answer=_ENOSYS),
    RefusedSyscall("futex_wake", 454, 454, answer=_ENOSYS),
    RefusedSyscall("futex_wait", 455, 455, answer=_ENOSYS),
    RefusedSyscall("futex_requeue", 456, 456, answer=_ENOSYS),
)
#: The same where mounts are not read-only: METADATA, and the times of a file that is open for reading.
READ_ONLY_METADATA: Final = (*METADATA, RefusedSyscall("utimensat", 280, 88))


def is_known_machine() -> bool:
    """Return whether the numbers of this machine are known."""
    return os.uname().machine in _ARCHITECTURES


def build_program(refused: Sequence[RefusedSyscall], *, newer: bool = True) -> bytes:
    """Return the filter as a BPF program, `struct sock_filter[]`, for this machine.

    `newer`: whether calls that came after this file are allowed. If not, they do not exist (ENOSYS).
    """
    machine = os.uname().machine
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if not newer or machine == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _X32 if newer else _NEWEST + 1), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    for call in refused:
        number = call.x86_64 if machine == "x86_64" else call.aarch64
        if number is not None:
            verdict = _compile_refusal(call)
            lines += [(_EQUAL, 0, len(verdict), number), *verdict]
            if call.when:
                # The arguments have replaced the number: look at it again for what follows.
                lines.append((_LOAD, 0, 0, _NUMBER))
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


_Line: TypeAlias = tuple[int, int, int, int]


def _compile_refusal(call: RefusedSyscall) -> list[_Line]:
    """Return the lines that refuse the call; where a condition does not hold, they end behind the last of them."""
    lines: list[_Line] = [(_RETURN, 0, 0, _ERRNO | call.answer)]
    for condition in reversed(call.when):
        lines = [*_compile_condition(condition, len(lines)), *lines]
    return lines


def _compile_condition(condition: Condition, rest: int) -> list[_Line]:
    """Return the lines that go on if the condition holds, and jump over the `rest` behind them if not."""
    low = _ARGUMENTS + 8 * condition.argument  # both machines are little-endian
    load = (_LOAD, 0, 0, low)
    if isinstance(condition, NotZero):
        return [load, (_EQUAL, 0, 2, 0), (_LOAD, 0, 0, low + 4), (_EQUAL, rest, 0, 0)]
    if isinstance(condition, OneOf):
        left = range(len(condition.values) - 1, -1, -1)
        pairs = list(zip(left, condition.values, strict=True))
        if condition.inverted:
            return [load, *((_EQUAL, after + rest, 0, value) for after, value in pairs)]
        return [load, *((_EQUAL, after, 0 if after else rest, value) for after, value in pairs)]
    tests: list[_Line] = []
    if condition.all:
        tests = [(_AND, 0, 0, condition.all), (_EQUAL, 0, rest, condition.all)]
    if condition.none:
        tests = [(_ANY_BIT, rest + len(tests), 0, condition.none), *tests]
    if condition.any:
        tests = [(_ANY_BIT, 0, rest + len(tests), condition.any), *tests]
    return [load, *tests]


def install(refused: Sequence[RefusedSyscall], *, newer: bool = True) -> None:
    """Filter the calls of this thread and of all its children, for good. See `build_program`."""
    code = build_program(refused, newer=newer)
    buffer = ctypes.create_string_buffer(code, len(code))
    length = len(code) // 8
    # struct sock_fprog: a 16-bit length, padding, a pointer.
    fprog = (ctypes.c_uint64 * 2)(length, ctypes.addressof(buffer))
    call_prctl(PR_SET_NO_NEW_PRIVS, 1)
    call_prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(fprog))
