"""Commands that may have no effect, at every level that this machine has: each way to have one is tried."""

import ctypes
import dataclasses
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.sandbox.launch_messages import Level, ProcessLimits
from gateway.sandbox.namespaces import AS_IT_IS
from tests.sandbox.machine import (
    PYTHON,
    READ_ONLY_LEVELS,
    in_child,
    order,
    python,
    run_order,
    shell,
    survivors,
)

every_level = pytest.mark.parametrize("level", READ_ONLY_LEVELS)
#: Landlock alone makes no folders, and leaves the file system in its place.
with_mounts = pytest.mark.parametrize("level", [level for level in READ_ONLY_LEVELS if level != "landlock"])


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("SECRET")
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o750)
    for name in ("a", "b"):
        (folder / name).write_text("text\n")
    (folder / "sub").mkdir()
    (folder / "sub/run").write_text("#!/bin/sh\necho ran\n")
    (folder / "sub/run").chmod(0o755)
    return folder


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that is below a folder, and itself, but for times of reading."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        text = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (*status[:7], status.st_mtime_ns, status.st_ctime_ns, text)
    return found


#: Each in a line of its own.
WRITES = """
echo x >new; echo x >a; echo x >>a; echo x 1<>a; cp a new; mv a new; rm -f a; rm -rf sub; ln a new; ln -s a new
mkdir new; rmdir sub; mkfifo new; mknod new p; chmod 600 a; chmod u+x sub; chown 1 a; touch a; touch -d @0 a
touch -a -d @0 a; truncate -s 0 a; dd if=/dev/zero of=a count=1; sed -i s/t/x/ a; sort -o a b; find . -name a -delete
find . -fprint new; find sub -exec touch {} +; tee a <b >/dev/null; install a new; echo x >../secret; echo x >../new
echo x >/usr/bin/planted; busybox cp a b; busybox find . -name a -exec rm {} +; busybox sed -i s/t/x/ b
echo x >/dev/shm/planted; sub/run >new
""".replace("; ", "\n").strip()


@every_level
async def test_read_only_command_changes_nothing_outside_its_scratch_folder(level: Level, cwd: Path) -> None:
    """Names, texts, modes, owners, times: of the work folder, and around it."""
    before = state(cwd.parent)
    commands = "\n".join(f"({command})" for command in (*WRITES.splitlines(), "echo end"))
    finished = await shell(cwd, commands, level=level, read_only=True)
    assert finished.stdout == "end\n"
    assert state(cwd.parent) == before


@every_level
async def test_read_only_command_reads_the_folder_unchanged(level: Level, cwd: Path) -> None:
    """Texts, modes and times, also of the folder itself; what is executable is said to be."""
    script = "cat a sub/run; stat -c '%n %a %Y %s' . a sub sub/run; find . -executable; test -x sub/run && echo x; pwd"
    confined = await shell(cwd, script, level=level, read_only=True)
    free = await shell(cwd, script, level="none")
    assert (confined.outcome, confined.stdout) == (free.outcome, free.stdout)


@with_mounts
async def test_the_scratch_folder_is_empty_and_gone_afterwards(level: Level, cwd: Path) -> None:
    """A command finds it in TMPDIR; the machine's own folder of that name stays as it is."""
    script = 'ls -A "$TMPDIR"; echo text >"$TMPDIR/scratch-of-a-command"; cat "$TMPDIR/scratch-of-a-command"'
    for _ in range(2):
        assert (await shell(cwd, script, level=level, read_only=True)).stdout == "text\n"
    scratch = order(cwd, "true", level=level, read_only=True).scratch
    assert scratch is not None and not (Path(scratch) / "scratch-of-a-command").exists()


