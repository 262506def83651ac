"""The chain of the audit log: what each line is hashed with, and how a break is found. Pure.

Each hash covers the line and the hash before it, so nobody changes, removes or puts in a line without writing every
line behind it anew. It does not tell whether lines were cut off at the end: keep the last hash elsewhere for that.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping

#: What stands before the first line.
FIRST_HASH = "0" * 64
_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def canonical(line: Mapping[str, object]) -> bytes:
    """The same bytes for the same line: a JSON object with sorted keys, in ASCII. Raises ValueError.

    Times (`..._s`) are written as floats, because a database gives 5.0 back for 5.
    """
    values = {
        key: float(value) if isinstance(value, int) and key.endswith("_s") else value for key, value in line.items()
    }
    return _ENCODE(values).encode()


def link(previous_hash: str, line: Mapping[str, object]) -> str:
    """The hash (hex) of a line behind the one with that hash."""
    return hashlib.sha256(previous_hash.encode() + b"\n" + canonical(line)).hexdigest()


def verify(
    rows: Iterable[tuple[int, Mapping[str, object], str]], *, seq: int = 0, previous_hash: str = FIRST_HASH
) -> int | None:
    """The number of the first line that is missing or not as it was written, None if there is none.

    Rows are a number, a line and its hash each. `seq` and `previous_hash` are those of the line before the first row,
    for who reads the log page by page.
    """
    for number, line, found in rows:
        seq += 1
        if number != seq or link(previous_hash, line) != found:
            return seq
        previous_hash = found
    return None
