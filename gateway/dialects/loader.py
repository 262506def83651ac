"""The dialects, each loaded at its first use: its package names it `DIALECT` in a module `dialect`.

How it writes error answers, `ERRORS` of a module `errors`, is loaded with this table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from gateway.dialects.dialect import Dialect, WriteError
from gateway.dialects.registry import ENDPOINTS, HELPERS, build_paths
from gateway.http.error_response import build_error_body


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """The error answers of a dialect: how their body is written, and a further header with the id of the request."""

    write: WriteError
    id_header: str | None = None


def _load_error_style(name: str) -> ErrorStyle:
    errors = import_module(f"gateway.dialects.{name}.errors")
    return ErrorStyle(errors.ERRORS, getattr(errors, "ID_HEADER", None))


_STYLES: Final[Mapping[str, ErrorStyle]] = {name: _load_error_style(name) for name in ENDPOINTS}
#: How error answers are written, by the path of the request.
ERRORS: Final[Mapping[str, ErrorStyle]] = {
    path: _STYLES[name]
    for name, endpoint in ENDPOINTS.items()
    for each in (endpoint, *HELPERS[name])
    for path in build_paths(each)
}
_OTHER: Final = ErrorStyle(build_error_body)


def find_error_style(path: str, *, of: str | None = None) -> ErrorStyle:
    """Return how the error answers of a path are written: in the style of its dialect, also just below its endpoint.

    `of` names the dialect of the client, where the path has none.
    """
    found = ERRORS.get(path) or ERRORS.get(path.rpartition("/")[0])
    return found or (_OTHER if of is None else _STYLES[of])


@cache
def load_dialect(name: str) -> Dialect:
    """Return the dialect of a package, such as `chat`."""
    found: Dialect = import_module(f"gateway.dialects.{name}.dialect").DIALECT
    return found


def load_all_dialects() -> Sequence[Dialect]:
    """Return all dialects, by the names of their packages."""
    return tuple(map(load_dialect, sorted(ENDPOINTS)))
