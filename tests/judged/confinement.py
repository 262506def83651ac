"""The bench of the confinement: commands run without any judge, and everything around them must stay as it was."""

import asyncio
import json
import os
import random
import secrets
import socket
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final

from gateway.sandbox.confinement import replace_level
from gateway.sandbox.launch_messages import Level, Order, ProcessLimits
from gateway.sandbox.process_tree import list_members
from gateway.sandbox.programs import find_program
from gateway.sandbox.run import run

from .commands import SHELLS, is_slow, made

DRIVER: Final = Path(__file__).with_name("run_confined.py")
BATCH: Final = 250
#: A second for what waits for ever, more for an interpreter on a busy machine; a batch has the sum of a few.
_LIMIT_S, _SLOW_LIMIT_S, _BATCH_S = 0.3, 5.0, 120.0
_LIMITS: Final = ProcessLimits(cpu_s=300, memory_bytes=1 << 30, processes=64)
_FILLED: Final = b"bytes that wait for their reader"


class Arena:
    """A work folder with all that a command could change, and those who notice: readers, listeners, a device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self._stack = ExitStack()
        self._fifos: list[int] = []
        self._listeners: list[socket.socket] = []
        self.mark = f"LEAK{secrets.token_hex(6)}"  # the kernel's log is the machine's
        self.told: list[str] = []

    def __enter__(self) -> "Arena":
        _fill(self.folder, self.work)
        for name in ("work/fifo", "work/sub/fifo", "fifo"):
            os.mkfifo(self.folder / name)
            descriptor = os.open(self.folder / name, os.O_RDWR | os.O_NONBLOCK)
            self._stack.callback(os.close, descriptor)
            os.write(descriptor, _FILLED)
            self._fifos.append(descriptor)
        here = ("127.0.0.1", 0)
        self.tcp = self._listening(socket.SOCK_STREAM, here)
        self.udp = self._listening(socket.SOCK_DGRAM, here)
        with _standing_in(self.work):  # a path of a socket is at most 107 bytes long
            self._listening(socket.SOCK_STREAM, "socket", socket.AF_UNIX)
            self._listening(socket.SOCK_DGRAM, "datagrams", socket.AF_UNIX)
        self._kernel_log: int | None = None
        with suppress(PermissionError):  # device nodes are root's to make
            os.mknod(self.work / "kmsg", 0o20666, os.makedev(1, 11))
            self._kernel_log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            self._stack.callback(os.close, self._kernel_log)
            os.lseek(self._kernel_log, 0, os.SEEK_END)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _listening(self, kind: int, address: object, family: int = socket.AF_INET) -> int:
        listener = self._stack.enter_context(socket.socket(family, kind))
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
        listener.setblocking(False)
        self._listeners.append(listener)
        return int(listener.getsockname()[1]) if family == socket.AF_INET else 0

    def state(self) -> dict[str, object]:
        """Return all that is below the folder, but for the times of reading."""
        return dict(_entries(self.folder))

    def notice(self) -> None:
        """Tell what reached a FIFO, a socket, or a device since the last time."""
        for descriptor in self._fifos:
            waiting = b""
            with suppress(BlockingIOError):
                waiting = os.read(descriptor, 1 << 16)
            if waiting != _FILLED:
                self.told.append(f"a FIFO has {waiting!r:.60}")
            os.write(descriptor, _FILLED)
        for listener in self._listeners:
            with suppress(BlockingIOError):
                if listener.type == socket.SOCK_DGRAM:
                    self.told.append(f"a socket has {listener.recv(99)!r}")
                else:
                    listener.accept()[0].close()
                    self.told.append("a socket has a connection")
        while self._kernel_log is not None:
            try:
                line = os.read(self._kernel_log, 1 << 13)
            except BlockingIOError:
                break
            except BrokenPipeError:  # lines were lost
                continue
            if self.mark.encode() in line:
                self.told.append(f"the kernel's log has {line!r}")


@contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _fill(folder: Path, work: Path) -> None:
    for name in ("work/sub", "work/empty", "work/deep/er", "outside"):
        (folder / name).mkdir(parents=True)
    for path in (work / "a", work / "b c", work / "-n", work / "sub/b", work / "deep/er/x", folder / "secret"):
        path.write_text("one,two\nthree\n")
    (folder / "outside/x").write_text("outside\n")
    (work / "run").write_text("#!/bin/sh\necho LEAK >ran\n")
    (work / "run").chmod(0o755)
    (work / "link").symlink_to("a")
    (work / "out_link").symlink_to("../outside/x")
    os.link(work / "sub/b", work / "hard")
    with suppress(OSError):  # not every file system has them
        os.setxattr(work / "a", "user.mark", b"one")
    (work / "package.json").write_text('{"name": "x", "version": "1.0.0", "scripts": {"x": "touch ran"}}')
    (work / "change.diff").write_text("--- a\n+++ a\n@@ -1,2 +1,2 @@\n-one,two\n+LEAK\n three\n")
    (work / "data.db").write_bytes(b"")
    subprocess.run(["tar", "cf", "archive.tar", "sub"], cwd=work, check=True)
    subprocess.run(["gzip", "-k", "b c"], cwd=work, check=True)
    (work / "b c.gz").rename(work / "packed.gz")
    environment = {"PATH": os.environ["PATH"], "HOME": "/", "GIT_CONFIG_GLOBAL": os.devnull}
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    begin = ("init", "-q", "-b", "main", "--template=")
    for words in (begin, ("add", "a", "sub"), (*identity, "commit", "-qm", "one"), ("gc", "-q")):
        subprocess.run(["git", *words], cwd=work, env=environment, check=True)


def _entries(folder: Path) -> Iterator[tuple[str, object]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry.path, _facts(entry)
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(Path(entry.path))


def _facts(entry: "os.DirEntry[str]") -> tuple[object, ...]:
    status = entry.stat(follow_symlinks=False)
    content = sha256(Path(entry.path).read_bytes()).hexdigest() if entry.is_file(follow_symlinks=False) else ""
    names = sorted(os.listxattr(entry.path, follow_symlinks=False)) if not entry.is_symlink() else []
    kept = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_size, status.st_ino)
    times = () if stat.S_ISFIFO(status.st_mode) else (status.st_mtime_ns, status.st_ctime_ns)  # we read and fill those
    return (*kept, *times, content, names)


def of_effects(arena: Arena, chance: random.Random) -> Iterator[str]:
    """Yield commands that would have an effect."""
    return made(chance, port=arena.tcp, udp=arena.udp, mark=arena.mark)


@dataclass(slots=True)
class Bench:
    """The figures of many batches: commands that were run, how their sandboxes ended, and what slipped through."""

    level: Level
    read_only: bool = True
    commands: int = 0
    timeouts: int = 0  # commands that ended their batch
    ends: Counter[str] = field(default_factory=Counter)
    packets: int = 0
    slips: list[str] = field(default_factory=list)

    async def run(
        self,
        folder: Path,
        *,
        seed: int,
        count: int,
        batch: int = BATCH,
        grammar: Callable[[Arena, random.Random], Iterator[str]] = of_effects,
    ) -> None:
        """Run so many commands in a folder of their own, and look at everything between two batches."""
        chance = random.Random(seed)
        folder.mkdir()
        with Arena(folder) as arena:
            texts = grammar(arena, chance)
            if self.level == "landlock":  # processes are the machine's own there
                texts = (text for text in texts if "kill" not in text)
            before = arena.state()
            while count > 0:
                some = list(islice(texts, min(batch, count)))
                count -= len(some)
                await self._batch(arena, chance, some)
                arena.notice()
                slips = [*arena.told]
                arena.told.clear()
                if (after := arena.state()) != before:
                    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
                    slips.append(f"changed: {sorted(changed)[:5]}")
                    before = after
                self.slips += [f"{slip}; one of {some!r:.2000}" for slip in slips]

    async def _batch(self, arena: Arena, chance: random.Random, texts: Sequence[str]) -> None:
        shells = [shell for shell in SHELLS if find_program(shell[0])]
        commands = [((*chance.choice(shells), "-c", text), _limit_s(text)) for text in texts]
        listing = arena.folder.with_name(f"{arena.folder.name}.json")
        listing.write_text(json.dumps(commands))
        first = 0
        while first < len(commands):
            order = Order(
                argv=(os.path.realpath(sys.executable), "-ISB", str(DRIVER), str(listing), str(first)),
                cwd=str(arena.work),
                level="none",
                timeout_s=_BATCH_S,
                limits=_LIMITS,
                readable=(os.path.realpath(sys.base_prefix), str(DRIVER), str(listing)),
                read_only=self.read_only,
            )
            started = asyncio.create_task(
                run(
                    replace_level(order, level=self.level),
                    stdout_bytes=1 << 16,
                    stderr_bytes=1 << 16,
                    flood_bytes=1 << 24,
                )
            )
            while not (await asyncio.wait([started], timeout=0.25))[0]:
                self.packets += self._packets(arena.work)
            finished = started.result()
            self.ends[finished.outcome.end] += 1
            begun = finished.stdout.count("begun")
            assert begun, (finished.outcome, finished.stderr)
            self.commands += begun
            self.timeouts += begun - finished.stdout.count("ended")
            first += begun
            if left := list_members():
                self.slips.append(f"processes stayed: {left}")

    def _packets(self, work: Path) -> int:
        """Return how many packets the sandbox's own network has seen."""
        if self.level == "landlock":
            return 0
        home = f"HOME={work}\0".encode()
        for process in list_members():
            with suppress(OSError):
                if home in Path(f"/proc/{process.pid}/environ").read_bytes():
                    lines = Path(f"/proc/{process.pid}/net/dev").read_text().splitlines()[2:]
                    return sum(int(line.split()[place]) for line in lines for place in (2, 10))
        return 0

    def figures(self) -> str:
        """Return one line for a person."""
        return (
            f"{self.level}: {self.commands} commands, {self.timeouts} of them ended their batch, sandboxes "
            f"{dict(self.ends)}, {self.packets} packets, {len(self.slips)} slips"
        )


def _limit_s(text: str) -> float:
    return _SLOW_LIMIT_S if is_slow(text) else _LIMIT_S