@with_mounts
async def test_scratch_folder_limits_bytes_files_and_execution(level: Level, cwd: Path) -> None:
    """In bytes, in files; nothing in it is executed."""
    script = """cd "$TMPDIR"
    for n in 1 2 3; do head -c 60000000 /dev/zero >$n; done 2>/dev/null; du -m . | tail -n 1
    rm -f 1 2 3; n=0; while true >$n; do n=$((n+1)); done 2>/dev/null; ls | wc -l
    rm -f *; cp /bin/true . && ./true"""
    finished = await shell(cwd, script, level=level, read_only=True)
    size, files = finished.stdout.split()[0], finished.stdout.split()[2]
    assert int(size) <= 64 and 1000 < int(files) < 4096
    assert finished.outcome.code == 126


@with_mounts
async def test_scratch_folder_contents_count_as_memory(level: Level, cwd: Path) -> None:
    """It and the processes together keep the limit."""
    code = """
import os, time
with open(os.environ["TMPDIR"] + "/big", "wb") as file:
    file.write(bytes(24 << 20))
held = bytearray(b"x") * (84 << 20)
time.sleep(60)
"""
    wanted = order(
        cwd, PYTHON, "-ISBc", code, level=level, limits=ProcessLimits(memory_bytes=100 << 20), read_only=True
    )
    assert (await run_order(wanted)).outcome.end == "memory"


@with_mounts
async def test_paths_outside_the_order_are_not_looked_up(level: Level, cwd: Path) -> None:
    """An automounter would ask a network for a name that is only looked up."""
    script = f"stat -c %n a {cwd}/sub /usr/bin/stat ../secret {cwd.parent}/secret /etc/passwd /sys /proc/sys/kernel"
    finished = await shell(cwd, script, level=level, read_only=True)
    assert finished.stdout.splitlines() == ["a", f"{cwd}/sub", "/usr/bin/stat"]
    assert finished.stderr.count("No such file or directory") == 5, finished.stderr


