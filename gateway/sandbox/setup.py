"""The steps by which a freshly forked process becomes a confined command; none of them returns to the caller.

Every step that fails is reported through the `report` descriptor, which closes by itself once the program runs.
"""

import os
import re
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from gateway.sandbox import bubblewrap, landlock, namespaces, seccomp
from gateway.sandbox.kernel import PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, call_prctl, drop_capabilities
from gateway.sandbox.launch_messages import DEVICES, SYSTEM, CommandOutcome, End, Order, ProcessLimits

#: Never reached by a command: the process ends before exec with it.
_FAILED: Final = 125
#: The gateway's own answers come first, on the CPU and when memory runs out.
_NICE, _OOM_SCORE = 5, "500"
#: No other user may write a command's files, whatever the gateway's own mask is.
_UMASK: Final = 0o022
#: Of signals and timers that wait, a user has a few thousand, for all processes together.
_SIGNALS: Final = 256
_MOUNTS: Final = Path("/proc/self/mountinfo")
_CORE_PATTERN: Final = Path("/proc/sys/kernel/core_pattern")
#: File systems that ask a network for a name below their folder: automounters, and AFS for the cell of that name.
_ASKS_A_NETWORK: Final = frozenset({"autofs", "afs"})


class _StepError(Exception):
    """Carries the outcome of a step that failed."""

    def __init__(self, outcome: CommandOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def fork(become: Callable[[], NoReturn], *, report: int) -> int:
    """Fork a child that runs `become` and return its id; whatever it raises goes to `report`."""
    pid = os.fork()
    if pid:
        return pid
    try:
        call_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        become()
    except _StepError as failed:
        os.write(report, failed.outcome.to_line())
    except BaseException as error:
        os.write(report, CommandOutcome("unconfined", detail=f"setting up: {error!r}").to_line())
    finally:
        os._exit(_FAILED)


def run_in_bubblewrap(order: Order, program: str, *, base_processes: int, status: int) -> NoReturn:
    """Run the command in bubblewrap, which writes to `status` how the command ended."""
    if order.read_only:
        _require_no_side_effects((*SYSTEM, *order.readable, order.cwd))
        # bubblewrap binds what lies there: an overlay, through which no FIFO is reached.
        with _report_failed_step("read-only mounts"):
            _cover_private_folders(order, overlay=True)
            _require_filter()
    _apply_common_setup(order, base_processes=base_processes)
    with _report_failed_step("bubblewrap"):
        filter_file = None
        if seccomp.is_known_machine():
            filter_file = os.memfd_create("filter", 0)
            os.write(filter_file, seccomp.build_program(_list_refused_syscalls(order), newer=not order.read_only))
            os.lseek(filter_file, 0, os.SEEK_SET)
        os.set_inheritable(status, True)
        argv = bubblewrap.build_arguments(order, (program, *order.argv[1:]), status=status, seccomp=filter_file)
        os.execve(order.bubblewrap, argv, {})  # noqa: S606 (no shell is meant)
    raise AssertionError("exec does not return")


def run_in_namespaces(order: Order, program: str, *, base_processes: int, report: int) -> NoReturn:
    """Become the first process of the namespaces, which reaps there and ends with the command."""
    signal.set_wakeup_fd(-1)
    _raise_oom_score()  # behind the mounts it could not be written
    if order.read_only:
        _require_no_side_effects((*SYSTEM, *order.readable, order.cwd))
    with _report_failed_step("read-only mounts"):
        if order.read_only:
            scratch, root = _cover_private_folders(order, overlay=False)
            paths = (*SYSTEM, *order.readable, order.cwd, scratch)
            if "/" not in paths:
                namespaces.show_paths(paths, DEVICES, root=root)
            namespaces.make_read_only(_list_visible_folders(order), scratch=scratch)
            if "/" not in paths:
                namespaces.change_root(root, scratch=scratch)
        else:
            namespaces.make_read_only_except(order.cwd)

    def execute_command() -> NoReturn:
        _apply_common_setup(order, base_processes=base_processes)
        with _report_failed_step("Landlock and seccomp"):
            _apply_landlock(order)
            seccomp.install(_list_refused_syscalls(order) + _get_truncate_filter(), newer=not order.read_only)
        _execute(order, program)

    pid = fork(execute_command, report=report)
    os.close(report)
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def run_in_landlock(order: Order, program: str, *, base_processes: int) -> NoReturn:
    """Confine this process with Landlock and seccomp, and run the command in it."""
    if order.read_only:
        _require_no_side_effects(("/",))  # Landlock lets a command look up any path, which is all that it takes
    _apply_common_setup(order, base_processes=base_processes)
    with _report_failed_step("Landlock and seccomp"):
        _apply_landlock(order)
        signals = seccomp.SIGNALS if landlock.get_abi() < landlock.SIGNALS_ABI else ()
        metadata = seccomp.READ_ONLY_METADATA if order.read_only else seccomp.METADATA
        seccomp.install(
            _list_refused_syscalls(order) + metadata + signals + _get_truncate_filter(),
            newer=not order.read_only,
        )
    _execute(order, program)


def _require_no_side_effects(shown: Sequence[str]) -> None:
    """Raise _StepError if a path lookup or a crash could have an effect outside of the sandbox."""
    if (folder := find_network_folder(_MOUNTS.read_text(), shown)) is not None:
        detail = f"a look below {folder!r} would have the machine mount something, or ask a network"
        raise _StepError(CommandOutcome("unconfined", detail=detail))
    with suppress(FileNotFoundError):
        if connects_at_crashes(_CORE_PATTERN.read_text()):
            raise _StepError(
                CommandOutcome("unconfined", detail="a crash would be told to the socket in kernel.core_pattern")
            )


def find_network_folder(mounts: str, shown: Sequence[str]) -> str | None:
    """Return a folder at or below the `shown` paths in which names come from a network, but for the ones in /proc.

    What is mounted over such a folder, which is what an automounter does for a single one, hides it. `mounts`: see
    proc_pid_mountinfo(5).
    """
    found = [(line.split(), line.partition(" - ")[2]) for line in mounts.splitlines()]
    over = {(facts[1], facts[4]) for facts, _ in found}  # the mount beneath, and the folder
    for facts, kind in found:
        number, folder = facts[0], facts[4]
        place = re.sub(r"\\([0-7]{3})", lambda escaped: chr(int(escaped[1], 8)), folder)
        is_shown = any(f"{place}/".startswith(f"{path.rstrip('/')}/") for path in shown)
        asks = kind.partition(" ")[0] in _ASKS_A_NETWORK and (number, folder) not in over
        if asks and is_shown and not place.startswith("/proc/"):
            return place
    return None


def connects_at_crashes(core_pattern: str) -> bool:
    """Return whether the kernel connects to a socket at each crash (core(5), `@`), whatever the limit of core files."""
    return core_pattern.startswith("@")


def run_unconfined(order: Order, program: str, *, base_processes: int) -> NoReturn:
    """Run the command without confinement. Raises _StepError for a read-only command."""
    if order.read_only:
        raise _StepError(CommandOutcome("unconfined", detail="nothing keeps a read-only command from writing"))
    _apply_common_setup(order, base_processes=base_processes)
    _execute(order, program)


def _cover_private_folders(order: Order, *, overlay: bool) -> tuple[str, int]:
    """Cover what the command must not reach. Return its scratch folder, and a place for a root (`show_paths`)."""
    scratch = order.scratch
    if scratch is None:
        raise OSError("`cwd` and `readable` leave no folder for temporary files")
    if overlay and (folder := next(filter(_holds_devices, order.readable), None)) is not None:
        raise OSError(f"the readable folder {folder!r} holds devices and cannot be covered")
    root = namespaces.cover_folders(
        _list_visible_folders(order), scratch=scratch, size_bytes=order.scratch_bytes, overlay=overlay
    )
    return scratch, root


def _list_visible_folders(order: Order) -> tuple[str, ...]:
    """Return the work folder and the readable ones, outer ones first."""
    folders = {path for path in order.readable if Path(path).is_dir() and not _holds_devices(path)}
    return tuple(sorted({order.cwd, *folders}))


def _holds_devices(folder: str) -> bool:
    return any(device.startswith(f"{folder.rstrip('/')}/") for device in DEVICES)


def _apply_landlock(order: Order) -> None:
    """Restrict file access to the system, readable folders and the folders of the command."""
    _require_filter()
    readable = (*SYSTEM, *order.readable)
    if not order.read_only:
        landlock.restrict(readable=readable, writable=(order.cwd,), devices=DEVICES)
    else:
        scratch = () if order.scratch is None else (order.scratch,)
        landlock.restrict(readable=readable, data=(order.cwd,), writable=scratch, devices=DEVICES)
    drop_capabilities()


def _require_filter() -> None:
    if not seccomp.is_known_machine():
        raise OSError(f"no filter of system calls for {os.uname().machine!r}")


def _list_refused_syscalls(order: Order) -> tuple[seccomp.RefusedSyscall, ...]:
    return seccomp.ALWAYS + seccomp.READ_ONLY if order.read_only else seccomp.ALWAYS


def _get_truncate_filter() -> tuple[seccomp.RefusedSyscall, ...]:
    """Return the filter for truncate(2), where this Landlock does not cover it; else none."""
    return seccomp.TRUNCATE if landlock.get_abi() < landlock.TRUNCATE_ABI else ()


def _apply_common_setup(order: Order, *, base_processes: int) -> None:
    """Set up what every command gets: a new session, limits, no input, no privileges to gain."""
    os.setsid()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what is ignored stays so over exec
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    _raise_oom_score()
    os.nice(_NICE)
    os.umask(_UMASK)
    with _report_failed_step("the folder", end="not_started"):
        os.chdir(order.cwd)
    with _report_failed_step("limits"):
        _apply_limits(order.limits, base_processes=base_processes)
        call_prctl(PR_SET_NO_NEW_PRIVS, 1)


def _raise_oom_score() -> None:
    """Have the kernel end this process, and not the gateway, when memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _apply_limits(limits: ProcessLimits, *, base_processes: int) -> None:
    """Set the resource limits of the command, within the hard limits of this process."""
    for kind, wanted in (
        # Below any core: a limit of 0 is none for a handler that the kernel starts (core(5), `|` in core_pattern).
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        # It counts all tasks of the user, and does not hold for root: the launcher counts besides.
        (resource.RLIMIT_NPROC, base_processes + limits.processes),
        (resource.RLIMIT_SIGPENDING, _SIGNALS),
        # Where the machine lets its users run before all others (limits.conf(5)).
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_NICE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # A process that handles SIGXCPU is killed a second later.
        above = value + 1 if kind == resource.RLIMIT_CPU and hard == resource.RLIM_INFINITY else value
        resource.setrlimit(kind, (value, above))


def _execute(order: Order, program: str) -> NoReturn:
    with _report_failed_step(f"{order.argv[0]!r}", end="not_started"):
        os.execve(program, order.argv, dict(order.environment))  # noqa: S606 (no shell is meant)
    raise AssertionError("exec does not return")


@contextmanager
def _report_failed_step(name: str, *, end: End = "unconfined") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _StepError(CommandOutcome(end, detail=f"{name}: {error.strerror or error}")) from error
