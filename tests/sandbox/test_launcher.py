"""Commands at every level of confinement that this machine has: what they can do, and that they end."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import until

from gateway.sandbox.launch_messages import Level, ProcessLimits
from tests.sandbox.machine import (
    CONFINED,
    EVERY_LEVEL,
    PYTHON,
    ROOT,
    exchanging,
    order,
    python,
    run_order,
    shell,
    survivors,
)

every_level = pytest.mark.parametrize("level", EVERY_LEVEL)
#: Empty on a machine that has nothing to confine with; test_levels.py shows that no command runs there.
confined = pytest.mark.parametrize("level", CONFINED)


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("SECRET")
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


@pytest.fixture
def listener() -> Iterator[int]:
    """A TCP port of this machine that accepts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@every_level
async def test_a_command_runs_in_its_folder(level: Level, cwd: Path) -> None:
    """It reads and writes there, and its output and exit code come back."""
    script = "pwd; echo in >new; mkdir sub; mv new sub; cat sub/new; chmod 700 sub; echo err >&2; exit 3"
    finished = await shell(cwd, script, level=level)
    assert (finished.outcome.end, finished.outcome.code) == ("exited", 3)
    assert finished.stdout == f"{cwd}\nin\n"
    assert finished.stderr.endswith("err\n")


