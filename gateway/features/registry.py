"""The features, found by their folders: each folder beside this file is one, and each file of it has a role.

A role belongs to a room (docs/architecture.md), which loads the files of that role when it needs them. So a feature
that is added needs no line here, and a file that is not needed is not loaded: see docs/decisions/0061.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Final

FOLDER: Final = Path(__file__).parent
#: The features that come first, in this order, in each phase of a request: spans say the tokens that usage has read,
#: and limits give back what usage has counted. All others follow by their names.
ORDER: Final = ("usage", "limits", "tracing")


@cache
def list_features(role: str) -> tuple[str, ...]:
    """Return the names of the features that have a file of this role, in their order."""
    names = [found.name for found in iter_modules([str(FOLDER)]) if found.ispkg]
    names = [name for name in names if role in {one.name for one in iter_modules([str(FOLDER / name)])}]
    return tuple(sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name)))


def load_part(feature: str, role: str) -> ModuleType:
    """Return the file of this role of a feature, as a module."""
    return import_module(f"gateway.features.{feature}.{role}")


def load_parts(role: str) -> Iterator[ModuleType]:
    """Yield the files of this role of all features, in their order."""
    return (load_part(name, role) for name in list_features(role))
