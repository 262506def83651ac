"""The places of the system's programs; a command's own folder is never among the places."""

import os
from pathlib import Path
from typing import Final

PATH: Final = ("/usr/bin", "/bin")

#: The shells that texts are judged for, first choice first, as each reads them alike: bash without its braces.
_SHELLS: Final = (("dash",), ("bash", "--posix", "+B"), ("busybox", "sh"))


def find_program(name: str) -> str | None:
    """Return the absolute path of the program that a bare name means, or None; a name with a slash means none."""
    if not name or "/" in name:
        return None
    candidates = (f"{folder}/{name}" for folder in PATH)
    return next((path for path in candidates if os.access(path, os.X_OK) and Path(path).is_file()), None)


def find_shell() -> tuple[str, ...] | None:
    """Return the shell that runs texts, as the words in front of `-c`; None: this machine has none of them."""
    return next((words for words in _SHELLS if find_program(words[0]) is not None), None)
