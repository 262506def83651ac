"""Gate and tools of a configuration without a gateway that runs, for `gateway assess` and `gateway check-config`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gateway.assemble import NoRuns, PluginHost, SystemClock
from gateway.assemble_tools import ASSESSORS, gate_of, load_tools
from gateway.config import ConfigError, Loaded, Problem, Settings
from gateway.config.judged import no_such_tool
from gateway.contracts import ToolSource, ToolSpec
from gateway.counters import ContextCounters
from gateway.pipeline.prompts import BasePrompts
from gateway.registry import build_plugin
from gateway.store import Store
from gateway.tools.catalog import Catalog
from gateway.tools.gate import Gate
from gateway.tools.results import Results

#: A folder that is there on every machine: a tool is built for its definition only.
_SOME_FOLDER = str(Path(__file__).parent)
_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "file_operations": {"roots": [_SOME_FOLDER]},
    "execute_command": {"cwd": _SOME_FOLDER},
}


async def offline_gate(settings: Settings) -> tuple[Gate, Mapping[str, ToolSpec]]:
    """The gate, and the definitions of the built-in tools, enabled or not, with the operator's flags.

    Needs no network and no file. Raises ConfigError for assessors that cannot be built.
    """
    host = _host()
    problems: list[Problem] = []
    gate = gate_of(settings, host, problems)
    if problems:
        raise ConfigError(tuple(problems))
    specs: dict[str, ToolSpec] = {}
    used = settings.tools.by_plugin
    for name in ASSESSORS:
        source: ToolSource = build_plugin("tools", name, _OPTIONS.get(name, {}), host)
        asks = name in used and used[name].requires_approval
        specs |= {spec.name: replace(spec, requires_approval=asks) for spec in await source.list_tools()}
        await source.close()
    return gate, specs


async def check_judged(loaded: Loaded) -> None:
    """Raises ConfigError for rules and assessors of tools that do not exist, where only plugins know their tools.

    Plugins are built and asked for their tools if a name needs it; of built-in tools the file alone says enough.
    """
    settings = loaded.settings
    risk = settings.risk
    unknown = [name for name in risk.rules if no_such_tool("rules", name)]
    unknown += [name for name in risk.assessors if no_such_tool("assessors", name)]
    if not settings.tools.plugins or not unknown:
        return
    problems: list[Problem] = []
    catalog = await load_tools(settings, loaded.folder, _host(), Results(), problems)
    for source in catalog.sources:
        await source.close()
    if problems:
        raise ConfigError(tuple(problems))


def _host() -> PluginHost:
    """What plugins are built with; its store is never opened."""
    clock = SystemClock()
    store: Store = build_plugin("stores", "sqlite", {"url": "sqlite:///:memory:"}, None)
    return PluginHost(BasePrompts({}, store, clock=clock), store, ContextCounters(), clock, Catalog(()), NoRuns())
