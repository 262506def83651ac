"""The lookup from `use:` and `with:` to a built plugin: a file's name is the plugin's; a dotted name is a module.

The module is an installed one. A file is one of ours, or one of the operator's folder. Of the latter only those that
the configuration uses are imported.
"""

import importlib
import importlib.util
import os
import pkgutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.document import Document
from gateway.config.messages import nearest
from gateway.config.problems import KeyPath, shown
from gateway.config.schema.section import strip
from gateway.config.schema.settings import Plugins
from gateway.config.schema.tools import Tools
from gateway.config.trusted_file import UnsafePluginError
from gateway.config.values.scalars import parse_name, parse_path
from gateway.config.values.secret import Hidden
from gateway.contracts.plugin import Plugin
from gateway.registry import old_names
from gateway.registry.folder import file_of, load, names_in

#: The package that holds our plugins.
PACKAGE = "gateway.plugins"
Kind = Literal["stages", "tools", "assessors", "stores"]

#: What operators can have of their own.
OWN_KINDS: tuple[Kind, ...] = ("stages", "tools", "assessors")
#: Plugins of ours that stand in a room of the gateway: the service of an MCP server.
_ELSEWHERE: dict[tuple[str, str], str] = {("tools", "mcp"): "gateway.mcp.service"}
FOLDER = ("plugins", "folder")

old_names.install()

