"""Namespaces of Linux for a command: no network, no foreign processes, everything read-only but one folder."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway.sandbox.kernel import call_unshare, mount, set_mount_attributes

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
#: The names in /dev of what a process has open.
_OPEN: Final = {
    "fd": "/proc/self/fd",
    **{name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))},
}
#: Of a FIFO that a command could empty: no weaker level may take the place of this one then.
AS_IT_IS: Final = "a command could read as it is, since no overlay can be put over the folder"
#: Files and folders in which a FIFO is looked for: a second or two.
_MOST_ENTRIES: Final = 300_000
#: Folders and files of a scratch folder together.
SCRATCH_INODES: Final = 4096


def enter_namespaces(*, mounts_only: bool = False) -> None:
    """Move this process into its own namespaces; its next child is the first process there.

    `mounts_only`: network, processes and IPC stay the machine's. The user keeps its number. Raises OSError where the
    machine does not let it.
    """
    user, group = os.getuid(), os.getgid()
    call_unshare(_NEWUSER | _NEWNS | (0 if mounts_only else _NEWPID | _NEWNET | _NEWIPC | _NEWUTS))
    own = Path("/proc/self")
    own.joinpath("setgroups").write_text("deny")
    own.joinpath("uid_map").write_text(f"{user} {user} 1")
    own.joinpath("gid_map").write_text(f"{group} {group} 1")


def make_read_only_except(folder: str) -> None:
    """Make every mount of this namespace read-only, except the folder itself."""
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    mount(folder, folder, flags=_MS_BIND)
    set_mount_attributes("/", add=_MOUNT_ATTR_RDONLY, recursive=True)
    set_mount_attributes(folder, clear=_MOUNT_ATTR_RDONLY)


def cover_folders(folders: Sequence[str], *, scratch: str, size_bytes: int, overlay: bool) -> int:
    """Put an overlay, which is read-only, over each folder, and an empty folder in memory over `scratch`.

    Return a descriptor of another empty folder in memory, which no path leads to: for `show_paths`.

    Beneath the overlay FIFOs and sockets lead nowhere, and locks on files are locks on other files. Where this kernel
    cannot do that, or mounts lie beneath a folder, it stays as it is, unless `overlay` is required, or a FIFO is in it.
    A folder in another one comes behind that.
    """
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    options = f"size={size_bytes},nr_inodes={SCRATCH_INODES},mode=0755"
    mount("tmpfs", scratch, kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options=options)
    inner, empty, root = f"{scratch}/inner", f"{scratch}/empty", f"{scratch}/root"
    for path, mode in ((inner, 0o1777), (empty, 0o555), (root, 0o755)):
        os.mkdir(path)  # noqa: PTH102
        os.chmod(path, mode)  # noqa: PTH101 (whatever the umask is)
    covered: list[str] = []
    for folder in folders:
        try:
            if not any(folder.startswith(f"{outer}/") for outer in covered):
                _mount_overlay(folder, empty)
                covered.append(folder)
                continue
        except OSError:
            if overlay:
                raise
            _require_no_fifo(folder)
        mount(folder, folder, flags=_MS_BIND | _MS_REC)
    place = os.open(root, os.O_PATH | os.O_DIRECTORY)
    mount(inner, scratch, flags=_MS_BIND)
    return place


def _require_no_fifo(folder: str) -> None:
    """Raise OSError where something below the folder may be a FIFO: a command could take its readers' data."""
    folders, left = [folder], _MOST_ENTRIES
    while folders:
        here = folders.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        raise OSError(f"{folder!r} has too many files to look for one that {AS_IT_IS}")
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif _is_fifo(entry):
                        raise OSError(f"{entry.path!r} is a FIFO, which {AS_IT_IS}")
        except FileNotFoundError:
            continue
        except PermissionError:
            if os.access(here, os.X_OK):  # what is there can be opened by its name
                raise


def _is_fifo(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_symlink():
        return False
    return stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode)


def _mount_overlay(folder: str, empty: str) -> None:
    """Mount a read-only overlay over a folder."""
    os.chdir(folder)
    try:
        # An overlay without an upper layer needs two lower ones. A relative path needs no quotes.
        flags = _MS_RDONLY | _MS_NODEV | _MS_NOSUID
        mount("overlay", folder, kind="overlay", flags=flags, options=f"lowerdir=.:{empty}")
    finally:
        os.chdir("/")


def make_read_only(folders: Sequence[str], *, scratch: str) -> None:
    """Make every mount of this namespace read-only, but for `scratch`; the folders have no devices."""
    set_mount_attributes("/", add=_MOUNT_ATTR_RDONLY, recursive=True)
    for folder in folders:
        set_mount_attributes(folder, add=_MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOSUID, recursive=True)
    set_mount_attributes(scratch, clear=_MOUNT_ATTR_RDONLY)


def show_paths(paths: Sequence[str], devices: Sequence[str], *, root: int) -> None:
    """Make these paths, with all that is mounted there, the only ones below the folder `root`, as far as they exist.

    A path that is only looked up, and not opened, can have an effect, too: an automounter requests it from a network.
    """
    top = Path(f"/proc/self/fd/{root}")
    for path in map(Path, sorted(paths)):
        target = top / path.relative_to("/")
        if os.path.lexists(target) or not path.exists():
            continue  # it is in a folder that came before, or not there
        if path.is_symlink() and str(path.resolve()) in paths:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.readlink())
        else:
            _bind_path(path, target)
            set_mount_attributes(str(target), add=_MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOSUID, recursive=True)
    for device in filter(Path.exists, map(Path, devices)):
        _bind_path(device, top / device.relative_to("/"))
    for name, open_as in _OPEN.items():
        if not os.path.lexists(top / "dev" / name):
            (top / "dev" / name).symlink_to(open_as)
    if not (top / "proc").exists():
        _bind_path(Path("/proc"), top / "proc")
        if Path("/proc/sys").exists():  # with systemd, a look into /proc/sys/fs/binfmt_misc mounts that
            mount("tmpfs", f"{top}/proc/sys", kind="tmpfs", flags=_MS_RDONLY, options="size=4k,nr_inodes=1")


def change_root(root: int, *, scratch: str) -> None:
    """Leave this process nothing but what was shown below `root`; `scratch` there is writable."""
    os.fchdir(root)
    set_mount_attributes(f".{scratch}", clear=_MOUNT_ATTR_RDONLY)
    os.chroot(".")
    os.close(root)
    os.chdir("/")


def _bind_path(path: Path, target: Path) -> None:
    """Bind a file or a folder, with all its mounts, to a place that may not be there yet."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        target.mkdir(exist_ok=True)
    elif not target.exists():
        target.touch(0o600)
    mount(str(path), str(target), flags=_MS_BIND | _MS_REC)
