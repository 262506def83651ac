"""The check of files and folders that tools are given: they exist, and give a model no way to the gateway.

A path that a model could change is refused. A path that it could only read is warned of (docs/threat-model.md).
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.document import Document
from gateway.config.problems import KeyPath, format_path
from gateway.config.reading.secret_files import list_companions
from gateway.config.schema.context import WorkflowsSettings
from gateway.config.schema.settings import DEFAULT_STORE, Plugins
from gateway.config.schema.tools import find_built_in_settings
from gateway.config.values.scalars import parse_path
from gateway.config.values.secret import Secret
from gateway.contracts.plugin import Plugin, Reach
from gateway.plugins import list_built_in_plugins, load_built_in_plugin

_STORE = "the store of the gateway"
#: What runs as it is written there: the sections that name a folder of it.
_CODE = {"plugins": Plugins, "workflows": WorkflowsSettings}


@dataclass(frozen=True, slots=True)
class _Own:
    """A file or folder of the gateway's. `secret`: reading it does harm already.

    `code`: writing beneath it does, too.
    """

    name: str
    place: Path
    secret: bool = True
    code: bool = False


def check_places(document: Document) -> None:
    """Report missing paths, and paths that give a model more than was intended, of tools that come with the gateway."""
    tools = list(_list_tools(document))
    own = (
        list(_list_gateway_files(document)) if tools else []
    )  # without tools the plugin of the store is not imported here
    for options, plugin, folder in tools:
        _check_tool_paths(document, options, plugin, own, folder=folder)


def check_store(document: Document, store: Path) -> None:
    """Report tools that come with the gateway and reach the file of a store that does not."""
    for options, plugin, folder in _list_tools(document):
        _check_tool_paths(document, options, plugin, [_Own(_STORE, store)], folder=folder)


def check_reach(document: Document, options: KeyPath, plugin: Plugin[Any, Any], *, store: Path | None) -> None:
    """Report the paths of another tool, with its settings at `options`, that give a model more than was intended.

    `store`: the file of a store that does not come with the gateway.
    """
    own = [*_list_gateway_files(document), *([_Own(_STORE, store)] if store is not None else [])]
    _check_tool_paths(document, options, plugin, own, folder=Path())


def _list_tools(document: Document) -> Iterator[tuple[KeyPath, Plugin[Any, Any], Path]]:
    """Yield the settings and the plugins of tools that come with the gateway, and where relative paths begin."""
    for path in document.iterate_matches("tools", "*"):
        use = document.get(*path, "use")
        if find_built_in_settings(path[-1]) is not None:
            yield path, load_built_in_plugin("tools", str(path[-1])), document.folder
        elif isinstance(use, str) and use in list_built_in_plugins("tools"):
            yield (*path, "with"), load_built_in_plugin("tools", use), Path()


def _check_tool_paths(
    document: Document, options: KeyPath, plugin: Plugin[Any, Any], own: Sequence[_Own], *, folder: Path
) -> None:
    """Report the paths of a tool that are missing, or reach a file of the gateway."""
    settings = document.get(*options)
    if settings is not None and not isinstance(settings, dict):
        return
    for path, reach in _list_reaches(document, options, plugin, settings or {}, folder=folder):
        # A plugin's own `with:` is its own business, as far as it is only missing.
        if options[-1] == "with" or _check_presence(document, path, reach):
            _check_gateway_files(document, path, reach, own)


def _list_reaches(
    document: Document, options: KeyPath, plugin: Plugin[Any, Any], settings: Mapping[str, object], *, folder: Path
) -> Iterator[tuple[KeyPath, Reach]]:
    """Yield what a tool is given. Wrong settings are reported elsewhere; here they count as if they were not set."""
    right = dict(settings)
    while True:
        try:
            config = plugin.config.model_validate(right, context={"folder": folder})
            break
        except ValidationError as error:
            wrong = right.keys() & {details["loc"][0] for details in error.errors() if details["loc"]}
            if not wrong:
                return
            right = {key: value for key, value in right.items() if key not in wrong}
    try:
        reaches = [_validate_reach(reach) for reach in plugin.reaches(config)]
    except Exception as error:  # a plugin's code may raise anything
        document.complain(options, f"its plugin does not report what it reaches: {type(error).__name__}: {error}")
        return
    for reach in reaches:
        if reach.key[0] in right or reach.key[0] not in settings:
            path = (*options, *reach.key)
            while len(path) > len(options) + 1 and document.get(*path) is None:
                path = path[:-1]  # a default: it stands nowhere
            yield path, reach


def _validate_reach(reach: Reach) -> Reach:
    """Return a path that a plugin reports, normalized. Raises ValueError or TypeError if invalid."""
    place, key = Path(reach.place), tuple(reach.key)
    if not key or not all(isinstance(part, str | int) for part in key):
        raise ValueError(f"{key!r} is no key of a setting")
    if "\0" in str(place):
        raise ValueError("a path with a NUL byte")
    return replace(reach, key=key, place=place)


def get_store_file(url: object, *, folder: Path) -> Path | None:
    """Return the file of a store's URL in the tree. None: it names no file, or no built-in store has such URLs."""
    text = url.reveal() if isinstance(url, Secret) else url
    scheme = text.partition(":")[0] if isinstance(text, str) else ""
    address = load_built_in_plugin("stores", scheme).address if scheme in list_built_in_plugins("stores") else None
    return None if address is None else address(str(text), folder).file


