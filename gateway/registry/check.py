"""The check of all plugins of a configuration: each is there, and accepts its `with:`. Problems have their places."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from pydantic import ValidationError

from gateway.config.document import Document
from gateway.config.path_exposure_check import check_reach, check_store
from gateway.config.problems import KeyPath, format_path
from gateway.config.reading.yaml_reader import BROKEN
from gateway.config.schema.settings import Plugins
from gateway.config.schema.tools import find_built_in_settings
from gateway.config.values.scalars import parse_name, parse_path
from gateway.config.values.secret import MaskedText, Secret
from gateway.contracts.plugin import Plugin, PluginKind, ToolFormat
from gateway.plugins import list_built_in_plugins
from gateway.registry.loader import (
    PluginProblem,
    describe_clash,
    find_plugin,
    get_built_in_file,
    get_reserved_names,
    is_built_in_copy,
    is_user_folder,
    list_setting_faults,
    parse_settings,
)
from gateway.registry.stores import resolve_store
from gateway.registry.user_plugins import get_plugin_file, list_plugin_names

#: What operators can have of their own.
OWN_KINDS: Final[tuple[PluginKind, ...]] = ("stages", "tools", "assessors", "stores")
FOLDER: Final = ("plugins", "folder")


@dataclass(frozen=True, slots=True)
class _Use:
    """One use of a plugin in the configuration; `is_key`: by the name of an entry instead of a `use:`."""

    kind: PluginKind
    name: str
    entry: KeyPath
    is_key: bool = False


def check_plugins(document: Document) -> None:
    """Report every missing plugin and every `with:` that its plugin does not accept, each at its place."""
    folder = _get_folder(document)
    clashing = set(_check_clashes(document, folder)) if folder is not None else set()
    store = _check_store(document, folder)
    for use in _list_uses(document):
        if (use.kind, use.name) in clashing:
            continue
        try:
            plugin = find_plugin(use.kind, use.name, folder=folder)
        except PluginProblem as problem:
            path = use.entry if use.is_key else (*use.entry, "use")
            hidden = isinstance(use.name, MaskedText)
            message = f"no such plugin of kind {use.kind!r}" if hidden else problem.message
            document.complain(path, message, key=use.is_key)
            continue
        if use.kind == "tools":
            _check_assessor(document, use, plugin, folder)
        settings, options = document.get(*use.entry, "with"), (*use.entry, "with")
        if use.is_key and find_built_in_settings(use.name) is not None:
            continue  # its settings are part of the section, and read with it
        if settings is None or isinstance(settings, Mapping):
            _check_settings(document, options, plugin, settings or {})
            if use.kind == "tools" and use.name not in list_built_in_plugins("tools"):
                check_reach(document, options, plugin, store=store)
    _check_chains(document, folder)


def _check_chains(document: Document, folder: Path | None) -> None:
    """Report a stage that offers other tools than a stage below it runs, and one that must be the last and is not."""
    for path in document.iterate_matches("chains", "*"):
        stages = document.get(*path)
        uses = [document.get(*path, i, "use") for i in range(len(stages))] if isinstance(stages, list) else []
        if BROKEN in uses:
            continue
        for index, use in enumerate(uses[:-1]):
            if _is_last_stage(use, folder):
                document.complain(
                    (*path, index, "use"), f"{use!r} must be the last stage of its chain: move it behind {uses[-1]!r}"
                )
        found = [_find_format(document, (*path, i), use, folder) for i, use in enumerate(uses)]
        for index, (is_loop, offered) in enumerate(found):
            if is_loop or offered is None:
                continue
            tools = (*path, index, "with", "tools")
            below = [(i, run) for i, (runs_tools, run) in enumerate(found) if runs_tools and i > index]
            if not below:
                document.complain(
                    tools, "offers tools and no agent_loop below runs them: add one, or write tools: false"
                )
            for loop, run in below:
                if run not in (None, offered):
                    document.complain(
                        (*path, loop, "with", "tool_format"),
                        f"the {uses[index]} above ({format_path(tools[:-2])}) tells the model to call tools in JSON: "
                        "write tools: false there, or tool_format: json here",
                    )


def _is_last_stage(use: object, folder: Path | None) -> bool:
    try:
        return _is_name(use) and find_plugin("stages", use, folder=folder).last
    except PluginProblem:  # which is reported already
        return False


def _find_format(
    document: Document, entry: KeyPath, use: object, folder: Path | None
) -> tuple[bool, ToolFormat | None]:
    """Return whether a stage runs tools, and the format in which it runs or offers them.

    Wrong stages and settings are reported already; here nothing is known of them.
    """
    settings = document.get(*entry, "with")
    try:
        if not _is_name(use) or not isinstance(settings, dict | None):
            return False, None
        plugin = find_plugin("stages", use, folder=folder)
    except PluginProblem:
        return False, None
    try:
        return plugin.runs_tools, plugin.tool_format(parse_settings(plugin, use, settings or {}))
    except PluginProblem:
        return plugin.runs_tools, None
    except Exception as error:  # a plugin's code may raise anything
        document.complain(entry, f"its plugin does not report its tool format: {type(error).__name__}: {error}")
        return plugin.runs_tools, None


def _check_assessor(document: Document, use: _Use, plugin: Plugin[Any, Any], folder: Path | None) -> None:
    """Report an assessor that a tool declares, and that is not there: its calls would not be judged."""
    if isinstance(plugin.assessor, str):
        try:
            find_plugin("assessors", plugin.assessor, folder=folder)
        except PluginProblem as problem:
            message = f"the plugin {use.name!r} declares the assessor {plugin.assessor!r}: {problem.message}"
            document.complain(use.entry, message, key=True)


def _check_store(document: Document, folder: Path | None) -> Path | None:
    """Report a store whose scheme is the name of no plugin. Return the file of one that does not come with us."""
    value = document.get("store")
    url = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(url, str) or "://" not in url:
        return None
    try:
        name, address = resolve_store(url, folder=document.folder, plugins=folder)
    except PluginProblem as problem:
        document.complain(("store",), problem.message)
        return None
    try:
        parse_settings(find_plugin("stores", name, folder=folder), name, {"url": address.url})
    except PluginProblem as problem:
        document.complain(("store",), problem.message)
        return None
    if name in list_built_in_plugins("stores") or address.file is None:
        return None
    check_store(document, address.file)
    return address.file


def _get_folder(document: Document) -> Path | None:
    """Return the configured folder of the operator's plugins; None: it is not a path, which is reported already."""
    value = document.get(*FOLDER)
    try:
        folder = parse_path(Plugins.model_fields["folder"].default if value is None else value, document.folder)
        if value is not None and not folder.is_dir():
            document.complain(FOLDER, f"no such folder: {str(folder)!r}: create it, or remove this key")
    except (ValueError, OSError):
        return None
    return folder