@contextmanager
def filled_fifo(place: Path) -> Iterator[int]:
    os.mkfifo(place)
    descriptor = os.open(place, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(descriptor, b"waits")
        yield descriptor
    finally:
        os.close(descriptor)


@every_level
async def test_no_fifo_of_the_folder_is_written(level: Level, cwd: Path) -> None:
    """Whoever reads it gets nothing of a command."""
    with filled_fifo(cwd / "fifo") as fifo:
        tries = "for n in 1 2; do timeout 0.2 sh -c 'echo x >fifo'; timeout 0.2 sh -c 'echo x 1<>fifo'; done"
        await shell(cwd, tries, level=level, read_only=True)
        assert os.read(fifo, 99) == b"waits"


@with_mounts
async def test_no_fifo_of_the_folder_is_read(level: Level, cwd: Path) -> None:
    """What waits for its reader goes on waiting."""
    with filled_fifo(cwd / "fifo") as fifo:
        finished = await shell(cwd, "timeout 0.2 cat fifo", level=level, read_only=True)
        assert (finished.outcome.code, finished.stdout) == (124, "")
        assert os.read(fifo, 99) == b"waits"


@every_level
async def test_no_fifo_of_a_readable_folder_is_written(level: Level, cwd: Path) -> None:
    """Nor one that `readable` names itself, or that lies behind a link."""
    await _reached_in_a_readable_folder(cwd, level, "sh -c 'echo x >{fifo}'")


@with_mounts
async def test_no_fifo_of_a_readable_folder_is_read(level: Level, cwd: Path) -> None:
    """What waits for its reader goes on waiting, while files are read as they are."""
    await _reached_in_a_readable_folder(cwd, level, "cat {fifo}")


async def _reached_in_a_readable_folder(cwd: Path, level: Level, command: str) -> None:
    """Try the command in a folder, in one below it, in one around the work folder, and where the FIFO is named."""
    other = cwd.parent / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub/file").write_text("text\n")
    with filled_fifo(other / "sub/fifo") as fifo:
        script = f"cat {other}/sub/file; timeout 0.2 {command.format(fifo=other / 'sub/fifo')}"
        for folders in ([other], [other / "sub"], [other, other / "sub"], [cwd.parent]):
            wanted = order(cwd, "/bin/sh", "-c", script, level=level, read_only=True)
            wanted = dataclasses.replace(wanted, readable=(*wanted.readable, *map(str, folders)))
            assert (await run_order(wanted)).stdout == "text\n"
        named = dataclasses.replace(wanted, readable=(str(other / "sub/fifo"), str(other / "sub/file")))
        assert (await run_order(named)).stdout == "text\n"
        assert os.read(fifo, 99) == b"waits"


QUEUE = """
import ctypes
libc = ctypes.CDLL(None)
print([libc.msgctl(QUEUE, 0, None), libc.msgsnd(QUEUE, b"x" * 16, 1, 0o4000), libc.shmctl(SEGMENT, 0, None)])
libc.shmat.restype = ctypes.c_void_p
print(libc.shmat(SEGMENT, None, 0) == ctypes.c_void_p(-1).value)
"""


@pytest.mark.parametrize("read_only", [True, False])
@every_level
async def test_command_cannot_access_sysv_queues_or_segments_of_others(
    level: Level, read_only: bool, cwd: Path
) -> None:
    """The number of a queue or of a segment is easily guessed, and is all that it takes: at approved commands, too."""
    libc = ctypes.CDLL(None)
    queue, segment = libc.msgget(0, 0o1600), libc.shmget(0, 4096, 0o1600)
    try:
        assert min(queue, segment) >= 0
        code = QUEUE.replace("QUEUE", str(queue)).replace("SEGMENT", str(segment))
        finished = await python(cwd, code, level=level, read_only=read_only)
        assert finished.stdout == "[-1, -1, -1]\nTrue\n", finished.stderr
        assert libc.msgctl(queue, 0, None) == libc.shmctl(segment, 0, None) == 0  # they go only now
    finally:
        libc.msgctl(queue, 0, None)
        libc.shmctl(segment, 0, None)


SOCKETS = """
import socket
def attempts():
    yield lambda: socket.create_connection(("127.0.0.1", PORT), 2)
    yield lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT))
    yield lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "datagrams")
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        yield lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", "datagrams")
        yield lambda: socket.socketpair(socket.AF_UNIX, kind)[0].connect("datagrams")
    yield lambda: socket.socketpair(30, socket.SOCK_DGRAM)
    yield lambda: socket.socketpair()[0].bind("\\0abstract")
for number, attempt in enumerate(attempts()):
    try:
        attempt()
        print("through:", number)
    except OSError:
        pass
one, other = socket.socketpair()
one.send(b"within")
print(other.recv(9))
"""


@pytest.mark.parametrize("read_only", [True, False])
@every_level
async def test_command_cannot_connect_sockets_outside(
    level: Level, read_only: bool, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a pair of datagram sockets, which may send to any address: at approved commands, too."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        monkeypatch.chdir(cwd)  # a path of a socket is at most 107 bytes long
        datagrams.bind("datagrams")
        datagrams.setblocking(False)
        code = SOCKETS.replace("PORT", str(tcp.getsockname()[1]))
        finished = await python(cwd, code, level=level, read_only=read_only)
        assert finished.stdout.removeprefix("through: 12\n") == "b'within'\n", finished.stderr
        with pytest.raises(BlockingIOError):
            datagrams.recv(9)


NOTICED = """
import ctypes, errno, fcntl, os, resource, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
a = os.open("a", os.O_RDONLY)
folder = os.open(".", os.O_RDONLY)
for name, attempt in {
    "flock": lambda: fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB),
    "lock": lambda: fcntl.lockf(a, fcntl.LOCK_SH | fcntl.LOCK_NB),
    "lease": lambda: fcntl.fcntl(a, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "notify": lambda: fcntl.fcntl(folder, fcntl.F_NOTIFY, 1),
    "hint": lambda: fcntl.fcntl(a, 1036, bytes([2, 0, 0, 0, 0, 0, 0, 0])),
    "watch": lambda: call(SYS_INOTIFY_INIT1, 0),
    "flags": lambda: fcntl.ioctl(a, 0x40086602, bytes([0x40, 0, 0, 0, 0, 0, 0, 0])),
    "verity": lambda: fcntl.ioctl(a, 0x40806685, bytearray(128)),
    "snapshot": lambda: fcntl.ioctl(folder, 0x5000940E, bytearray(4096)),
    "typing": lambda: fcntl.ioctl(0, 0x5412, b"x"),
    "mode": lambda: os.fchmod(a, 0o600),
    "time": lambda: os.utime(a, (1, 1)),
    "attribute": lambda: os.setxattr(a, "user.x", b"x"),
    "truncate": lambda: os.open("a", os.O_RDONLY | os.O_TRUNC),
    "signal": lambda: os.kill(GATEWAY, 0),
    "owner": lambda: (fcntl.fcntl(1, fcntl.F_SETOWN, GATEWAY), os.kill(GATEWAY, 0)),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, GATEWAY, 19),
    "core": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "sync": lambda: call(SYS_SYNCFS, folder),
    "quotas": lambda: call(SYS_QUOTACTL, 0x80000100, None, 0, None),
    "a socket in a socket": lambda: socket.send_fds(socket.socketpair()[0], [b"x"], [1]),
    "hiding": lambda: libc.prctl(4, 0, 0, 0, 0) < 0 and os.stat("gone"),
    "events of the machine": lambda: call(SYS_IO_SETUP, 1, ctypes.byref(ctypes.c_ulong())),
    "shared memory": lambda: open("/dev/shm/planted", "w"),
    "queue": lambda: libc.mq_open(b"/planted", os.O_CREAT | os.O_RDWR, 0o600, None) < 0 and os.stat("gone"),
    "segment": lambda: libc.shmget(7, 4096, 0o1600) < 0 and os.stat("gone"),
    "key": lambda: call(SYS_ADD_KEY, b"user", b"planted", b"x", 1, -4),
    "host name": lambda: call(SYS_SETHOSTNAME, b"planted", 7),
    "namespaces": lambda: call(SYS_UNSHARE, 0x10000000),
    "kernel setting": lambda: open("/proc/sys/kernel/domainname", "w"),
    "memory": lambda: open("/dev/mem", "rb"),
    "log": lambda: open("/dev/kmsg", "w"),
    "terminal": lambda: open("/dev/tty", "w"),
}.items():
    try:
        attempt()
        print("did it:", name)
    except (OSError, ValueError):
        pass
print(resource.getrlimit(resource.RLIMIT_CORE))
"""
_NUMBERS = {
    "x86_64": {
        "INOTIFY_INIT1": 294,
        "SYNCFS": 306,
        "QUOTACTL": 179,
        "ADD_KEY": 248,
        "SETHOSTNAME": 170,
        "UNSHARE": 272,
        "IO_SETUP": 206,
        "FUTEX": 202,
        "TIMER_CREATE": 222,
    },
    "aarch64": {
        "INOTIFY_INIT1": 26,
        "SYNCFS": 267,
        "QUOTACTL": 60,
        "ADD_KEY": 217,
        "SETHOSTNAME": 161,
        "UNSHARE": 97,
        "IO_SETUP": 0,
        "FUTEX": 98,
        "TIMER_CREATE": 107,
    },
}


def numbered(code: str) -> str:
    """The code with the numbers of this machine's system calls."""
    for name, number in _NUMBERS[os.uname().machine].items():
        code = code.replace(f"SYS_{name}", str(number))
    return code


@every_level
async def test_read_only_command_is_refused_externally_visible_system_calls(level: Level, cwd: Path) -> None:
    """Much of it needs no right to write: a file that is open for reading is enough."""
    code = numbered(NOTICED.replace("GATEWAY", str(os.getpid())))
    before = state(cwd)
    finished = await python(cwd, code, level=level, read_only=True)
    assert finished.stdout == "(1, 1)\n", finished.stderr
    assert state(cwd) == before


FUTEX = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
moment = (ctypes.c_long * 2)(0, 1)
with open("a", "rb") as file:
    for shared in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        place = ctypes.c_void_p(libc.mmap(None, 4096, mmap.PROT_READ, shared, file.fileno(), 0))
        value = ctypes.c_int.from_address(place.value).value
        for operation, third in ((0, ctypes.byref(moment)), (9, ctypes.byref(moment)), (3, 1), (4, 1)):
            third = third if operation in (0, 9) else ctypes.c_long(third)
            got = libc.syscall(SYS_FUTEX, place, operation, value, third, place, value)
            print(got, os.strerror(ctypes.get_errno()))
thread, ended = ctypes.c_ulong(), []
begin = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: ended.append(sum(range(1000000))))
print(libc.pthread_create(ctypes.byref(thread), None, begin, None), libc.pthread_join(thread, None), len(ended))
"""


@every_level
async def test_futex_wakeups_of_other_processes_are_not_taken(level: Level, cwd: Path) -> None:
    """A futex in a file is one for all who map it, also for reading. Threads of the command are joined all the same."""
    finished = await python(cwd, numbered(FUTEX), level=level, read_only=True)
    refused = ["-1 Resource temporarily unavailable"] * 2 + ["-1 Function not implemented"] * 2
    assert finished.stdout.splitlines() == [*refused, *refused, "0 0 1"], finished.stderr


TIMERS = """
import ctypes
libc, made = ctypes.CDLL(None), 0
while made < 1000 and libc.syscall(SYS_TIMER_CREATE, 1, None, ctypes.byref(ctypes.c_int())) == 0:
    made += 1
print(made < 1000)
"""


@pytest.mark.parametrize("read_only", [True, False])
@every_level
async def test_command_cannot_exhaust_timers_of_its_user(level: Level, read_only: bool, cwd: Path) -> None:
    """The user of the gateway has so many, for all of its processes: at approved commands, too."""
    finished = await python(cwd, numbered(TIMERS), level=level, read_only=read_only)
    assert finished.stdout == "True\n", finished.stderr


@every_level
async def test_read_only_command_cannot_write_a_device_of_the_folder(level: Level, cwd: Path) -> None:
    """Only root can make one; where the tests are not root's, the folder has none."""
    try:
        os.mknod(cwd / "device", 0o20666, os.makedev(1, 3))
    except PermissionError:
        (cwd / "device").write_text("none")
    finished = await shell(cwd, "echo x >device && echo did it", level=level, read_only=True)
    assert finished.stdout == ""


@every_level
async def test_read_only_command_can_use_harmless_devices(level: Level, cwd: Path) -> None:
    """They take and give bytes that belong to nobody."""
    script = "echo x >/dev/null && head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo x >/dev/full"
    assert (await shell(cwd, script, level=level, read_only=True)).stdout == "4\n4\n"


@every_level
async def test_read_only_command_leaves_no_process(level: Level, cwd: Path) -> None:
    """In the background, in a session of its own, deaf: none outlives its command."""
    script = (
        "sleep 61 & setsid sleep 62 & (trap '' TERM HUP; sleep 63) & (setsid sh -c 'sleep 64 & sleep 65' &) & echo done"
    )
    finished = await shell(cwd, script, level=level, read_only=True)
    assert (finished.outcome.end, finished.stdout) == ("exited", "done\n")
    assert survivors(cwd) == []


@every_level
async def test_time_and_process_limits_apply_to_read_only_commands(level: Level, cwd: Path) -> None:
    """Time and processes, as for every command."""
    finished = await shell(cwd, "trap '' TERM; while :; do sleep 61; done", level=level, timeout_s=0.4, read_only=True)
    assert finished.outcome.end == "timeout"
    crowd = order(cwd, "/bin/sh", "-c", "for n in 1 2 3 4 5 6 7 8 9; do sleep 61 & done; wait", level=level)
    few = order(cwd, *crowd.argv, level=level, limits=ProcessLimits(processes=4), read_only=True)
    finished = await run_order(few)
    assert finished.outcome.end == "processes" or finished.outcome.code != 0
    assert survivors(cwd) == []


async def test_a_read_only_command_is_never_unconfined(cwd: Path) -> None:
    """Whoever orders it so."""
    finished = await shell(cwd, "echo ran", level="none", read_only=True)
    assert (finished.outcome.end, finished.stdout) == ("unconfined", "")


@with_mounts
async def test_scratch_folder_is_never_above_paths_of_the_order(level: Level) -> None:
    """A work folder in one of them takes the next; where all are in use, nothing runs."""
    places = ["/tmp/x", "/var/tmp/x", "/dev/shm/x", "/tmp", "/srv"]
    taken = [order(Path(place), "true", level=level, read_only=True).scratch for place in places]
    assert taken == ["/var/tmp", "/tmp", "/tmp", "/var/tmp", "/tmp"]
    wide = dataclasses.replace(order(Path("/var"), "true", level=level, read_only=True), readable=("/tmp/x",))
    assert wide.scratch == "/dev/shm"
    above = dataclasses.replace(wide, cwd="/srv", readable=("/tmp/x", "/var"))
    assert above.scratch == "/dev/shm"
    everywhere = dataclasses.replace(wide, readable=("/tmp", "/dev/shm"))  # what is missing is not named
    assert everywhere.scratch is None
    assert (await run_order(everywhere)).outcome.end == "unconfined"


@pytest.mark.parametrize("level", [level for level in READ_ONLY_LEVELS if level == "namespaces"])
def test_folder_with_submounts_is_bound_read_only(level: Level, cwd: Path) -> None:
    """An overlay would hide them; they are read-only, too, and to be seen."""
    code = f"""
import os
from gateway.sandbox import namespaces
from gateway.sandbox.kernel import mount
folder = {str(cwd)!r}
def tried(action):
    try:
        action()
        return "did it"
    except OSError as error:
        return os.strerror(error.errno)
namespaces.enter_namespaces(mounts_only=True)
mount("tmpfs", folder + "/sub", kind="tmpfs", flags=0)
open(folder + "/sub/beneath", "w").close()
namespaces.enter_namespaces()
if os.fork() == 0:
    namespaces.cover_folders([folder], scratch="/var/tmp", size_bytes=1 << 20, overlay=False)
    namespaces.make_read_only([folder], scratch="/var/tmp")
    for name in ("a", "new", "sub/beneath", "sub/new"):
        print(tried(lambda: open(folder + "/" + name, "a")))
    print(os.listdir(folder + "/sub"), flush=True)
    os._exit(0)
os.wait()
"""
    assert level == "namespaces"
    assert in_child(code).splitlines() == ["Read-only file system"] * 4 + ["['beneath']"]


@pytest.mark.parametrize("level", [level for level in READ_ONLY_LEVELS if level == "namespaces"])
@pytest.mark.parametrize("place", ["fifo", "deep/er/fifo", "sub/fifo"])
def test_folder_with_mounts_and_a_fifo_cannot_be_covered(level: Level, cwd: Path, place: str) -> None:
    """A command could read what waits there for somebody else, also from a mount."""
    code = f"""
import os
from gateway.sandbox import namespaces
from gateway.sandbox.kernel import mount
folder = {str(cwd)!r}
namespaces.enter_namespaces(mounts_only=True)
mount("tmpfs", folder + "/sub", kind="tmpfs", flags=0)
os.makedirs(os.path.dirname(folder + "/{place}"), exist_ok=True)
os.symlink("/dev/null", folder + "/link")
os.mkfifo(folder + "/{place}")
namespaces.enter_namespaces()
if os.fork() == 0:
    try:
        namespaces.cover_folders([folder], scratch="/var/tmp", size_bytes=1 << 20, overlay=False)
    except OSError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    assert level == "namespaces"
    assert in_child(code) == f"'{cwd}/{place}' is a FIFO, which {AS_IT_IS}"
