"""From `use:` and `with:` to a built plugin: the file's name is the plugin's; a dotted name is an installed module."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.draft import Draft
from gateway.config.explain import nearest
from gateway.config.problems import KeyPath, shown
from gateway.config.scalars import parse_name
from gateway.config.secret import Hidden
from gateway.config.section import strip
from gateway.config.tools import Tools
from gateway.contracts import Plugin

#: The package that holds our plugins: a very general name, so it stands in one place.
PACKAGE = "plugins"
Kind = Literal["stages", "tools", "assessors", "stores"]

# A list of more keys than this would bury the message.
_MOST_KEYS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class PluginProblem(Exception):  # noqa: N818  (a problem of the operator's file, collected with the others)
    """A plugin that is not there or cannot take its configuration; `path` is below its entry."""

    path: tuple[str | int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class _Use:
    """Where the configuration uses a plugin; `is_key`: by the name of an entry instead of a `use:`."""

    kind: Kind
    name: str
    entry: KeyPath
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class _Finding:
    """Something about a `with:` that its plugin does not take; `path` is within it."""

    path: KeyPath
    message: str
    is_key: bool = False


def find_plugin(kind: Kind, name: str) -> Plugin[Any, Any]:
    """The plugin. Raises PluginProblem."""
    module_name = name if "." in name else f"{PACKAGE}.{kind}.{name}"
    try:
        if importlib.util.find_spec(module_name) is None:
            raise ModuleNotFoundError(module_name)
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not module_name.startswith(error.name):
            raise PluginProblem(
                ("use",), f"plugin {name!r} needs the module {error.name!r}, which is missing"
            ) from None
        expected = f"an installed module {name!r}" if "." in name else f"{PACKAGE}/{kind}/{name}.py"
        hint = nearest(name, plugin_names(kind))
        raise PluginProblem(("use",), f"no plugin {name!r} of kind {kind!r}: expected {expected}{hint}") from None
    except Exception as error:  # whatever the code of a plugin does when it is imported
        raise PluginProblem(("use",), f"plugin {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    plugin = getattr(module, "PLUGIN", None)
    if not isinstance(plugin, Plugin):
        raise PluginProblem(("use",), f"{module_name} exports no PLUGIN = Plugin(Config, build)")
    return plugin


def plugin_names(kind: Kind) -> list[str]:
    """Those that stand beside each other in `plugins/KIND/`."""
    package = importlib.import_module(f"{PACKAGE}.{kind}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def build_plugin(kind: Kind, name: str, settings: Mapping[str, object], host: Any) -> Any:
    """The plugin, built for `host` (contracts.Host; None for a store, which needs none).

    Raises PluginProblem for a configuration that it does not take, first problem first.
    """
    plugin = find_plugin(kind, name)
    try:
        config = plugin.config.model_validate(dict(settings))
    except ValidationError as error:
        first = _problems(error, plugin.config, settings)[0]
        raise PluginProblem(("with", *first.path), f"plugin {name!r}: {first.message}") from None
    try:
        return plugin.build(config, host)
    except (ValueError, OSError) as error:
        raise PluginProblem(("with",), f"plugin {name!r}: {error}") from None


def check_plugins(draft: Draft) -> None:
    """Notes every plugin that is not there and every `with:` that its plugin does not take, each at its place."""
    for use in _uses(draft):
        try:
            plugin = find_plugin(use.kind, use.name)
        except PluginProblem as problem:
            path = use.entry if use.is_key else (*use.entry, "use")
            hidden = isinstance(use.name, Hidden)
            message = f"no such plugin of kind {use.kind!r}" if hidden else problem.message
            draft.complain(path, message, key=use.is_key)
            continue
        settings = draft.get(*use.entry, "with")
        if settings is None or isinstance(settings, Mapping):
            _check_settings(draft, (*use.entry, "with"), plugin, settings or {})


def _uses(draft: Draft) -> Iterator[_Use]:
    """Names that cannot be names are left out: that is said of them already."""
    for path in draft.matches("chains", "*", "*"):
        if _is_name(name := draft.get(*path, "use")):
            yield _Use("stages", name, path)
    for path in draft.matches("tools", "*"):
        if path[-1] in Tools.model_fields:
            continue
        name = draft.get(*path, "use")
        if _is_name(name):
            yield _Use("tools", name, path)
        elif name is None and _is_name(path[-1]):
            yield _Use("tools", path[-1], path, is_key=True)
    for path in draft.matches("risk", "assessors", "*"):
        if _is_name(name := draft.get(*path, "use")):
            yield _Use("assessors", name, path)


def _is_name(value: object) -> TypeGuard[str]:
    try:
        parse_name(value)
    except ValueError:
        return False
    return True


def _check_settings(draft: Draft, path: KeyPath, plugin: Plugin[Any, Any], settings: Mapping[str, object]) -> None:
    try:
        plugin.config.model_validate(dict(settings))
    except ValidationError as error:
        for problem in _problems(error, plugin.config, settings):
            draft.complain((*path, *problem.path), problem.message, key=problem.is_key)


def _problems(error: ValidationError, config: type[BaseModel], settings: Mapping[str, object]) -> list[_Finding]:
    """What pydantic found, in the words of a configuration file; never with a value, which could be a secret."""
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
    """`loc` as far as it is a path in the file: pydantic adds marks of its own, such as the member of a union."""
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
    """The keys of a pydantic model and their types; of anything else, none."""
    if not isinstance(section, type) or not issubclass(section, BaseModel):
        return {}
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}
