"""The configuration while it is put together: the tree, the place of each part, and the problems found."""

from collections.abc import Iterator
from pathlib import Path

from gateway.config.problems import ConfigError, KeyPath, Problem, SourceLocation, format_path
from gateway.config.reading.yaml_reader import BROKEN, YamlSource

_ANY = "*"


class Document:
    """A configuration tree that is never changed in place: aliases of the file share parts of it."""

    def __init__(self, source: YamlSource, *, file: str, folder: Path, path: Path | None = None) -> None:
        self.tree: object = source.tree
        self.folder = folder
        self.path = path
        self._file = file
        self._problems: list[tuple[SourceLocation, KeyPath, str]] = []
        self._warnings: list[str] = []
        self._keys = {path: SourceLocation(file, mark.line, mark.column) for path, mark in source.keys.items()}
        self._values = {path: SourceLocation(file, mark.line, mark.column) for path, mark in source.values.items()}
        for fault in source.faults:
            self._problems.append((SourceLocation(file, fault.mark.line, fault.mark.column), fault.path, fault.message))

    def get(self, *path: str | int) -> object:
        """Return the value at `path`, or None if nothing or null is there."""
        node = self.tree
        for segment in path:
            if isinstance(node, dict) and isinstance(segment, str):
                node = node.get(segment)
            elif isinstance(node, list) and isinstance(segment, int) and segment < len(node):
                node = node[segment]
            else:
                return BROKEN if node is BROKEN else None
        return node

    def put(self, path: KeyPath, value: object, *, place: SourceLocation) -> None:
        """Set a value, and create the lists and sections on the way to it.

        An index is at most the length of its list.
        """
        self._forget_places(path)
        self._keys[path] = self._values[path] = place
        for length in range(len(path)):
            self._keys.setdefault(path[:length], place)
            self._values.setdefault(path[:length], place)
        self.tree = _assign(self.tree, path, value)

    def drop(self, path: KeyPath) -> None:
        """Remove a key of a section, if it is there."""
        parent = self.get(*path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            self._forget_places(path)
            self.tree = _assign(self.tree, path[:-1], {key: value for key, value in parent.items() if key != path[-1]})

    def iterate_matches(self, *pattern: str) -> Iterator[KeyPath]:
        """Yield the paths that have a value and fit `pattern`, in which `*` is any key or index."""
        paths: list[KeyPath] = [()]
        for segment in pattern:
            paths = [below for path in paths for below in self.iterate_below(path) if segment in (_ANY, below[-1])]
        yield from paths

    def iterate_below(self, path: KeyPath) -> Iterator[KeyPath]:
        """Yield the paths of all values directly below `path` that are not null."""
        node = self.get(*path)
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        yield from ((*path, key) for key in keys if self.get(*path, key) is not None)

    def locate(self, path: KeyPath, *, key: bool = False) -> SourceLocation:
        """Return the place of the value (or the key) at `path`, or that of the nearest part above it that has one."""
        if key and path in self._keys:
            return self._keys[path]
        for length in range(len(path), -1, -1):
            if path[:length] in self._values:
                return self._values[path[:length]]
        return SourceLocation(self._file)

    def complain(self, path: KeyPath, message: str, *, key: bool = False) -> None:
        """Report a problem, unless the value at `path` is already marked as broken."""
        if self.get(*path) is not BROKEN:
            self._problems.append((self.locate(path, key=key), path, message))

    def complain_about(self, source: str, message: str) -> None:
        """Report a problem with a variable or a flag itself."""
        self._problems.append((SourceLocation(source), (), message))

    def warn(self, path: KeyPath, message: str) -> None:
        """Add a warning about the value at `path`."""
        self._warnings.append(str(self._build_problem(self.locate(path, key=True), path, message)))

    def list_warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)

    def raise_problems(self) -> None:
        """Raise ConfigError with all problems, the file's first and in its order. Return if there are none."""
        if not self._problems:
            return
        ordered = sorted(self._problems, key=lambda entry: (not entry[0].line, entry[0].line, entry[0].column))
        raise ConfigError(tuple(dict.fromkeys(self._build_problem(*entry) for entry in ordered)))

    def _build_problem(self, place: SourceLocation, path: KeyPath, message: str) -> Problem:
        """Build a Problem. A variable or flag names its own path already, so only a deeper path is added."""
        is_its_own = not place.line and self._values.get(path) == place
        return Problem(str(place), "" if is_its_own else format_path(path), message)

    def _forget_places(self, path: KeyPath) -> None:
        """Drop the places of the value at `path` and of all below it."""
        if path not in self._values:
            return
        for places in (self._keys, self._values):
            for known in [known for known in places if known[: len(path)] == path]:
                del places[known]


def _assign(node: object, path: KeyPath, value: object) -> object:
    """Return a copy of `node` with the value at `path`; lists and sections on the way are created."""
    if not path:
        return value
    segment, rest = path[0], path[1:]
    if isinstance(segment, int):
        items = list(node) if isinstance(node, list) else []
        items[segment : segment + 1] = [_assign(items[segment] if segment < len(items) else None, rest, value)]
        return items
    entries = dict(node) if isinstance(node, dict) else {}
    entries[segment] = _assign(entries.get(segment), rest, value)
    return entries
