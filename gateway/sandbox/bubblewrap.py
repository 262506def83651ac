"""The command line of bubblewrap for one order: an empty root with the system, and the folder or a scratch writable."""

from collections.abc import Sequence
from pathlib import Path

from gateway.sandbox.launch_messages import DEVICES, SYSTEM, Order


def build_arguments(order: Order, program: Sequence[str], *, status: int, seccomp: int | None) -> list[str]:
    """Return what to run instead of `program`; both numbers are open descriptors that it inherits."""
    found = [order.bubblewrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    found += ["--json-status-fd", str(status)]
    if seccomp is not None:
        found += ["--seccomp", str(seccomp)]
    found.append("--clearenv")
    for name, value in order.environment.items():
        found += ["--setenv", name, value]
    if order.scratch is not None:
        found += ["--bind", order.scratch, order.scratch]
    for path in (*SYSTEM, *order.readable):
        if Path(path).is_symlink() and Path(path).is_dir():
            found += ["--symlink", str(Path(path).readlink()), path]
        else:
            found += ["--ro-bind-try", path, path]
    for path in DEVICES:
        found += ["--dev-bind-try", path, path]
    found += [
        "--ro-bind" if order.read_only else "--bind",
        order.cwd,
        order.cwd,
        "--remount-ro",
        "/",
        "--chdir",
        order.cwd,
    ]
    return [*found, "--", *program]
