"""The memory of a command's processes together, also where none of them has it mapped."""

import os
import subprocess
from pathlib import Path

import pytest

from gateway.sandbox.launch_messages import Level, ProcessLimits
from gateway.sandbox.memory import UNBOUNDED, measure_held_bytes, read_numbers, sum_shown_bytes
from tests.sandbox.machine import CONFINED, EVERY_LEVEL, PYTHON, order, run_order

confined = pytest.mark.parametrize("level", CONFINED)
LIMITS = ProcessLimits(memory_bytes=256 << 20)

MEMFD = """
import os, time
for number in range(60):
    held = os.memfd_create("held")
    for _ in range(15):
        os.write(held, bytes(1 << 20))
print("held 900 MB")
time.sleep(30)
"""
SHARED = """
import mmap, time
kept = [mmap.mmap(-1, 20 << 20) for _ in range(45)]
for one in kept:
    one.write(bytes(20 << 20))
print("held 900 MB")
time.sleep(30)
"""
ZERO = """
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
device = os.open("/dev/zero", os.O_RDWR)
while True:  # each turn leaves 20 MB behind one page
    size = 20 << 20
    place = libc.mmap(None, size, 3, mmap.MAP_SHARED, device, 0)
    ctypes.memset(place, 1, size)
    libc.munmap(place + 4096, size - 4096)
"""
SOCKETS = """
import os, socket, time
for _ in range(4):
    os.fork()
kept = []
for _ in range(100):
    pair = socket.socketpair()
    pair[0].setblocking(False)
    try:
        while True:
            pair[0].send(bytes(1 << 16))
    except BlockingIOError:
        kept.append(pair)
print("held 300 MB")
time.sleep(30)
"""
#: The first thread of each process ends, which it is told (set_tid_address, exit), and shows no memory from then on.
ENDED = """
import ctypes, os, threading, time
tells, ends = (218, 60) if os.uname().machine == "x86_64" else (96, 93)
for _ in range(2):
    os.fork()
first = ctypes.c_int(1)
def hold():
    while first.value:
        time.sleep(0.01)
    held = bytearray(b"x") * (150 << 20)
    time.sleep(30)
    print("held 600 MB")
threading.Thread(target=hold).start()
libc = ctypes.CDLL(None)
libc.syscall(tells, ctypes.byref(first))
libc.syscall(ends, 0)
"""
#: Descriptors that a thread has for itself (close_range with CLOSE_RANGE_UNSHARE).
THREADS = """
import ctypes, os, threading
def hold():
    ctypes.CDLL(None).syscall(436, 1000, 1000, 2)
    MAIN
threads = [threading.Thread(target=hold) for _ in range(16)]
for thread in threads:
    thread.start()
""".replace("MAIN", SOCKETS.replace("for _ in range(4):\n    os.fork()\n", "").replace("\n", "\n    "))
#: A pipe keeps a huge page by a part of it, behind the end of the mapping.
PIPES = """
import ctypes, mmap, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, vmsplice = ctypes.c_void_p, 278 if os.uname().machine == "x86_64" else 75
kept, huge = [], 2 << 20
for _ in range(8):
    place = libc.mmap(None, ctypes.c_size_t(33 * huge), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    first = -(-place // huge) * huge
    libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(32 * huge), 14)  # MADV_HUGEPAGE
    ctypes.memset(first, 1, 32 * huge)
    for number in range(32):
        if number % 16 == 0:
            kept.append(os.pipe())
        part = (ctypes.c_ulong * 2)(first + number * huge, 4096)
        if libc.syscall(vmsplice, kept[-1][1], part, ctypes.c_ulong(1), 2) != 4096:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(33 * huge))
print("held 512 MB")
time.sleep(30)
"""
#: What a process watches: the same file again and again, under another number and by another descriptor each time.
WATCHES = """
import os, select, time
def watch():
    watching = [select.epoll() for _ in range(60)]
    files = [os.eventfd(0) for _ in range(60)]
    for file in files:
        for number in range(130, 250):
            os.dup2(file, number)
            for one in watching:
                one.register(number)
            os.close(number)
    return watching, files
kept = watch()
print("held 432000 watches")
time.sleep(30)
"""
#: Mappings of one page each, of which none is touched; filters of system calls of one line each.
MAPPINGS = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
for _ in range(4):
    os.fork()