# A list of more keys than this would bury the message.
_MOST_KEYS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class PluginProblem(Exception):  # noqa: N818  (a problem of the operator's file, collected with the others)
    """A plugin that is not there or cannot take its configuration; `path` is below its entry."""

    path: tuple[str | int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class _Use:
    """One use of a plugin in the configuration; `is_key`: by the name of an entry instead of a `use:`."""

    kind: Kind
    name: str
    entry: KeyPath
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class _Finding:
    """One fault of a `with:` that its plugin does not accept; `path` is within it."""

    path: KeyPath
    message: str
    is_key: bool = False


def find_plugin(kind: Kind, name: str, *, folder: Path | None = None) -> Plugin[Any, Any]:
    """Return the plugin: one of ours, one of the operator's `folder`, or an installed module. Raises PluginProblem."""
    own = _own_file(kind, name, folder)
    if own is not None and name in _taken(kind):
        raise PluginProblem(("use",), _clash(own, _file_of_ours(kind, name)))
    where = str(own) if own is not None else name if "." in name else _module_of_ours(kind, name)
    try:
        module = _module(kind, name, own, folder) if own is not None else importlib.import_module(where)
    except UnsafePluginError as error:
        raise PluginProblem(("use",), f"plugin {name!r}: {error}") from None
    except ModuleNotFoundError as error:
        if own is not None or (error.name is not None and not where.startswith(error.name)):
            needs = f"needs the module {_shown_module(error.name)!r}, which is missing"
            raise PluginProblem(("use",), f"plugin {_named(name, own, error)} {needs}") from None
        raise PluginProblem(("use",), _missing(kind, name, folder)) from None
    except (Exception, SystemExit) as error:  # a plugin's code may raise anything when it is imported
        text = f"plugin {_named(name, own, error)} cannot be imported: {type(error).__name__}: {error}"
        raise PluginProblem(("use",), text) from error
    plugin = getattr(module, "PLUGIN", None)
    if not isinstance(plugin, Plugin):
        raise PluginProblem(("use",), f"{where} exports no PLUGIN = Plugin(Config, build)")
    return plugin


def plugin_names(kind: Kind) -> list[str]:
    """Return the names of our plugins in `plugins/KIND/`, sorted."""
    package = importlib.import_module(f"{PACKAGE}.{kind}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def _taken(kind: Kind) -> set[str]:
    """Return the names that no plugin of the operator's may have."""
    return {*plugin_names(kind), *(name for k, name in _ELSEWHERE if k == kind)}


def _module_of_ours(kind: Kind, name: str) -> str:
    return _ELSEWHERE.get((kind, name), f"{PACKAGE}.{kind}.{name}")


def _file_of_ours(kind: Kind, name: str) -> Path:
    spec = importlib.util.find_spec(_module_of_ours(kind, name))
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def _home() -> Path:
    """Return the folder of our plugins."""
    return Path(next(iter(importlib.import_module(PACKAGE).__path__)))


def _is_own(folder: Path) -> bool:
    """Return whether it is a folder of the operator's: in a checkout it may be ours."""
    try:
        return not folder.samefile(_home())
    except OSError:
        return False


def _own_file(kind: Kind, name: str, folder: Path | None) -> Path | None:
    """Return the operator's file of this name, of any file type; None: there is none."""
    if folder is None or "." in name or not _is_own(folder):
        return None
    file = file_of(folder, kind, name)
    return file if os.path.lexists(file) else None


def _module(kind: Kind, name: str, file: Path, folder: Path | None) -> ModuleType:
    """Return the module of the operator's plugin that begins with `file`. Raises every exception of its code."""
    assert folder is not None
    return load(file, folder=folder, name=f"{PACKAGE}.{kind}.{name}")


def _missing(kind: Kind, name: str, folder: Path | None) -> str:
    expected, known = f"an installed module {name!r}", plugin_names(kind)
    if "." not in name:
        expected = f"plugins/{kind}/{name}.py"
        if folder is not None and _is_own(folder):
            expected = str(file_of(folder, kind, name))
            known += names_in(folder, kind)
    return f"no plugin {name!r} of kind {kind!r}: expected {expected}{nearest(name, known)}"


def _clash(own: Path, ours: Path) -> str:
    return f"{str(own)!r} has the name of the gateway's own {str(ours)!r}: rename yours"


def _shown_module(name: str | None) -> str:
    """Return a module's name as the plugin writes it: `.client` for one of its own folder."""
    inside = (name or "").partition("@")[2].partition(".")[2]
    return f".{inside}" if inside else name or "?"


def _named(name: str, own: Path | None, error: BaseException) -> str:
    """Return a plugin's name; for the operator's, also the file and line that failed."""
    if own is None:
        return repr(name)
    frames = traceback.extract_tb(error.__traceback__)
    home = str(own.parent) + os.sep if own.name == "__init__.py" else str(own)
    places = [(frame.filename, frame.lineno) for frame in frames if frame.filename.startswith(home)]
    file, line = places[-1] if places else (str(own), None)
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno
    return f"{name!r} ({file}{f':{line}' if line else ''})"


def build_plugin(
    kind: Kind, name: str, settings: Mapping[str, object], host: Any, *, folder: Path | None = None
) -> Any:
    """Return the plugin, built for `host` (contracts.Host; None for a store, which needs none).

    Raises PluginProblem with the first problem of a configuration that the plugin does not accept.
    """
    plugin = find_plugin(kind, name, folder=folder)
    try:
        config = plugin.config.model_validate(dict(settings))
    except ValidationError as error:
        first = _problems(error, plugin.config, settings)[0]
        raise PluginProblem(("with", *first.path), f"plugin {name!r}: {first.message}") from None
    try:
        return plugin.build(config, host)
    except (ValueError, OSError) as error:
        raise PluginProblem(("with",), f"plugin {name!r}: {error}") from None


def check_plugins(document: Document) -> None:
    """Report every missing plugin and every `with:` that its plugin does not accept, each at its place."""
    folder = _folder(document)
    clashing = set(_check_clashes(document, folder)) if folder is not None else set()
    for use in _uses(document):
        if (use.kind, use.name) in clashing:
            continue
        try:
            plugin = find_plugin(use.kind, use.name, folder=folder)
        except PluginProblem as problem:
            path = use.entry if use.is_key else (*use.entry, "use")
            hidden = isinstance(use.name, Hidden)
            message = f"no such plugin of kind {use.kind!r}" if hidden else problem.message
            document.complain(path, message, key=use.is_key)
            continue
        settings = document.get(*use.entry, "with")
        if settings is None or isinstance(settings, Mapping):
            _check_settings(document, (*use.entry, "with"), plugin, settings or {})


def _folder(document: Document) -> Path | None:
    """Return the configured folder of the operator's plugins; None: it is no path, which is reported already."""
    value = document.get(*FOLDER)
    try:
        folder = parse_path(Plugins.model_fields["folder"].default if value is None else value, document.folder)
        if value is not None and not folder.is_dir():
            document.complain(FOLDER, f"no such folder: {str(folder)!r}: create it, or remove this key")
    except (ValueError, OSError):
        return None
    return folder


def _check_clashes(document: Document, folder: Path) -> Iterator[tuple[Kind, str]]:
    """Report and yield the names that the operator's plugins share with ours, used or not: they conflict."""
    for kind in OWN_KINDS:
        for name in sorted(set(names_in(folder, kind)) & _taken(kind)) if _is_own(folder) else ():
            document.complain(FOLDER, _clash(file_of(folder, kind, name), _file_of_ours(kind, name)))
            yield kind, name


def _uses(document: Document) -> Iterator[_Use]:
    """Yield the uses of plugins. Invalid names are left out: they are reported already."""
    for path in document.matches("chains", "*", "*"):
        if _is_name(name := document.get(*path, "use")):
            yield _Use("stages", name, path)
    for path in document.matches("tools", "*"):
        if path[-1] in Tools.model_fields:
            continue
        name = document.get(*path, "use")
        if _is_name(name):
            yield _Use("tools", name, path)
        elif name is None and _is_name(path[-1]):
            yield _Use("tools", path[-1], path, is_key=True)
    for path in document.matches("risk", "assessors", "*"):
        if _is_name(name := document.get(*path, "use")):
            yield _Use("assessors", name, path)


def _is_name(value: object) -> TypeGuard[str]:
    try:
        parse_name(value)
    except ValueError:
        return False
    return True


def _check_settings(
    document: Document, path: KeyPath, plugin: Plugin[Any, Any], settings: Mapping[str, object]
) -> None:
    try:
        plugin.config.model_validate(dict(settings))
    except ValidationError as error:
        for problem in _problems(error, plugin.config, settings):
            document.complain((*path, *problem.path), problem.message, key=problem.is_key)


def _problems(error: ValidationError, config: type[BaseModel], settings: Mapping[str, object]) -> list[_Finding]:
    """Return pydantic's findings, in the terms of a configuration file; never with a value, which could be a secret."""
    return [_finding(details, config, settings) for details in error.errors(include_url=False)]


def _finding(details: ErrorDetails, config: type[BaseModel], settings: Mapping[str, object]) -> _Finding:
    path = _path_within(settings, details["loc"])
    match details["type"]:
        case "extra_forbidden":
            return _Finding(path, _unknown_key(path, config), is_key=True)
        case "missing":
            return _Finding((*path, *details["loc"][len(path) :][:1]), "this key is required")
        case "value_error":
            return _Finding(path, str(details["ctx"]["error"]))
        case _:
            return _Finding(path, details["msg"][:1].lower() + details["msg"][1:])


def _path_within(node: object, loc: Sequence[str | int]) -> KeyPath:
    """Return `loc` as far as it is a path in the file: pydantic adds its own parts, such as the member of a union."""
    path: list[str | int] = []
    for part in loc:
        entries = dict(enumerate(node)) if isinstance(node, list | tuple) else node
        if not isinstance(entries, Mapping) or part not in entries:
            break
        node = entries[part]
        path.append(part)
    return tuple(path)


def _unknown_key(path: KeyPath, config: type[BaseModel]) -> str:
    section: object = config
    for part in path[:-1]:
        fields = _fields(section)
        section = strip(fields[str(part)]) if part in fields else None
    word, keys = str(path[-1]), sorted(_fields(section))
    hint = nearest(word, keys)
    if not hint and 0 < len(keys) <= _MOST_KEYS_SHOWN:
        hint = f"; known here: {', '.join(keys)}"
    return f"unknown key {shown(word)}{hint}"


def _fields(section: object) -> dict[str, object]:
    """Return the keys of a pydantic model and their types; of anything else, none."""
    if not isinstance(section, type) or not issubclass(section, BaseModel):
        return {}
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}
