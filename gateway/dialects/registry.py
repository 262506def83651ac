"""The paths of all dialects, found by their packages: each folder beside this file is one, and names its `ENDPOINT`.

The passthrough lane reads this table to leave these paths to the context lane, so importing it loads no dialect: the
`__init__` of a dialect imports nothing of it. gateway/dialects/loader.py loads the dialects themselves.

A package with `BELOW` is stateful: a request may name earlier ones, so separate pages answer its endpoint.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

#: The endpoint of each dialect behind the base URL, such as `chat/completions`, by the name of its package.
ENDPOINTS: Final[Mapping[str, str]] = {
    found.name: import_module(f"gateway.dialects.{found.name}").ENDPOINT
    for found in iter_modules([str(Path(__file__).parent)])
    if found.ispkg
}
_BELOW: Final[Mapping[str, tuple[str, ...]]] = {
    name: getattr(import_module(f"gateway.dialects.{name}"), "BELOW", ()) for name in ENDPOINTS
}
#: Further paths of a dialect's API behind the base URL, which the context lane answers: `HELPERS` of its package.
HELPERS: Final[Mapping[str, tuple[str, ...]]] = {
    name: getattr(import_module(f"gateway.dialects.{name}"), "HELPERS", ()) for name in ENDPOINTS
}
#: Collections whose single objects a dialect has pages for, such as `responses`: `BELOW` of its package, if any.
COLLECTIONS: Final[tuple[str, ...]] = tuple(collection for below in _BELOW.values() for collection in below)
#: The packages of dialects that answer each request for itself.
STATELESS: Final[tuple[str, ...]] = tuple(sorted(name for name, below in _BELOW.items() if not below))


def build_paths(endpoint: str) -> tuple[str, ...]:
    """Return the paths that a client may use for an endpoint. Where it is posted to, a slash may follow.

    Without `/context` the client sends an X-Context-* header (gateway/lanes/classify.py).
    """
    return f"/context/v1/{endpoint}", f"/context/{endpoint}", f"/v1/{endpoint}", f"/{endpoint}"
