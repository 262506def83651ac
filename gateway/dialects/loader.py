"""The dialects, each loaded at its first use: its package names it `DIALECT` in a module `dialect`.

How it writes error answers, `ERRORS` of a module `errors`, is loaded with this table.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Final

from gateway.dialects.dialect import Dialect, WriteError
from gateway.dialects.registry import ENDPOINTS, build_paths

#: How the body of an error answer is written, by the path of the request.
ERRORS: Final[Mapping[str, WriteError]] = {
    path: import_module(f"gateway.dialects.{name}.errors").ERRORS
    for name, endpoint in ENDPOINTS.items()
    for path in build_paths(endpoint)
}


@cache
def load_dialect(name: str) -> Dialect:
    """Return the dialect of a package, such as `chat`."""
    found: Dialect = import_module(f"gateway.dialects.{name}.dialect").DIALECT
    return found


def load_all_dialects() -> Sequence[Dialect]:
    """Return all dialects, by the names of their packages."""
    return tuple(map(load_dialect, sorted(ENDPOINTS)))
