"""The operator's folder of plugins: which plugins it has, and their modules.

A plugin is a file, `KIND/NAME.py`, or a folder, `KIND/NAME/__init__.py`, with modules that it imports relatively. They
are on no path of Python's, so they hide no other module, and no compiled copy is read or written.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from gateway.config.trusted_file import UnsafePluginError, read_trusted_file

#: Most modules of one plugin: a folder with more is not a plugin's.
MOST_MODULES: Final = 200
#: Most versions of one plugin whose sources stay loaded: a plugin in use may still import its own modules.
MOST_DIGESTS: Final = 16
_SUFFIX: Final = ".py"
_INIT: Final = "__init__.py"


def list_plugin_names(folder: Path, kind: str) -> list[str]:
    """Return the names of the plugins of one kind, sorted; none for a folder that is not there."""
    try:
        entries = list(os.scandir(folder / kind))
    except OSError:
        return []
    files = {entry.name.removesuffix(_SUFFIX) for entry in entries if entry.name.endswith(_SUFFIX)}
    folders = {entry.name for entry in entries if os.path.lexists(Path(entry.path, _INIT))}
    return sorted(name for name in files | folders if not name.startswith("_"))


def get_plugin_file(folder: Path, kind: str, name: str) -> Path:
    """Return the file that a plugin of this name begins with: `NAME/__init__.py` if there is one, else `NAME.py`."""
    package = folder / kind / name / _INIT
    return package if os.path.lexists(package) else folder / kind / f"{name}{_SUFFIX}"


def load(file: Path, *, folder: Path, name: str) -> ModuleType:
    """Return the module of the plugin that begins with `file`, beneath `folder`, as a module named `name@...`.

    The same sources are the same module, so the plugin that was checked is the plugin that is built. Raises
    UnsafePluginError, and every exception of the plugin's code.
    """
    sources = _read_sources(file, folder=folder)
    digest = hashlib.sha256()
    for path, source in sources.items():
        digest.update(b"%b\0%d\0%b" % (os.fsencode(path), len(source), source))
    module_name = f"{name}@{digest.hexdigest()[:16]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    for former in [one for one in _FINDER.list_names() if one.startswith(f"{name}@")][: 1 - MOST_DIGESTS]:
        _forget_plugin(former)
    _FINDER.add(module_name, file, sources)
    try:
        return importlib.import_module(module_name)
    except BaseException:
        _forget_plugin(module_name)
        raise


def _forget_plugin(module_name: str) -> None:
    """Drop the modules of a plugin and their sources. Objects that were made of them stay as they are."""
    _FINDER.remove(module_name)
    for known in [one for one in sys.modules if _is_within(one, module_name)]:
        del sys.modules[known]


def _is_within(module: str, plugin: str) -> bool:
    return module == plugin or module.startswith(f"{plugin}.")


def _read_sources(file: Path, *, folder: Path) -> dict[Path, bytes]:
    """Return the source of each module of a plugin, in the order of their paths. Raises UnsafePluginError."""
    if file.name != _INIT:
        return {file: read_trusted_file(file, folder=folder)}
    twin = file.parent.with_suffix(_SUFFIX)
    if os.path.lexists(twin):
        raise UnsafePluginError(f"both {str(file.parent)!r} and {str(twin)!r} are a plugin of this name: remove one")
    found = sorted(path for path in file.parent.rglob(f"*{_SUFFIX}"))
    if len(found) > MOST_MODULES:
        raise UnsafePluginError(f"{str(file.parent)!r} has more than {MOST_MODULES} modules")
    return {path: read_trusted_file(path, folder=folder) for path in found}


class _Source(SourceLoader):
    """The loader of source that was read already; without facts about its file Python uses no `.pyc`."""

    def __init__(self, file: Path, source: bytes) -> None:
        self._file = file
        self._source = source

    def get_filename(self, fullname: str) -> str:
        del fullname  # one loader, one module
        return str(self._file)

    def get_data(self, path: str | bytes) -> bytes:
        del path
        return self._source


class _Finder(MetaPathFinder):
    """The finder of the modules of loaded plugins, by their names and no others."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[Path, bytes]] = {}

    def add(self, name: str, file: Path, sources: Mapping[Path, bytes]) -> None:
        """Register the modules of one plugin beneath `name`."""
        for path, source in sources.items():
            parts = path.relative_to(file.parent).with_suffix("").parts if file.name == _INIT else ()
            parts = parts[:-1] if parts[-1:] == ("__init__",) else parts
            self._sources[".".join((name, *parts))] = path, source

    def list_names(self) -> list[str]:
        """Return the names of the loaded plugins, in the order of their loading."""
        return [name for name in self._sources if "." not in name.partition("@")[2]]

    def remove(self, name: str) -> None:
        """Remove the modules of one plugin."""
        self._sources = {one: source for one, source in self._sources.items() if not _is_within(one, name)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a registered module, loaded from its checked source; None: it is not one."""
        del path, target
        if fullname not in self._sources:
            return None
        file, source = self._sources[fullname]
        spec = importlib.util.spec_from_file_location(fullname, file, loader=_Source(file, source))
        assert spec is not None
        # An empty path makes it a package whose modules no other finder reads from the disk, unchecked.
        spec.submodule_search_locations = [] if file.name == _INIT else None
        return spec


def add_finder(finder: MetaPathFinder) -> None:
    """Let modules be found by `finder`, behind all other finders. Idempotent."""
    if finder not in sys.meta_path:
        sys.meta_path.append(finder)


_FINDER: Final = _Finder()
add_finder(_FINDER)