def _check_clashes(document: Document, folder: Path) -> Iterator[tuple[PluginKind, str]]:
    """Report and yield the names that the operator's plugins share with built-in ones, used or not: they conflict."""
    for kind in OWN_KINDS:
        for name in (
            sorted(set(list_plugin_names(folder, kind)) & get_reserved_names(kind)) if is_user_folder(folder) else ()
        ):
            if is_built_in_copy(kind, name, folder):
                continue
            document.complain(
                FOLDER, describe_clash(get_plugin_file(folder, kind, name), get_built_in_file(kind, name))
            )
            yield kind, name


def _list_uses(document: Document) -> Iterator[_Use]:
    """Yield the uses of plugins. Invalid names are left out: they are reported already."""
    for path in document.iterate_matches("chains", "*", "*"):
        if _is_name(name := document.get(*path, "use")):
            yield _Use("stages", name, path)
    for path in document.iterate_matches("tools", "*"):
        # A built-in tool has no `use`: one is reported with the section.
        name = document.get(*path, "use") if find_built_in_settings(path[-1]) is None else None
        if _is_name(name):
            yield _Use("tools", name, path)
        elif name is None and _is_name(path[-1]):
            yield _Use("tools", path[-1], path, is_key=True)
    for path in document.iterate_matches("risk", "assessors", "*"):
        if _is_name(name := document.get(*path, "use")):
            yield _Use("assessors", name, path)


def _is_name(value: object) -> TypeGuard[str]:
    """Return whether a value is a valid name of a plugin."""
    try:
        parse_name(value)
    except ValueError:
        return False
    return True


def _check_settings(
    document: Document, path: KeyPath, plugin: Plugin[Any, Any], settings: Mapping[str, object]
) -> None:
    """Report the settings that a plugin does not accept, each at its place."""
    try:
        plugin.config.model_validate(dict(settings))
    except ValidationError as error:
        for problem in list_setting_faults(error, plugin.config, settings):
            document.complain((*path, *problem.path), problem.message, key=problem.is_key)
