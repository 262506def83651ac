"""The process between the gateway and one MCP server: it starts it, reports its end, and ends all its processes.

It is a separate program. The socket that its last argument names carries one order and the answers, one line of JSON
each. The socket's end means that the server is to end, also when the gateway was killed. Standard input, output and
error belong to the server alone.

1. When the shim is gone, no process of the server is left: neither one in another session nor an orphan.
2. The server has ended when its first process has: the shim ends the remaining ones, so its streams end, too.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from types import FrameType
from typing import Any, Final

from gateway.sandbox import process_tree as family
from gateway.sandbox.kernel import PR_SET_CHILD_SUBREAPER, call_prctl

#: The signals that would end the shim before its server.
_SURVIVED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Read the order from the control socket, and run the server that it describes."""
    descriptor = int(sys.argv[-1])
    # uvloop leaves copies of the server's streams open: their end would not be seen.
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
    with socket.socket(fileno=descriptor) as gateway:
        gateway.set_inheritable(False)
        with gateway.makefile("rb") as orders:
            line = orders.readline()
        if line.endswith(b"\n"):
            _run_server(gateway, json.loads(line))


def _run_server(gateway: socket.socket, order: dict[str, Any]) -> None:
    """Start the server, wait for its end, end all its processes, and report the exit code."""
    call_prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in _SURVIVED:
        signal.signal(number, _on_signal)  # a handler is not passed on to the server; "ignore" would be
    try:
        server = subprocess.Popen(order["argv"], env=order["environment"], cwd=order["cwd"])  # noqa: S603 (no shell)
    except (OSError, ValueError) as error:
        _send_report(
            gateway, {"errno": getattr(error, "errno", None), "error": getattr(error, "strerror", None) or str(error)}
        )
        return
    _redirect_streams_to_devnull()
    _send_report(gateway, {"pid": server.pid})
    codes = _watch(gateway, server.pid)
    codes |= family.end_descendants(grace_s=0.0 if server.pid in codes else order["grace_s"])
    _send_report(gateway, {"code": codes.get(server.pid)})


def _watch(gateway: socket.socket, pid: int) -> dict[int, int]:
    """Wait until the child `pid` ends or the gateway hangs up; return the exit codes of children that ended."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _on_signal)
    poller = select.poll()
    poller.register(gateway, select.POLLIN)
    poller.register(woken, select.POLLIN)
    codes = family.reap()
    while pid not in codes:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if gateway.fileno() in ready:
            break  # it sends one order only, so this is the end
        os.read(woken, 1 << 12)
        codes |= family.reap()
    return codes


def _redirect_streams_to_devnull() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)


def _send_report(gateway: socket.socket, answer: dict[str, Any]) -> None:
    try:
        gateway.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        return  # the gateway does not listen any more


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: a signal needs a handler to wake the poll."""