place = libc.mmap(None, ctypes.c_size_t(60000 * 4096), 3, 0x22, -1, 0)
for number in range(0, 60000, 2):
    if libc.mprotect(ctypes.c_void_p(place + number * 4096), 4096, 1):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
time.sleep(30)
print("held 960000 mappings")
"""
FILTERS = """
import ctypes, os, struct, time
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(3):
    os.fork()
line = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), 8)
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(line))
for _ in range(5000):
    if libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
time.sleep(30)
print("held 40000 filters")
"""
#: Rules of Landlock: 65,536 in each set.
RULES = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(100):
    rules = libc.syscall(444, (ctypes.c_uint64 * 2)(0, 3), 16, 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for port in range(1 << 16):
        libc.syscall(445, rules, 2, (ctypes.c_uint64 * 2)(3, port), 0)
print("held 400 MB")
time.sleep(30)
"""
#: A pipe keeps the pages in which a file is cached, and a socket as well: up to 2 MiB by one byte.
CACHED = """
import os
with open("file", "wb+") as file:
    file.write(bytes(1 << 20))
    file.flush()
    CALL
print("held 1 MB")
"""
SPLICED = CACHED.replace("CALL", "os.splice(file.fileno(), os.pipe()[1], 1, offset_src=0)")
SENT = CACHED.replace("CALL", "os.sendfile(os.pipe()[1], file.fileno(), 0, 1)")
#: What waits to be read of notices about files.
NOTICES = """
import ctypes, os, time
libc = ctypes.CDLL(None)
for _ in range(100):
    libc.inotify_add_watch(libc.inotify_init1(0), b".", 0xFFF)
names = ["%s%d" % ("n" * 240, number) for number in range(2)]
open(names[0], "w").close()
for number in range(8000):
    os.rename(names[number % 2], names[1 - number % 2])
time.sleep(30)
print("held 800 MB")
"""
#: Locks on parts of files, of both kinds (F_SETLK, F_OFD_SETLK): each takes memory of the kernel's.
LOCKS = """
import fcntl, os, struct, time
for number in range(80):
    file = os.open(f"file{number}", os.O_RDWR | os.O_CREAT)
    for place in range(500):
        fcntl.fcntl(file, 6 if number % 2 else 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, place * 2, 1, 0))
time.sleep(30)
print("held 40000 locks")
"""
HIDDEN = "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n" + ZERO


@confined
@pytest.mark.parametrize(
    "code",
    [
        *(MEMFD, SHARED, ZERO, SOCKETS, PIPES, WATCHES, HIDDEN, ENDED, THREADS),
        *(MAPPINGS, FILTERS, RULES, SPLICED, SENT, NOTICES, LOCKS),
    ],
    ids=[
        *("memfd", "shared", "zero", "sockets", "pipes", "watches", "hidden", "ended", "threads"),
        *("mappings", "filters", "rules", "spliced", "sent", "notices", "locks"),
    ],
)
async def test_unmapped_memory_is_limited(code: str, level: Level, tmp_path: Path) -> None:
    """A system call is refused, or the count ends the command."""
    finished = await run_order(order(tmp_path, PYTHON, "-I", "-S", "-c", code, level=level, limits=LIMITS))
    answers = ("Operation not permitted", "Function not implemented", "Invalid argument")
    refused = any(answer in finished.stderr for answer in answers)
    assert finished.outcome.end == "memory" or refused, finished
    assert "held" not in finished.stdout


