"""The tools and the risk gate of one configuration, built from plugins."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gateway.config import Problem, Settings
from gateway.config.risk_name_check import describe_idle_rule, describe_missing_tool
from gateway.config.schema.tools import PluginTool, Tool
from gateway.contracts.plugin import Host, Plugin, PluginKind
from gateway.contracts.risk import RiskAssessor
from gateway.contracts.service import ManagedService
from gateway.contracts.tools import ToolSource
from gateway.plugins import list_built_in_plugins
from gateway.registry.loader import (
    PluginProblem,
    PluginSettings,
    build_found_plugin,
    build_plugin,
    find_plugin,
    parse_settings,
)
from gateway.tools.catalog import Catalog, CatalogError, ConfiguredSource, Origin, Services, load_catalog
from gateway.tools.extra_assessor import AddedAssessor
from gateway.tools.gate import Gate, Policy
from gateway.tools.results import READ_RESULT, ReadsOnly, Results

log = logging.getLogger("gateway")


async def load_tools(
    settings: Settings,
    host: Host,
    results: Results,
    problems: list[Problem],
    *,
    services: Services = tuple,
) -> Catalog:
    """Return the tools that can be built. Append other tools' errors and unknown names to `problems`.

    `services` are the MCP servers' services.
    """
    sources: dict[str, ConfiguredSource[ToolSource]] = {}
    wanted = settings.tools.all
    for name, tool in wanted.items():
        plugin, options = get_tool_plugin(name, tool)
        source = try_build_plugin(
            "tools", plugin, options, host, f"tools.{name}", problems, folder=settings.plugins.folder
        )
        if isinstance(source, ManagedService):  # nothing here would start it
            problems.append(Problem("configuration", f"tools.{name}", "this is a service: name it under 'mcp.servers'"))
        elif source is not None:
            origin: Origin = "built_in" if plugin in list_built_in_plugins("tools") else "plugin"
            sources[name] = ConfiguredSource(source, tool.requires_approval, tool.untrusted, origin)
    reading: dict[str, ConfiguredSource[ToolSource]] = {
        f"{READ_RESULT} (built in)": ConfiguredSource(results, origin="built_in")
    }
    try:
        if not sources:
            catalog = await load_catalog({}, further=services, beside=reading)
            _warn_of_idle(settings, ())
            return catalog
        catalog = await load_catalog(sources | reading, further=services)
        _warn_of_idle(settings, catalog.list_names())
        if len(sources) == len(wanted):  # the names of one that cannot be built are unknown
            problems += _iterate_nameless(settings, catalog.list_names())
        return catalog
    except CatalogError as error:
        problems.append(Problem("configuration", "", str(error)))
        for configured in sources.values():
            await configured.source.close()
        return Catalog(())


def get_tool_plugin(key: str, tool: Tool) -> tuple[str, PluginSettings]:
    """Return the plugin of a tool, and its settings."""
    return (tool.use or key, tool.with_) if isinstance(tool, PluginTool) else (key, tool)


@dataclass(frozen=True, slots=True)
class _ToolAssessor:
    """The assessor of a tool: its name, or itself; its settings; its place in the configuration."""

    assessor: str | Plugin[Any, RiskAssessor]
    options: Mapping[str, object]
    place: str

    def list_facts(self) -> tuple[str, Mapping[str, object]]:
        """Return what approvals are bound to.

        An assessor without a name is known by its module, whose name changes with the sources of an operator's plugin.
        """
        if isinstance(self.assessor, str):
            return self.assessor, self.options
        return f"{self.place} {getattr(self.assessor.build, '__module__', '')}", self.options


def build_gate(
    settings: Settings,
    host: Host,
    problems: list[Problem],
    *,
    at_hand: bool = False,
    names: Mapping[str, Sequence[str]] | None = None,
) -> Gate:
    """Build the gate. Append the errors of assessors that cannot be built to `problems`.

    `at_hand`: the tools exist, and examine the calls that the gate lets run. Then only enabled tools get assessors.
    The command assessor's list of known programs alone costs 60 ms of each start. `names`: the tools by their keys.
    """
    risk, folder = settings.risk, settings.plugins.folder
    declared = _find_assessors(settings, names or {}, problems, at_hand=at_hand)
    uses = declared | {
        tool: _ToolAssessor(use.use, use.with_, f"risk.assessors.{tool}") for tool, use in risk.assessors.items()
    }
    added = {tool: declared[tool] for tool, use in risk.assessors.items() if use.adds and tool in declared}
    problems += _iterate_orphan_additions(settings, declared)
    assessors: dict[str, RiskAssessor] = {READ_RESULT: ReadsOnly()}
    for tool, judged in uses.items():
        assessors[tool] = _build_assessor(judged, host, problems, folder=folder)
    for tool, judged in added.items():
        assessors[tool] = AddedAssessor(_build_assessor(judged, host, problems, folder=folder), assessors[tool])
    return Gate(
        Policy(trust_llm=risk.trust_llm, default=risk.default),
        assessors,
        rules=risk.rules,
        configured={
            tool: orjson.dumps(
                (*use.list_facts(), *(added[tool].list_facts() if tool in added else ())), option=orjson.OPT_SORT_KEYS
            ).decode()
            for tool, use in uses.items()
        },
    )


def _find_assessors(
    settings: Settings, names: Mapping[str, Sequence[str]], problems: list[Problem], *, at_hand: bool
) -> dict[str, _ToolAssessor]:
    """Return the assessors that the plugins of tools declare, by the names of the tools.

    Append what goes wrong in a plugin's own code to `problems`: without its settings an assessor may judge too freely.
    """
    found: dict[str, _ToolAssessor] = {}
    tools: dict[str, tuple[str, PluginSettings]] = {}
    if not at_hand:
        tools = {name: (name, {}) for name in list_built_in_plugins("tools")}
    tools |= {key: get_tool_plugin(key, tool) for key, tool in settings.tools.all.items()}
    for key, (name, options) in tools.items():
        try:
            plugin = find_plugin("tools", name, folder=settings.plugins.folder)
            config = parse_settings(plugin, name, options)
        except PluginProblem as problem:
            if key in names:  # the tool was built, and its file has changed since; else it is reported already
                problems.append(Problem("configuration", f"tools.{key}", problem.message))
            continue
        if plugin.assessor is None:
            continue
        try:
            if not isinstance(plugin.assessor, str | Plugin):
                raise TypeError("the assessor is neither a name nor a Plugin")
            chosen = {**plugin.assessor_options(config), **(plugin.examined_options(config) if at_hand else {})}
            orjson.dumps(chosen)  # approvals are bound to them
        except Exception as error:  # a plugin's code may raise anything
            text = f"the settings of its assessor cannot be read: {type(error).__name__}: {error}"
            problems.append(Problem("configuration", f"tools.{key}", text))
            continue
        if _has_profile(plugin.assessor, folder=settings.plugins.folder):
            chosen["profile"] = settings.risk.profile
        found |= dict.fromkeys(names.get(key, [name]), _ToolAssessor(plugin.assessor, chosen, f"tools.{key}"))
    return found


def _has_profile(assessor: str | Plugin[Any, Any], *, folder: Path) -> bool:
    """Return whether `risk.profile` is a setting of the assessor. One that is missing is reported where it is built."""
    with suppress(PluginProblem):
        plugin = find_plugin("assessors", assessor, folder=folder) if isinstance(assessor, str) else assessor
        return "profile" in getattr(plugin.config, "model_fields", ())
    return False


def _build_assessor(judged: _ToolAssessor, host: Host, problems: list[Problem], *, folder: Path) -> Any:
    """Build an assessor. If that fails, add to `problems` and return None."""
    if isinstance(judged.assessor, str):
        return try_build_plugin(
            "assessors", judged.assessor, judged.options, host, judged.place, problems, folder=folder
        )
    try:
        return build_found_plugin(judged.assessor, judged.place, judged.options, host)
    except PluginProblem as problem:
        problems.append(Problem("configuration", judged.place, f"its assessor cannot be built: {problem.message}"))
        return None


def _iterate_orphan_additions(settings: Settings, declared: Mapping[str, _ToolAssessor]) -> Iterator[Problem]:
    """Yield a problem for each assessor that adds to a built-in assessor which does not exist."""
    for tool, use in settings.risk.assessors.items():
        if use.adds and tool not in declared and tool not in list_built_in_plugins("tools"):
            known = ", ".join(dict.fromkeys([*list_built_in_plugins("tools"), *declared]))
            text = f"{tool!r} has no built-in assessor: leave `adds` out; those that have one are {known}"
            yield Problem("configuration", f"risk.assessors.{tool}.adds", text)


def _warn_of_idle(settings: Settings, names: Sequence[str]) -> None:
    """Log each rule that matches no enabled tool. `names` are the enabled tools."""
    for rule in settings.risk.rules:
        if (text := describe_idle_rule(rule, names, settings.mcp.servers)) is not None:
            log.warning("risk.rules.%s: %s", rule, text)


def _iterate_nameless(settings: Settings, names: Sequence[str]) -> Iterator[Problem]:
    """Yield problems for rules and assessors whose tool is none of `names`."""
    risk = settings.risk
    for path, problem in [
        *((f"risk.rules.{name}", describe_missing_tool("rules", name, names)) for name in risk.rules),
        *((f"risk.assessors.{name}", describe_missing_tool("assessors", name, names)) for name in risk.assessors),
    ]:
        if problem is not None:
            yield Problem("configuration", path, problem)


def try_build_plugin(
    kind: PluginKind,
    name: str,
    options: PluginSettings,
    host: Host,
    place: str,
    problems: list[Problem],
    *,
    folder: Path,
) -> Any:
    """Build the plugin for `place` in the configuration. If that fails, add to `problems` and return None.

    `folder` contains the operator's own plugins.
    """
    try:
        return build_plugin(kind, name, options, host, folder=folder)
    except PluginProblem as problem:
        # A built-in tool has no separate `use:` and `with:`.
        below = problem.path[1:] if isinstance(options, Tool) else problem.path
        path = ".".join([place, *map(str, below)])
        problems.append(Problem("configuration", path, problem.message))
        return None
