"""All dialects, loaded: each package names its dialect `DIALECT` in a module `dialect`."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from gateway.dialects.dialect import Dialect, WriteError
from gateway.dialects.endpoints import ENDPOINTS, paths_of

DIALECTS: Final[Sequence[Dialect]] = tuple(
    import_module(f"gateway.dialects.{name}.dialect").DIALECT for name in sorted(ENDPOINTS)
)
#: How the body of an error answer is written, by the path of the request.
ERRORS: Final[Mapping[str, WriteError]] = {
    path: dialect.error for dialect in DIALECTS for path in paths_of(dialect.endpoint)
}
