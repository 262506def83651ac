"""The URL of a SQLite store: its file, and whether that can be opened. Nothing is made and nothing is opened."""

import os
import tempfile
from pathlib import Path

from gateway.plugin import StoreError

from .beside import SqliteBeside
from .file import IN_MEMORY

#: What stands between the scheme and the file.
_SLASHES = ":///"


class SqliteAddress:
    """The `gateway.contracts.store.StoreAddress` of `sqlite:///FILE`; a relative file begins at `folder`."""

    def __init__(self, url: str, folder: Path) -> None:
        scheme, slashes, place = url.partition(_SLASHES)
        if slashes and place not in ("", IN_MEMORY) and "\0" not in place:
            place = str(folder / place)
            self.file: Path | None = Path(place)
        else:
            self.file = None
        self.url, self.shown = f"{scheme}{slashes}{place}", url

    def problem(self) -> str | None:
        if self.file is None:
            return None
        try:
            if self.file.exists():
                os.close(os.open(self.file, os.O_RDWR))
            with tempfile.TemporaryFile(dir=self.file.parent):  # for the files that SQLite puts beside it
                pass
        except OSError as error:
            what = "its folder" if self.file.exists() or not self.file.parent.is_dir() else "it"
            reason = f"{str(self.file)!r} cannot be opened for writing: {error.strerror}"
            return f"{reason}: make {what} writable, or name another file"
        return None

    def beside(self) -> SqliteBeside:
        if self.file is None:
            raise StoreError("the store is in memory")
        return SqliteBeside(str(self.file))
