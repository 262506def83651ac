"""The functions of PostgreSQL itself that a harmless statement may call, by identity.

`postgres_functions.txt` names them: number, name with types, source. Numbers below 10,000 are fixed by PostgreSQL's own
catalogue, in all versions and databases. A test compares the list with real servers and reports what it does not know.
"""

from functools import cache
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_name("postgres_functions.txt")

#: The source of a function `p`, as the list has it: the symbol of an internal one, a digest of any other.
SOURCE: Final = """CASE WHEN p.prolang = 12 THEN p.prosrc
    ELSE left(encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex'), 16) END"""


@cache
def load_listed_functions() -> frozenset[tuple[int, str, str]]:
    """Return number, name and source of each function on the list."""
    rows = (line.split("\t") for line in LIST.read_text("utf-8").splitlines())
    return frozenset((int(number), name.partition("(")[0], source) for number, name, source in rows)


@cache
def list_function_numbers() -> tuple[int, ...]:
    """Return the number of each function on the list."""
    return tuple(sorted(number for number, _, _ in load_listed_functions()))
