"""The lookup from `use:` and `with:` to a built plugin: a file's name is the plugin's; a dotted name is a module.

The module is an installed one. A file is one of the built-in plugins, or one of the operator's folder. From that
folder, only plugins that the configuration uses are imported.
"""

import importlib
import importlib.util
import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.messages import format_unknown_key, suggest_nearest
from gateway.config.problems import KeyPath
from gateway.config.schema.section import strip
from gateway.config.trusted_file import UnsafePluginError
from gateway.contracts.plugin import Plugin, PluginKind
from gateway.plugins import list_built_in_plugins
from gateway.registry.user_plugins import get_plugin_file, list_plugin_names, load

#: The package that holds our plugins.
PACKAGE: Final = "gateway.plugins"
#: The groups of entry points of installed plugins: `twolane.tools` and its like.
ENTRY_POINTS: Final = "twolane"

#: Built-in plugins that are a part of the gateway: the service of an MCP server.
_ELSEWHERE: dict[tuple[str, str], str] = {("tools", "mcp"): "gateway.mcp.service"}

#: The settings of a plugin: its `with:`, or its own model where the configuration has read that.
PluginSettings: TypeAlias = Mapping[str, object] | BaseModel


@dataclass(frozen=True, slots=True)
class PluginProblem(Exception):  # noqa: N818  (a problem of the operator's file, collected with the others)
    """A plugin that is not there or cannot take its configuration; `path` is below its entry."""

    path: tuple[str | int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class SettingFault:
    """One fault of a `with:` that its plugin does not accept; `path` is within it."""

    path: KeyPath
    message: str
    is_key: bool = False


def find_plugin(kind: PluginKind, name: str, *, folder: Path | None = None) -> Plugin[Any, Any]:
    """Return a plugin: built-in, of the operator's `folder`, or an installed module. Raises PluginProblem."""
    own = _find_user_file(kind, name, folder)
    if own is not None and name in get_reserved_names(kind):
        raise PluginProblem(("use",), describe_clash(own, get_built_in_file(kind, name)))
    installed = None if own is not None or name in get_reserved_names(kind) else _find_installed(kind, name)
    where = str(own) if own is not None else installed or (name if "." in name else _get_built_in_module(kind, name))
    try:
        if own is not None and folder is not None:
            module = load(own, folder=folder, name=f"{PACKAGE}.{kind}.{name}")
        else:
            module = importlib.import_module(where)
    except UnsafePluginError as error:
        raise PluginProblem(("use",), f"plugin {name!r}: {error}") from None
    except ModuleNotFoundError as error:
        if own is not None or (error.name is not None and not where.startswith(error.name)):
            needs = f"needs the module {_format_module(error.name)!r}, which is missing"
            raise PluginProblem(("use",), f"plugin {_describe_plugin(name, own, error)} {needs}") from None
        raise PluginProblem(("use",), _describe_missing(kind, name, folder)) from None
    except (Exception, SystemExit) as error:  # a plugin's code may raise anything when it is imported
        text = f"plugin {_describe_plugin(name, own, error)} cannot be imported: {type(error).__name__}: {error}"
        raise PluginProblem(("use",), text) from error
    plugin = getattr(module, "PLUGIN", None)
    if not isinstance(plugin, Plugin):
        raise PluginProblem(("use",), f"{where} exports no PLUGIN = Plugin(Config, build)")
    return plugin


def _find_installed(kind: PluginKind, name: str) -> str | None:
    """Return the module that an installed distribution declares for this plugin (entry points); None: none does.

    Raises PluginProblem if several modules are declared: which of them judged a call would be chance.
    """
    modules = sorted({point.module for point in entry_points(group=f"{ENTRY_POINTS}.{kind}", name=name)})
    if len(modules) > 1:
        text = f"plugin {name!r} is declared by several installed modules ({', '.join(modules)}): uninstall all but one"
        raise PluginProblem(("use",), text)
    return modules[0] if modules else None


def get_reserved_names(kind: PluginKind) -> set[str]:
    """Return the names that no plugin of the operator's may have."""
    return {*list_built_in_plugins(kind), *(name for k, name in _ELSEWHERE if k == kind)}


def _get_built_in_module(kind: PluginKind, name: str) -> str:
    return _ELSEWHERE.get((kind, name), f"{PACKAGE}.{kind}.{name}")


def get_built_in_file(kind: PluginKind, name: str) -> Path:
    """Return the file of a built-in plugin."""
    spec = importlib.util.find_spec(_get_built_in_module(kind, name))
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def _get_plugins_folder() -> Path:
    """Return the folder of our plugins."""
    return Path(next(iter(importlib.import_module(PACKAGE).__path__)))


def is_user_folder(folder: Path) -> bool:
    """Return whether a folder holds plugins of the operator, not the gateway's own as in a checkout."""
    try:
        return not folder.samefile(_get_plugins_folder())
    except OSError:
        return False


def _find_user_file(kind: PluginKind, name: str, folder: Path | None) -> Path | None:
    """Return the operator's file of this name, of any file type; None: there is none."""
    if folder is None or "." in name or not is_user_folder(folder):
        return None
    file = get_plugin_file(folder, kind, name)
    return file if os.path.lexists(file) and not is_built_in_copy(kind, name, folder) else None


def is_built_in_copy(kind: PluginKind, name: str, folder: Path) -> bool:
    """Return whether a plugin of the folder has a built-in one's sources, as in the checkout of this installation."""
    if name not in get_reserved_names(kind):
        return False
    own = _read_sources(get_plugin_file(folder, kind, name))
    return own is not None and own == _read_sources(get_built_in_file(kind, name))


def _read_sources(file: Path) -> Mapping[str, bytes] | None:
    """Return the sources of a plugin by file name; None: a file cannot be read."""
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    try:
        return {str(one.relative_to(file.parent)): one.read_bytes() for one in files}
    except OSError:
        return None


def _describe_missing(kind: PluginKind, name: str, folder: Path | None) -> str:
    """Return the message about a missing plugin: where it was expected, and similar names."""
    expected, known = f"an installed module {name!r}", [*list_built_in_plugins(kind)]
    if "." not in name:
        expected = f"plugins/{kind}/{name}.py"
        if folder is not None and is_user_folder(folder):
            expected = str(get_plugin_file(folder, kind, name))
            known += list_plugin_names(folder, kind)
    hint = suggest_nearest(name, known) or ("" if "." in name else f"; there are {', '.join(sorted(known))}")
    return f"no plugin {name!r} of kind {kind!r}: expected {expected}{hint}"


def describe_clash(own: Path, ours: Path) -> str:
    """Return the message about an operator's plugin that has the name of a built-in one."""
    return f"{str(own)!r} has the name of the gateway's own {str(ours)!r}, and differs from it: rename yours"


def _format_module(name: str | None) -> str:
    """Return a module's name as the plugin writes it: `.client` for one in its own folder."""
    inside = (name or "").partition("@")[2].partition(".")[2]
    return f".{inside}" if inside else name or "?"


def _describe_plugin(name: str, own: Path | None, error: BaseException) -> str:
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
    kind: PluginKind, name: str, settings: PluginSettings, host: Any, *, folder: Path | None = None
) -> Any:
    """Return the plugin, built for `host` (contracts.Host; None for a store, which needs none).

    Raises PluginProblem with the first problem of a configuration that the plugin does not accept.
    """
    return build_found_plugin(find_plugin(kind, name, folder=folder), name, settings, host)


