"""The process between the gateway and a command: confines the command, watches it, and ends all that came of it.

It is a separate program, so that nothing of the gateway (threads, descriptors, memory) is in it. It reads an order from
its standard input and keeps that open: its end means that the command is to end. The outcome goes to the descriptor
named by its last argument. Standard output and error belong to the command.

1. A step of the confinement that fails ends the attempt, before the command runs, and is reported.
2. When the launcher has reported the outcome, no process of the command is left.
"""

import dataclasses
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

from gateway.sandbox import namespaces, setup
from gateway.sandbox import process_tree as family
from gateway.sandbox.kernel import PR_SET_CHILD_SUBREAPER, call_prctl
from gateway.sandbox.launch_messages import CommandOutcome, End, Order
from gateway.sandbox.memory import measure_held_bytes, measure_stored_bytes
from gateway.sandbox.programs import PATH, find_program

_CONTROL: Final = 0
#: How often the processes are counted at most, the part of one CPU that counting may take, and how often they are
#: counted whatever it takes.
_WATCH_S, _WATCH_PART, _LONGEST_WATCH_S = 0.05, 0.05, 1.0
#: Generations of processes that belong to the sandbox and not to the command.
_FRAME: Final = {"bubblewrap": 2, "namespaces": 1, "landlock": 0, "none": 0}
_SIGNALLED: Final = 128
#: More than bubblewrap ever reports.
_STATUS_BYTES: Final = 1 << 16


def main() -> None:
    """Read an order from the control pipe, carry it out, and write the outcome."""
    answer = int(sys.argv[-1])
    os.set_inheritable(answer, False)
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(_CONTROL, 1 << 16)
        if not piece:
            return  # the gateway changed its mind, or is gone
        line += piece
    order = Order.from_line(line)
    if order.read_only:  # what is read of a FIFO or a device is gone
        files = (path for path in order.readable if os.path.isfile(path) or os.path.isdir(path))  # noqa: PTH112, PTH113
        order = dataclasses.replace(order, readable=tuple(files))
    outcome = carry_out(order)
    with suppress(BrokenPipeError):
        os.write(answer, outcome.to_line())


def carry_out(order: Order) -> CommandOutcome:
    """Run the command to its end. Turns this process into one that does nothing else."""
    name = order.argv[0]
    path = name if "/" in name else find_program(name)
    if path is None:
        return CommandOutcome("not_started", 127, f"{name!r}: not found in {' and '.join(PATH)}")
    try:
        call_prctl(PR_SET_CHILD_SUBREAPER, 1)
        base_processes = family.count_user_tasks()
        if order.level == "namespaces":
            namespaces.enter_namespaces()
        elif order.level == "bubblewrap" and order.read_only:
            namespaces.enter_namespaces(mounts_only=True)
    except OSError as error:
        return CommandOutcome("unconfined", detail=f"{order.level}: {error.strerror or error}")
    woken = _wake_on_children()
    status, status_end = os.pipe()
    report, report_end = os.pipe()
    pid = setup.fork(
        _build_child_start(order, path, base_processes=base_processes, report=report_end, status=status_end),
        report=report_end,
    )
    os.close(report_end)
    os.close(status_end)
    with os.fdopen(report, "rb") as told:
        failure = told.readline()
    if failure:
        family.end_descendants(grace_s=0)
        return CommandOutcome.from_line(failure)
    end, codes = _watch_child(order, pid, woken=woken)
    grace_s = 0.0 if end == "exited" else order.grace_s
    codes |= family.end_descendants(grace_s=grace_s, spared=1 if order.level == "bubblewrap" else 0)
    if order.level == "bubblewrap" and end == "exited":
        return _read_bubblewrap_outcome(status, codes.get(pid, 0))
    return CommandOutcome(end, codes.get(pid, 0))


def _build_child_start(
    order: Order, path: str, *, base_processes: int, report: int, status: int
) -> Callable[[], NoReturn]:
    """Return the function that turns a forked child into the confined command."""

    def become() -> NoReturn:
        if order.level == "bubblewrap":
            setup.run_in_bubblewrap(order, path, base_processes=base_processes, status=status)
        if order.level == "namespaces":
            setup.run_in_namespaces(order, path, base_processes=base_processes, report=report)
        if order.level == "landlock":
            setup.run_in_landlock(order, path, base_processes=base_processes)
        setup.run_unconfined(order, path, base_processes=base_processes)

    return become


def _watch_child(order: Order, pid: int, *, woken: int) -> tuple[End, dict[int, int]]:
    """Wait until the command ends or must be ended. Return the reason, and exit codes of children."""
    poller = select.poll()
    poller.register(_CONTROL, select.POLLIN)
    poller.register(woken, select.POLLIN)
    deadline = time.monotonic() + order.timeout_s
    codes: dict[int, int] = {}
    pause_s = _WATCH_S
    while True:
        left_s = deadline - time.monotonic()
        ready = [descriptor for descriptor, _ in poller.poll(max(0.0, min(left_s, pause_s)) * 1000)]
        if woken in ready:
            os.read(woken, 1 << 12)
        codes |= family.reap()
        if pid in codes:
            return "exited", codes
        if _CONTROL in ready and not os.read(_CONTROL, 1):
            return "cancelled", codes
        if time.monotonic() >= deadline:
            return "timeout", codes
        started = time.process_time()  # a count that waits for others' locks or for a CPU costs nothing
        excess = _find_excess(order)
        if excess is not None:
            return excess, codes
        pause_s = min(max(_WATCH_S, (time.process_time() - started) / _WATCH_PART), _LONGEST_WATCH_S)


def _find_excess(order: Order) -> End | None:
    """Return the limit that the command exceeds, of its processes or its memory; None: no limit."""
    # What has ended and was not reaped has a number, of which the machine has some thousands, and kernel memory.
    members = [m for m in family.list_members(ended=True) if m.depth > _FRAME[order.level]]
    if sum(m.tasks for m in members) > order.limits.processes:
        return "processes"
    left = order.limits.memory_bytes - (0 if order.scratch is None else measure_stored_bytes(order.scratch))
    held = measure_held_bytes([m.pid for m in members], filtered=order.level != "none", enough_bytes=left)
    return "memory" if held > left else None


def _wake_on_children() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _on_signal)
    return readable


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: a signal needs a handler to wake the loop."""


def _read_bubblewrap_outcome(status: int, own_code: int) -> CommandOutcome:
    """Return the outcome that bubblewrap reports; `own_code` is its own exit code.

    Its own failures have an exit code, too; the command's is the one that it wrote down. It writes none if a signal
    ends it, for example when memory runs out.
    """
    lines = os.read(status, _STATUS_BYTES).splitlines()
    codes = [told["exit-code"] for told in map(json.loads, lines) if "exit-code" in told]
    if not codes and own_code > _SIGNALLED:
        return CommandOutcome("lost", detail=f"bubblewrap was ended by signal {own_code - _SIGNALLED}")
    if not codes:
        return CommandOutcome("unconfined", detail="bubblewrap could not set up the sandbox")
    return CommandOutcome("exited", codes[0])