@pytest.mark.parametrize("level", EVERY_LEVEL)
async def test_ordinary_programs_stay_below_the_memory_limit(level: Level, tmp_path: Path) -> None:
    """Event loops have sockets of their own, and threads stacks."""
    code = (
        "import asyncio, threading\n"
        "async def main():\n"
        "    return await asyncio.gather(*(asyncio.to_thread(sum, range(10)) for _ in range(3)))\n"
        "print(sum(asyncio.run(main())))"
    )
    finished = await run_order(order(tmp_path, PYTHON, "-I", "-S", "-c", code, level=level))
    assert (finished.outcome.end, finished.stdout) == ("exited", "135\n"), finished


def test_memory_in_swap_counts() -> None:
    """A process moves there what it likes, and it is the machine's all the same."""
    status = b"Name:\tsh\nVmSize:\t  900000 kB\nRssAnon:\t    100 kB\nRssFile:\t      20 kB\nRssShmem:\t       3 kB\n"
    assert sum_shown_bytes(read_numbers(status)) == 123 << 10
    assert sum_shown_bytes(read_numbers(status + b"VmSwap:\t   4000 kB\nHugetlbPages:\t       0 kB\n")) == 4123 << 10


def test_slow_memory_count_counts_as_unbounded() -> None:
    """Until the next count it could hold what it likes."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([PYTHON, "-I", "-S", "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdout and process.stdout.readline()
        held = measure_held_bytes([process.pid], filtered=True)
        assert held < UNBOUNDED
        assert measure_held_bytes([process.pid] * 1_000_000, filtered=True) == UNBOUNDED
        assert held < measure_held_bytes([process.pid] * 1_000_000, filtered=True, enough_bytes=held) < 3 * held


SEGMENT = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.shmget(0, 1 << 20, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600))
"""


@confined
async def test_command_cannot_create_sysv_memory(level: Level, tmp_path: Path) -> None:
    """SysV segments, semaphores and queues live until somebody removes them: there are none."""
    finished = await run_order(order(tmp_path, PYTHON, "-I", "-S", "-c", SEGMENT, level=level))
    assert finished.stdout == "-1 -1 -1\n"


NAMESPACE = """
import ctypes, os, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
new_user, new_mount, clone3 = 0x10000000, 0x20000, 435
print(libc.unshare(new_user | new_mount), libc.unshare(new_user), libc.setns(0, 0), end=" ")
print(libc.mount(b"tmpfs", b".", b"tmpfs", 0, None), libc.syscall(430, b"tmpfs", 0), end=" ")
print(libc.syscall(clone3, 0, 0), ctypes.get_errno(), end=" ")
thread = threading.Thread(target=print, args=("thread",), kwargs={"end": " ", "flush": True})
thread.start()
thread.join()
print(subprocess.run(["sh", "-c", "exit 7"]).returncode, os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1])
"""


@confined
async def test_no_command_makes_a_namespace(level: Level, tmp_path: Path) -> None:
    """It could mount a tmpfs there, whose pages nobody counts. Threads and children are made by the older call."""
    finished = await run_order(order(tmp_path, PYTHON, "-I", "-S", "-c", NAMESPACE, level=level))
    assert finished.stdout == "-1 -1 -1 -1 -1 -1 38 thread 7 0\n", finished


@pytest.mark.parametrize("level", EVERY_LEVEL)
async def test_threads_count_as_processes(level: Level, tmp_path: Path) -> None:
    """The kernel's own limit counts them, and does not hold for root."""
    code = "import threading, time\n[threading.Thread(target=time.sleep, args=(30,)).start() for _ in range(100)]"
    finished = await run_order(order(tmp_path, PYTHON, "-I", "-S", "-c", code, level=level, timeout_s=5.0))
    assert finished.outcome.end == "processes" or "can't start new thread" in finished.stderr, finished


def test_ended_process_holds_no_memory() -> None:
    """A process that is gone, beside one that is there."""
    own = measure_held_bytes([os.getpid()], filtered=False)
    assert own > 1 << 20
    assert measure_held_bytes([2**22 - 1], filtered=True) == 0
