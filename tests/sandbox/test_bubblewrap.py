"""The command line of bubblewrap; what it does is tried in test_launcher.py, where it is installed."""

import dataclasses
from pathlib import Path

from gateway.sandbox.bubblewrap import build_arguments
from gateway.sandbox.launch_messages import Order

ORDER = Order(argv=("ls",), cwd="/home/x", level="bubblewrap", timeout_s=1, bubblewrap="/usr/bin/bwrap")


def test_bubblewrap_unshares_everything_and_binds_one_writable_folder() -> None:
    """And what runs comes last, behind the end of the options."""
    found = build_arguments(ORDER, ("/usr/bin/ls", "--bind"), status=5, seccomp=7)
    assert found[0] == "/usr/bin/bwrap"
    assert {"--unshare-all", "--die-with-parent", "--clearenv", "--new-session"} <= set(found)
    assert found[-3:] == ["--", "/usr/bin/ls", "--bind"]
    own = found[: found.index("--")]
    assert [own[at + 1] for at, word in enumerate(own) if word == "--bind"] == ["/home/x"]
    assert own[own.index("--remount-ro") + 1] == "/"
    assert own[own.index("--seccomp") + 1] == "7"


def test_bubblewrap_keeps_system_links_as_links() -> None:
    """/bin is one on most systems; a folder is bound."""
    found = build_arguments(ORDER, ("/usr/bin/ls",), status=5, seccomp=None)
    before = found[found.index("/bin") - 2 : found.index("/bin")]
    linked = Path("/bin").is_symlink()
    assert (before[0] == "--symlink") is linked
    assert "--seccomp" not in found


def test_read_only_command_may_write_only_its_scratch_folder() -> None:
    """What lies there when bubblewrap starts is an empty folder in memory."""
    order = dataclasses.replace(ORDER, read_only=True)
    found = build_arguments(order, ("/usr/bin/ls",), status=5, seccomp=7)
    assert [found[at + 1] for at, word in enumerate(found) if word == "--bind"] == [order.scratch]
    assert found[found.index("--remount-ro") - 3 : found.index("--remount-ro")] == ["--ro-bind", "/home/x", "/home/x"]
