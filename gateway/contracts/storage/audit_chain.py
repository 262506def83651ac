"""The lines of the audit log, and their hash chain: hashing a line and finding a break. Pure.

Each hash covers the line and the hash before it. To change, remove or insert a line, you must rewrite every line
behind it. The chain does not show that lines were cut off at the end: store the last hash elsewhere for that.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: The hash before the first line.
FIRST_HASH = "0" * 64
_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One decision about one call, and its author. `by` and `via` are empty where no person decided.

    The facts of the call are empty, and its step -1, where the decision is not about one call.
    `event` is `verdict`, `decision`, `started`, `finished`, `granted`, `resolved`, `revoked` or `late`; or the end of
    an approval without a decision: `expired`, `cancelled`; or a person's word about one, which stands in `decision`:
    `assigned` (to whom), `noted` (the note); or of keys that are made at run time: `key_created`,
    `key_rotated`, `key_revoked`, with the key's name as `caller` and its id as `rule`.
    """

    tenant: str
    caller: str
    run_id: str = ""
    step: int = -1
    event: str
    tool: str = ""
    sha256: str = ""
    decision: str
    basis: str = ""
    rule: str = ""
    by: str = ""
    via: str = ""
    created_s: float


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A line of the audit log in its chain: `hash` is SHA-256 (hex) over the hash before it and the line."""

    seq: int
    line: AuditLine
    hash: str


def write_canonical_line(line: Mapping[str, object]) -> bytes:
    """Return the same bytes for the same line: a JSON object with sorted keys, in ASCII. Raises ValueError.

    Times (`..._s`) are written as floats, because a database gives 5.0 back for 5.
    """
    values = {
        key: float(value) if isinstance(value, int) and key.endswith("_s") else value for key, value in line.items()
    }
    return _ENCODE(values).encode()


def link(previous_hash: str, line: Mapping[str, object]) -> str:
    """Return the hash (hex) of a line that follows the one with `previous_hash`."""
    return hashlib.sha256(previous_hash.encode() + b"\n" + write_canonical_line(line)).hexdigest()


def verify(
    rows: Iterable[tuple[int, Mapping[str, object], str]], *, seq: int = 0, previous_hash: str = FIRST_HASH
) -> int | None:
    """Return the number of the first line that is missing or not as it was written, None if there is none.

    Each row is a number, a line and its hash. `seq` and `previous_hash` belong to the line before the first row: pass
    them to check the log page by page.
    """
    for number, line, found in rows:
        seq += 1
        if number != seq or link(previous_hash, line) != found:
            return seq
        previous_hash = found
    return None
