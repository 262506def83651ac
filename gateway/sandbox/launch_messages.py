"""The messages between the gateway and the launcher: facts that travel as one line of JSON each."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from gateway.sandbox.programs import PATH

#: How much a command is confined, strongest first.
Level = Literal["bubblewrap", "namespaces", "landlock", "none"]

#: How a command ended: by itself; by one of the limits; never begun, since the confinement or the program failed; lost,
#: since what watched it was killed.
End = Literal["exited", "timeout", "cancelled", "processes", "memory", "output", "unconfined", "not_started", "lost"]

#: What commands may read and run besides their folder: programs and their needs, and nothing that is configured.
SYSTEM: Final = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/share"),
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"),
)
#: Where a command that may write nothing else finds its own folder: the first that is neither above a path of the order
#: nor in one.
_SCRATCHES: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (an empty folder lies over it)
_SCRATCH_BYTES: Final = 64 << 20
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """`cpu_s`, `file_bytes` and `open_files` hold for each process; `processes` and `memory_bytes` for all together.

    `memory_bytes` is the address space of each process besides.
    """

    cpu_s: int = 30
    memory_bytes: int = 1 << 30
    file_bytes: int = 64 << 20
    processes: int = 64
    open_files: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One command: `argv` in the folder `cwd` (absolute), `readable` besides SYSTEM.

    `read_only`: it can have no effect. It writes `scratch` alone, which is empty and gone with it.
    """

    argv: tuple[str, ...]
    cwd: str
    level: Level
    timeout_s: float
    grace_s: float = 0.5  # from SIGTERM to SIGKILL
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    readable: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()  # variables besides PATH and HOME
    bubblewrap: str = ""  # the program, for the level of that name
    read_only: bool = False

    @property
    def environment(self) -> Mapping[str, str]:
        scratch = {} if self.scratch is None else {"TMPDIR": self.scratch}
        return MappingProxyType({**dict(self.settings), "PATH": ":".join(PATH), "HOME": self.cwd, **scratch})

    @property
    def scratch(self) -> str | None:
        """Return the folder that is empty for a read-only command; None: it has none, as Landlock makes no folders."""
        if not self.read_only or self.level not in ("namespaces", "bubblewrap"):
            return None
        named = [f"{path}/" for path in (self.cwd, *self.readable)]
        for place in map(os.path.realpath, _SCRATCHES):
            if not any(path.startswith(f"{place}/") or f"{place}/".startswith(path) for path in named):
                return place
        return None

    @property
    def scratch_bytes(self) -> int:
        return min(_SCRATCH_BYTES, self.limits.memory_bytes // 4)

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Order":
        facts: dict[str, Any] = json.loads(line)
        limits = ProcessLimits(**facts.pop("limits"))
        argv, readable = tuple(facts.pop("argv")), tuple(facts.pop("readable"))
        settings = tuple((name, value) for name, value in facts.pop("settings"))
        return cls(argv=argv, readable=readable, settings=settings, limits=limits, **facts)


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """`code` as shells count: 128 and the signal for what a signal ended.

    `detail` states why it could not begin, or what was killed.
    """

    end: End
    code: int = 0
    detail: str = ""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "CommandOutcome":
        return cls(**json.loads(line))
