"""The bounds of a statement's values, so that one step of SQLite's machine takes about a second and no more.

SQLite is interrupted between two steps only. Most functions take time in proportion to their values. The functions
below compare each place of one value with each place of another. Seconds are of one core, SQLite 3.40, measured in
0032.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

VALUE_BYTES: Final = 4 << 20
PATTERN_BYTES: Final = 128  # of LIKE and GLOB
HELD_BYTES: Final = 128 << 20  # of all values that a harmless statement has at one time

#: Functions by their names, or by name and number of arguments, as EXPLAIN writes them.
_PRODUCTS: Final = {
    "like": 2 << 20,  # 0.9 s with the longest pattern
    "glob": 2 << 20,
    "instr": 256 << 10,  # 0.5 s; 140 s with 4 MiB
    "replace": 256 << 10,
    "trim(2)": 64 << 10,  # 1.0 s; an hour with 4 MiB. Without its second argument it compares with one space
    "ltrim(2)": 64 << 10,
    "rtrim(2)": 64 << 10,
    "unhex(2)": 64 << 10,
    "json_patch": 64 << 10,  # 0.4 s; each key is looked for among all others
    "jsonb_patch": 64 << 10,
}


@dataclass(frozen=True, slots=True)
class ValueLimit:
    """The longest value of one statement in bytes, and the function that requires it. None: the general bound."""

    value_bytes: int = VALUE_BYTES
    function: str | None = None

    def explain_error(self, message: str) -> str:
        """Return SQLite's message about a value or a pattern that is too long, with the bound that it met."""
        if "too big" in message:
            where = f" where a statement calls `{self.function}`" if self.function else ""
            return f"{message}: a value has at most {self.value_bytes} bytes{where}"
        if "pattern too complex" in message:
            return f"{message}: it has at most {PATTERN_BYTES} bytes"
        return message


def compute_value_limit(steps: Sequence[tuple[object, ...]], *, harmless: bool = False) -> ValueLimit:
    """Return the bound of a statement whose rows of EXPLAIN are `steps`, the rows of its triggers among them.

    A row lies in the gateway's own memory, a value for each step at most: `harmless` bounds it as a whole.
    """
    held_bytes = HELD_BYTES // max(len(steps), 1)
    bound = ValueLimit(held_bytes) if harmless and held_bytes < VALUE_BYTES else ValueLimit()
    for step in steps:
        call = str(step[5])
        name, bracket, _ = call.partition("(")
        most = _PRODUCTS.get(call) or _PRODUCTS.get(name)
        if bracket and most is not None and most < bound.value_bytes:
            bound = ValueLimit(most, name)
    return bound