def build_found_plugin(plugin: Plugin[Any, Any], name: str, settings: PluginSettings, host: Any) -> Any:
    """Return the plugin, built. Raises PluginProblem as `build_plugin` does."""
    config = parse_settings(plugin, name, settings)
    try:
        return plugin.build(config, host)
    except (ValueError, OSError) as error:
        raise PluginProblem(("with",), f"plugin {name!r}: {error}") from None
    except Exception as error:  # a plugin's code may raise anything
        text = f"plugin {name!r} cannot be built: {type(error).__name__}: {error}"
        raise PluginProblem(("with",), text) from error


def parse_settings(plugin: Plugin[Any, Any], name: str, settings: PluginSettings) -> Any:
    """Return the settings of a plugin as its own model. Raises PluginProblem with the first problem."""
    if isinstance(settings, BaseModel):
        return settings
    try:
        return plugin.config.model_validate(dict(settings))
    except ValidationError as error:
        first = list_setting_faults(error, plugin.config, settings)[0]
        raise PluginProblem(("with", *first.path), f"plugin {name!r}: {first.message}") from None


def list_setting_faults(
    error: ValidationError, config: type[BaseModel], settings: Mapping[str, object]
) -> list[SettingFault]:
    """Return pydantic's findings, in the terms of a configuration file; never with a value, which could be a secret."""
    return [_build_fault(details, config, settings) for details in error.errors(include_url=False)]


def _build_fault(details: ErrorDetails, config: type[BaseModel], settings: Mapping[str, object]) -> SettingFault:
    """Return a fault of pydantic in the words of a configuration file."""
    path = _trim_path(settings, details["loc"])
    match details["type"]:
        case "extra_forbidden":
            return SettingFault(path, _describe_unknown_key(path, config), is_key=True)
        case "missing":
            return SettingFault((*path, *details["loc"][len(path) :][:1]), "this key is required")
        case "value_error":
            return SettingFault(path, str(details["ctx"]["error"]))
        case _:
            return SettingFault(path, details["msg"][:1].lower() + details["msg"][1:])


def _trim_path(node: object, loc: Sequence[str | int]) -> KeyPath:
    """Return `loc` as far as it is a path in the file: pydantic adds its own parts, such as the member of a union."""
    path: list[str | int] = []
    for part in loc:
        entries = dict(enumerate(node)) if isinstance(node, list | tuple) else node
        if not isinstance(entries, Mapping) or part not in entries:
            break
        node = entries[part]
        path.append(part)
    return tuple(path)


def _describe_unknown_key(path: KeyPath, config: type[BaseModel]) -> str:
    """Return the message about a key that the settings of a plugin do not have."""
    section: object = config
    for part in path[:-1]:
        fields = _get_fields(section)
        section = strip(fields[str(part)]) if part in fields else None
    return format_unknown_key(str(path[-1]), _get_fields(section))


def _get_fields(section: object) -> dict[str, object]:
    """Return the keys of a pydantic model and their types; of anything else, none."""
    if not isinstance(section, type) or not issubclass(section, BaseModel):
        return {}
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}
