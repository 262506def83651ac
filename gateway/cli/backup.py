"""`gateway backup`: a copy of the store's file as it is at one moment, while gateways read and write it.

1. The copy is of one snapshot: it ends, however fast gateways write meanwhile, and delays none of them.
2. FILE appears whole, checked and on disk, with mode 0600 from its first byte; or it does not appear.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gateway.cli.audit import store_file
from gateway.cli.commands import CommandError, Commands, add_reading
from gateway.config import LoadedConfig
from gateway.contracts.storage.store import StoreError


def add(commands: Commands) -> None:
    """Add `gateway backup`."""
    p = add_reading(
        commands,
        "backup",
        copy_store,
        "copy the store while gateways use it, and check the copy",
        example="gateway backup /var/backups/gateway.db",
    )
    p.add_argument("file", type=Path, metavar="FILE", help="the copy, a file that does not exist yet")


def copy_store(loaded: LoadedConfig, file: Path) -> Iterator[str]:
    """Copy the store of the configuration to `file` and yield lines to print. Raises CommandError.

    Nothing is overwritten: a `file` that is there stays as it is.
    """
    place, store = store_file(loaded, instead="back it up with the tools of its database, such as pg_dump")
    if os.path.lexists(file):
        raise CommandError(f"{str(file)!r} is there already: it stays as it is. Name another file")
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f"{file.name}.new-", dir=file.absolute().parent)
    except OSError as error:
        raise CommandError(f"{str(file)!r} cannot be written: {error.strerror}") from None
    try:
        os.close(descriptor)
        store.write_copy(draft, progress=_report_progress)
        _write_through(draft)
        os.link(draft, file)
    except FileExistsError:
        raise CommandError(f"{str(file)!r} is there already: it stays as it is. Name another file") from None
    except (StoreError, OSError) as error:
        raise CommandError(f"{place!r} cannot be copied to {str(file)!r}: {error}") from None
    finally:
        Path(draft).unlink(missing_ok=True)
    _write_through(str(file.absolute().parent))
    yield f"wrote {file}: {file.stat().st_size} bytes, read again and whole"


def _report_progress(remaining: int, total: int) -> None:
    """Write how far the copy is, to a terminal only."""
    if sys.stderr.isatty():
        end = "\r" if remaining else "\n"
        sys.stderr.write(f"copied {100 - 100 * remaining // max(total, 1)} %{end}")
        sys.stderr.flush()


def _write_through(path: str) -> None:
    """Wait until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
