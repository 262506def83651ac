"""The check of files and folders that tools are given: they exist, and give a model no way to the gateway.

A path that a model could change is refused. A path that it could only read is warned of (docs/threat-model.md).
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.config.document import Document
from gateway.config.problems import KeyPath, format_path
from gateway.config.reading.secret_files import COMPANION_SUFFIX, SECRETS_WITH_FILES
from gateway.config.values.scalars import parse_flag, parse_path
from gateway.config.values.secret import Secret

_SQLITE = "sqlite:///"
_DEFAULTS = {"roots": "work", "cwd": "work", "url": f"{_SQLITE}./data.db"}
_DEFAULT_STORE = f"{_SQLITE}./gateway.db"
#: What runs as it is written there: the folder of each section, where none is named.
_CODE = {"plugins": "plugins", "workflows": "workflows"}
_BUILT_IN = frozenset({"file_operations", "execute_command", "execute_sql"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """A tool with files: the path of its options, and where relative paths in them begin."""

    plugin: str
    options: KeyPath
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """One file or folder that a tool is given, as the configuration names it."""

    path: KeyPath
    place: Path
    kind: Literal["folder", "database", "either"]
    writable: bool


@dataclass(frozen=True, slots=True)
class _Own:
    """A file or folder of the gateway's. `secret`: reading it does harm already.

    `code`: writing beneath it does, too.
    """

    name: str
    place: Path
    secret: bool = True
    code: bool = False


def check_places(document: Document, *, file: Path | None) -> None:
    """Report missing paths, and paths that give a model more than was intended. `file`: the configuration."""
    own = list(_own(document, file))
    for tool in _tools(document):
        for given in _given(document, tool):
            # A plugin's own `with:` is its own business, as far as it is only missing.
            if tool.options[-1] == "with" or _is_there(document, given):
                _check_own(document, given, own)


def _tools(document: Document) -> Iterator[_Tool]:
    for path in document.matches("tools", "*"):
        if not isinstance(document.get(*path), dict):
            continue
        if path[-1] in _BUILT_IN:
            yield _Tool(plugin=str(path[-1]), options=path, folder=document.folder)
        elif str(use := document.get(*path, "use")) in _BUILT_IN:
            yield _Tool(plugin=str(use), options=(*path, "with"), folder=Path())


def _given(document: Document, tool: _Tool) -> Iterator[_Given]:
    match tool.plugin:
        case "file_operations":
            roots = (*tool.options, "roots")
            if document.get(*roots) == []:
                document.complain(roots, "expected at least one folder")
            for path, place in _paths(document, roots, tool.folder):
                yield _Given(path=path, place=place, kind="folder", writable=_flag(document, (*tool.options, "write")))
        case "execute_command":
            for path, place in _paths(document, (*tool.options, "cwd"), tool.folder):
                yield _Given(path=path, place=place, kind="folder", writable=True)
            for path, place in _paths(document, (*tool.options, "readable"), tool.folder):
                yield _Given(path=path, place=place, kind="either", writable=False)
        case "execute_sql":
            url = (*tool.options, "url")
            database = sqlite_file(document.get(*url), folder=tool.folder, default=_DEFAULTS["url"])
            if database is not None:
                read_only = _flag(document, (*tool.options, "read_only"), default=True)
                yield _Given(path=url, place=database, kind="database", writable=not read_only)
            elif _text(document.get(*url)).startswith(_SQLITE):
                document.complain(url, "expected sqlite:///FILE: a database of a file")


def sqlite_file(url: object, *, folder: Path, default: str) -> Path | None:
    """Return the file of an SQLite URL in the tree. None: it names no file, or is no SQLite URL."""
    text = default if url is None else _text(url)
    if not text.startswith(_SQLITE):
        return None
    name = text.removeprefix(_SQLITE)
    return None if name in ("", ":memory:") or "\0" in name else folder / name


def _text(value: object) -> str:
    """Return a text of the tree, secret or not, or "" for anything else."""
    return value.reveal() if isinstance(value, Secret) else value if isinstance(value, str) else ""


def _paths(document: Document, path: KeyPath, folder: Path) -> Iterator[tuple[KeyPath, Path]]:
    """Yield the paths at one key, each with its key path. Invalid paths are reported elsewhere and skipped."""
    value = document.get(*path)
    value = _DEFAULTS.get(str(path[-1]), []) if value is None else value
    entries = [((*path, i), entry) for i, entry in enumerate(value)] if isinstance(value, list) else [(path, value)]
    for where, entry in entries:
        try:
            yield where, parse_path(entry, folder)
        except ValueError:
            continue


def _flag(document: Document, path: KeyPath, *, default: bool = False) -> bool:
    """Return a flag. An invalid one is reported elsewhere. Until then the tool counts as one that may write."""
    value = document.get(*path)
    try:
        return default if value is None else parse_flag(value)
    except ValueError:
        return not default


def _is_there(document: Document, given: _Given) -> bool:
    place, quoted = str(given.place), shlex.quote(str(given.place))
    try:
        exists = given.place.exists()
        fits = given.kind == "either" or (given.place.is_dir() if given.kind == "folder" else given.place.is_file())
    except OSError as error:
        document.complain(given.path, f"cannot look at {place!r}: {error.strerror}")
        return False
    if exists and fits:
        return True
    match given.kind:
        case "folder" if exists:
            message = f"{place!r} is no folder: name one"
        case "folder":
            message = f"no such folder: {place!r}: create it (mkdir -p {quoted}), or name another"
        case "database" if exists:
            message = f"{place!r} is no file: name one"
        case "database":
            message = f"no such file: {place!r}: create it (an empty file will do: touch {quoted}), or name another"
        case _:
            message = f"no such file or folder: {place!r}: create it, or remove it here"
    document.complain(given.path, message)
    return False


def _own(document: Document, file: Path | None) -> Iterator[_Own]:
    if file is not None:
        yield _Own("the configuration", file)
    if (store := sqlite_file(document.get("store"), folder=document.folder, default=_DEFAULT_STORE)) is not None:
        yield _Own("the store of the gateway", store)
    for pattern in SECRETS_WITH_FILES:
        for path in document.matches(*pattern[:-1], f"{pattern[-1]}{COMPANION_SUFFIX}"):
            for where, place in _paths(document, path, document.folder):
                yield _Own(f"the file of {format_path(where)}", place)
    for section, default in _CODE.items():
        for _, place in _paths(document, (section, "folder"), document.folder):
            yield _Own(f"the {section}", place, secret=False, code=True)
        if document.get(section, "folder") is None:
            yield _Own(f"the {section}", document.folder / default, secret=False, code=True)


def _check_own(document: Document, given: _Given, own: list[_Own]) -> None:
    reached = [one for one in own if (given.writable or one.secret) and _reaches(given, one)]
    if not reached:
        return
    names = " and ".join(f"{one.name} ({str(one.place)!r})" for one in reached)
    verb, way_out = ("is", "another database") if given.kind == "database" else ("reaches", "a folder of its own")
    if given.writable:
        document.complain(given.path, f"{verb} {names}, which a model could then change: give the tool {way_out}")
    else:
        document.warn(given.path, f"{verb} {names}, which a model can then read: give the tool {way_out}")


def _reaches(given: _Given, own: _Own) -> bool:
    """Return whether a tool reaches a file of the gateway: one is the other, or contains it. Links are followed."""
    try:
        place, owned = given.place.resolve(), own.place.resolve()
    except (OSError, RuntimeError):  # a loop of links leads nowhere
        return False
    return owned.is_relative_to(place) or (own.code and given.writable and place.is_relative_to(owned))