@every_level
async def test_command_environment_contains_no_gateway_variables(
    level: Level, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable of the gateway reaches a command."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    finished = await shell(cwd, "env", level=level)
    variables = dict(line.split("=", 1) for line in finished.stdout.splitlines())
    variables.pop("_", None)
    assert variables == {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PWD": str(cwd)}


READS = (
    "cat ../secret",
    "cat $PWD/../secret",
    "ln -s ../secret link; cat link",
    "ln ../secret hard; cat hard",
    "cat /etc/passwd",
    "cat /etc/shadow",
    "cat /proc/self/environ",
    "cat /proc/1/environ",
    "cat /proc/$PPID/environ",
    "grep -r SECRET ..",
    "ls ..",
    "find .. -name secret -exec cat {} +",
    "cp ../secret copy; cat copy",
    "tar cf - ../secret",
    "dd if=../secret",
    "sh <../secret",
    "head -c 1 /dev/mem",
)
WRITES = (
    "echo x >../secret",
    "echo x >../new",
    "rm -f ../secret",
    "mv ../secret .",
    "truncate -s 0 ../secret",
    "chmod 000 ../secret",
    "touch -d @0 ../secret",
    "mkdir ../sub",
    "ln -s /etc ../link",
    "rmdir ../folder",
    "echo x >/usr/bin/planted",
    "echo x >/var/tmp/planted-by-a-command",
    "echo x >/dev/shm/planted-by-a-command",
)


@confined
async def test_command_cannot_read_outside_its_folder(level: Level, cwd: Path) -> None:
    """T15, T19: however it is tried."""
    finished = await shell(cwd, "\n".join(f"({command})" for command in (*READS, "echo end")), level=level)
    assert finished.stdout.endswith("end\n")
    for text in ("SECRET", "secret", "root:", "PATH="):
        assert text not in finished.stdout


@confined
async def test_command_cannot_write_outside_its_folder(level: Level, cwd: Path) -> None:
    """Nothing outside changes: neither texts nor modes nor times nor entries."""
    secret = cwd.parent / "secret"
    before = secret.stat()
    finished = await shell(cwd, "\n".join(f"({command})" for command in (*WRITES, "echo end")), level=level)
    assert finished.stdout == "end\n"
    after = secret.stat()
    assert (after.st_mode, after.st_mtime, after.st_size) == (before.st_mode, before.st_mtime, before.st_size)
    assert sorted(path.name for path in cwd.parent.iterdir()) == ["folder", "secret"]
    for path in ("/usr/bin/planted", "/var/tmp/planted-by-a-command", "/dev/shm/planted-by-a-command"):
        assert not Path(path).exists()


@confined
async def test_truncate_outside_the_folder_is_denied(level: Level, cwd: Path) -> None:
    """It takes a path and opens nothing; old versions of Landlock do not know it."""
    code = f"import os\ntry:\n    os.truncate({str(cwd.parent / 'secret')!r}, 0)\nexcept OSError:\n    print('denied')"
    assert (await python(cwd, code, level=level)).stdout == "denied\n"
    assert (cwd.parent / "secret").read_text() == "SECRET"


NETWORK = """
import socket
def attempts():
    yield lambda: socket.create_connection(("127.0.0.1", PORT), 2)
    yield lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT))
    yield lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    yield lambda: socket.socket(socket.AF_UNIX).connect("../unix")
    yield lambda: socket.socket(socket.AF_UNIX).connect("\\0abstract")
    yield lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    yield lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
for number, attempt in enumerate(attempts()):
    try:
        attempt()
        print("through:", number)
    except OSError:
        pass
print("end")
"""


@confined
async def test_confined_command_cannot_use_the_network(level: Level, cwd: Path, listener: int) -> None:
    """T18: TCP, UDP, unix sockets by path and by abstract name, and raw ones."""
    finished = await python(cwd, NETWORK.replace("PORT", str(listener)), level=level)
    assert finished.stdout == "end\n", finished.stderr


@confined
async def test_command_cannot_affect_other_processes(level: Level, cwd: Path) -> None:
    """No signal to the gateway, no change of its limits or priority, no look into its memory."""
    code = f"""
import os, resource
gateway = {os.getpid()}
for name, attempt in (
    ("signal", lambda: os.kill(gateway, 0)),
    ("limit", lambda: resource.prlimit(gateway, resource.RLIMIT_NOFILE)),
    ("priority", lambda: os.setpriority(os.PRIO_PROCESS, gateway, 19)),
    ("cpu", lambda: os.sched_setaffinity(gateway, {{0}})),
    ("memory", lambda: open(f"/proc/{{gateway}}/mem", "rb")),
):
    try:
        attempt()
        print("reached:", name)
    except OSError:
        pass
print("end")
"""
    assert (await python(cwd, code, level=level)).stdout == "end\n"


@confined
async def test_no_privileges_are_left_or_gained(level: Level, cwd: Path) -> None:
    """No capability, whoever runs the gateway: mounting, device nodes and other users stay out of reach."""
    code = """
import os, ctypes
libc = ctypes.CDLL(None)
print(libc.prctl(39, 0, 0, 0, 0))
for attempt in (
    lambda: os.mknod("null", 0o20666, os.makedev(1, 3)),
    lambda: os.chroot("."),
    lambda: os.setuid(os.getuid() + 1),
):
    try:
        attempt()
        print("did it")
    except OSError:
        pass
print(libc.mount(b"none", b".", b"tmpfs", 0, None))
"""
    assert (await python(cwd, code, level=level)).stdout == "1\n-1\n"


SET_ID = """
import errno, os
open("file", "w").close()
os.umask(0)
for attempt in (
    lambda: os.chmod("file", 0o4755),
    lambda: os.fchmod(os.open("file", os.O_RDONLY), 0o2755),
    lambda: os.open("new", os.O_CREAT | os.O_WRONLY, 0o4755),
    lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
    lambda: os.mknod("node", 0o104755),
):
    try:
        attempt()
        print("did it")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


@confined
async def test_command_cannot_create_setuid_files(level: Level, cwd: Path) -> None:
    """Another user who executes what a command left behind would act as the user of the gateway, root perhaps."""
    finished = await python(cwd, SET_ID, level=level)
    assert finished.stdout == "EPERM\n" * 5, finished.stderr
    assert [path.name for path in cwd.iterdir() if path.stat().st_mode & 0o6000] == []


@every_level
async def test_command_files_are_writable_by_their_owner_only(level: Level, cwd: Path) -> None:
    """Whatever the gateway's own umask is."""
    before = os.umask(0)
    try:
        await shell(cwd, "touch new; mkdir sub", level=level)
    finally:
        os.umask(before)
    assert {(cwd / name).stat().st_mode & 0o777 for name in ("new", "sub")} == {0o644, 0o755}


@confined
async def test_symlink_races_never_read_outside_the_folder(level: Level, cwd: Path) -> None:
    """While a name changes between a file and a link to the outside, a command never sees the outside."""
    (cwd / "file").write_text("inside")
    (cwd / "link").symlink_to("../secret")
    code = """
seen = set()
for _ in range(5000):
    try:
        with open("file") as file:
            seen.add(file.read())
    except OSError:
        pass
print(seen - {'inside'})
"""
    with exchanging(cwd / "file", cwd / "link"):
        finished = await python(cwd, code, level=level)
    assert finished.stdout == "set()\n", finished.stderr


@every_level
async def test_a_program_planted_in_the_folder_is_not_found(level: Level, cwd: Path) -> None:
    """T16: names are looked for in the system's folders only."""
    (cwd / "planted").write_text("#!/bin/sh\necho planted\n")
    (cwd / "planted").chmod(0o755)
    finished = await run_order(order(cwd, "planted", level=level))
    assert (finished.outcome.end, finished.outcome.code) == ("not_started", 127)
    assert (await shell(cwd, "planted", level=level)).outcome.code == 127


@every_level
async def test_an_endless_command_is_stopped(level: Level, cwd: Path) -> None:
    """With everything that came of it, also what does not listen to SIGTERM."""
    deaf = "trap '' TERM; setsid sleep 61 & (sleep 62 &); while :; do sleep 63; done"
    finished = await shell(cwd, deaf, level=level, timeout_s=0.4)
    assert finished.outcome.end == "timeout"
    assert survivors(cwd) == []


@every_level
async def test_a_background_child_does_not_outlive_its_command(level: Level, cwd: Path) -> None:
    """Nor does it hold up the answer by keeping the output open."""
    finished = await shell(cwd, "sleep 61 & setsid sleep 62 & (setsid sleep 63 &) & echo done", level=level)
    assert (finished.outcome.end, finished.outcome.code, finished.stdout) == ("exited", 0, "done\n")
    assert survivors(cwd) == []


@every_level
async def test_a_fork_bomb_is_stopped(level: Level, cwd: Path) -> None:
    """Here one that stops by itself at 2^9: either it cannot fork any more, or the count ends it."""
    bomb = "f() { [ $1 -gt 8 ] || { f $(($1+1)) & f $(($1+1)) & }; sleep 30; }; f 0"
    wanted = order(cwd, "/bin/sh", "-c", bomb, level=level, timeout_s=120, limits=ProcessLimits(processes=24))
    finished = await run_order(wanted)
    assert finished.outcome.end in ("processes", "timeout") or finished.outcome.code != 0
    assert survivors(cwd) == []


@every_level
async def test_zombie_processes_count_towards_the_process_limit(level: Level, cwd: Path) -> None:
    """The machine has so many numbers for processes, and the kernel's own limit does not hold for root."""
    code = "import os, time\nfor _ in range(400):\n    os.fork() or os._exit(0)\ntime.sleep(60)"
    wanted = order(cwd, PYTHON, "-I", "-S", "-c", code, level=level, limits=ProcessLimits(processes=24))
    finished = await run_order(wanted)
    assert finished.outcome.end == "processes" or "BlockingIOError" in finished.stderr, finished
    assert survivors(cwd) == []


@every_level
async def test_cpu_time_is_limited(level: Level, cwd: Path) -> None:
    """By the kernel, whatever the clock says."""
    wanted = order(cwd, PYTHON, "-S", "-c", "while True: pass", level=level, limits=ProcessLimits(cpu_s=1))
    finished = await run_order(wanted)
    assert (finished.outcome.end, finished.outcome.code) in (("exited", 128 + 24), ("exited", 128 + 9))


@every_level
async def test_memory_is_limited(level: Level, cwd: Path) -> None:
    """Of one process by its address space."""
    code = "try:\n    b'x' * (1 << 29)\nexcept MemoryError:\n    print('no memory')"
    finished = await run_order(
        order(cwd, PYTHON, "-S", "-c", code, level=level, limits=ProcessLimits(memory_bytes=256 << 20))
    )
    assert finished.stdout == "no memory\n"


async def test_memory_of_all_processes_together_is_limited(cwd: Path) -> None:
    """Many that are each below the limit."""
    code = "import os, time\n[0 for _ in range(3) if os.fork()]\nx = bytearray(b'x') * (40 << 20)\ntime.sleep(30)"
    finished = await run_order(
        order(cwd, PYTHON, "-S", "-c", code, level="none", limits=ProcessLimits(memory_bytes=200 << 20))
    )
    assert finished.outcome.end == "memory"
    assert survivors(cwd) == []


@every_level
async def test_the_size_of_files_is_limited(level: Level, cwd: Path) -> None:
    """A disk is not filled by one of them."""
    wanted = order(cwd, "/bin/sh", "-c", "yes >big", level=level, limits=ProcessLimits(file_bytes=1 << 20))
    await run_order(wanted)
    assert (cwd / "big").stat().st_size == 1 << 20


@every_level
async def test_command_killed_by_a_signal_exits_with_128_plus_signal(level: Level, cwd: Path) -> None:
    """128 and the number."""
    code = "import resource, os; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()"
    finished = await run_order(order(cwd, PYTHON, "-S", "-c", code, level=level))
    assert finished.outcome.end == "exited"
    assert finished.outcome.code in (128 + 6, 128 + 5, 128 + 4, 128 + 11)


async def test_the_end_of_the_gateway_ends_the_command(cwd: Path) -> None:
    """Also when it is killed: the launcher sees its input end."""
    code = f"""
import asyncio, sys
from pathlib import Path
from tests.sandbox.machine import shell
asyncio.run(shell(Path({str(cwd)!r}), "echo >begun; setsid sleep 61 & sleep 62", level="none"))
"""
    gateway = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    await until(lambda: (cwd / "begun").exists())
    gateway.kill()
    gateway.wait()
    await until(lambda: not survivors(cwd))
