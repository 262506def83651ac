"""The operator's own plugins: the files, and their source if only the operator can have written it.

A plugin is code with all rights of the gateway. A file counts as the operator's only if no other user could have put it
there. A file that group or others may write is refused. So is one that belongs to another user, or lies behind a link
that leads out of the folder. The check and the read use the same open file. Compiled copies are neither read nor
written.
"""

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

#: Of one plugin: no handwritten source is larger.
MAX_SOURCE_BYTES = 4 << 20
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafePluginError(Exception):
    """A plugin file that is not imported. The text names the file and the next step."""


def read_trusted_file(file: Path, *, folder: Path, user: int | None = None) -> bytes:
    """Return the source of a plugin beneath `folder`, for a gateway that `user` runs. Raises UnsafePluginError."""
    user = os.geteuid() if user is None else user
    try:
        home, parent, real = (place.resolve(strict=True) for place in (folder, file.parent, file))
        for place in (parent, real):
            if not place.is_relative_to(home):
                raise UnsafePluginError(
                    f"{str(file)!r} is behind a link that leads out of {str(folder)!r}: put the file itself there"
                )
        for place in dict.fromkeys((*_walk_down(home, parent), *_walk_down(home, real.parent))):
            _check_owner_and_mode(place, place.stat(), user=user)
        if not real.is_file():
            raise UnsafePluginError(f"{str(file)!r} is no ordinary file")
        # What was resolved has no link in it any more; a pipe must not hold the start up.
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            _check_owner_and_mode(real, os.fstat(opened.fileno()), user=user)
            source = opened.read(MAX_SOURCE_BYTES + 1)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its links lead in a circle"
        raise UnsafePluginError(f"{str(file)!r} cannot be read: {reason}") from None
    if len(source) > MAX_SOURCE_BYTES:
        raise UnsafePluginError(f"{str(file)!r} is larger than {MAX_SOURCE_BYTES} bytes")
    return source


def _walk_down(home: Path, place: Path) -> Iterator[Path]:
    """Yield `home` and the folders below it on the way to `place`."""
    yield home
    for part in place.relative_to(home).parts:
        home = home / part
        yield home


def _check_owner_and_mode(place: Path, facts: os.stat_result, *, user: int) -> None:
    """Raise UnsafePluginError for a file that others can write, or that another user owns."""
    if facts.st_mode & _OTHERS_WRITE:
        raise UnsafePluginError(
            f"{str(place)!r} can be written by others than its owner, so it is not imported: "
            f"chmod go-w {shlex.quote(str(place))}"
        )
    if user != 0 and facts.st_uid not in (0, user):
        raise UnsafePluginError(
            f"{str(place)!r} belongs to user {facts.st_uid}, so it is not imported: it must be root's, or that of the "
            f"user who runs the gateway ({user})"
        )