def _check_presence(document: Document, path: KeyPath, given: Reach) -> bool:
    """Return whether a given path exists and is of the right kind; report it if not."""
    place, quoted = str(given.place), shlex.quote(str(given.place))
    try:
        exists = given.place.exists()
        fits = given.kind == "either" or (given.place.is_dir() if given.kind == "folder" else given.place.is_file())
    except OSError as error:
        document.complain(path, f"cannot look at {place!r}: {error.strerror}")
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
    document.complain(path, message)
    return False


def _list_gateway_files(document: Document) -> Iterator[_Own]:
    """Yield the files and folders of the gateway: configuration, store, secrets and code."""
    if document.path is not None:
        yield _Own("the configuration", document.path)
    url = document.get("store")
    if (store := get_store_file(DEFAULT_STORE if url is None else url, folder=document.folder)) is not None:
        yield _Own(_STORE, store)
    for path in list_companions(document):
        for place in _list_path(document, path):
            yield _Own(f"the file of {format_path(path)}", place)
    for section, declared in _CODE.items():
        for place in _list_path(document, (section, "folder"), default=declared.model_fields["folder"].default):
            yield _Own(f"the {section}", place, secret=False, code=True)


def _list_path(document: Document, path: KeyPath, default: object = None) -> Iterator[Path]:
    """Yield the path at one key. An invalid one is reported elsewhere."""
    value = document.get(*path)
    try:
        yield parse_path(default if value is None else value, document.folder)
    except ValueError:
        return


def _check_gateway_files(document: Document, path: KeyPath, given: Reach, own: Sequence[_Own]) -> None:
    """Report a tool's path that reaches files of the gateway; only warn if it is read-only."""
    reached = [one for one in own if (given.writable or one.secret) and _reaches(given, one)]
    if not reached:
        return
    names = " and ".join(f"{one.name} ({str(one.place)!r})" for one in reached)
    verb, way_out = ("is", "another database") if given.kind == "database" else ("reaches", "a folder of its own")
    if given.writable:
        document.complain(path, f"{verb} {names}, which a model could then change: give the tool {way_out}")
    else:
        document.warn(path, f"{verb} {names}, which a model can then read: give the tool {way_out}")


def _reaches(given: Reach, own: _Own) -> bool:
    """Return whether a tool reaches a file of the gateway: one is the other, or contains it. Links are followed."""
    try:
        place, owned = given.place.resolve(), own.place.resolve()
    except (OSError, RuntimeError):  # a loop of links leads nowhere
        return False
    return owned.is_relative_to(place) or (own.code and given.writable and place.is_relative_to(owned))
