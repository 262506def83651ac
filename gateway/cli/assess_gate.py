"""Gate and tools of a configuration without a gateway that runs, for `gateway assess`."""

from collections.abc import Mapping
from dataclasses import replace

from gateway.clock import SystemClock
from gateway.config import ConfigError, Problem, Settings
from gateway.config.schema.tools import PluginTool
from gateway.context.prompts import BasePrompts
from gateway.contracts.tools import ToolSource, ToolSpec
from gateway.plugins import plugin_names, plugin_of_ours
from gateway.registry.find import build_plugin
from gateway.registry.stores import scratch_store
from gateway.server.context_lane import NoRuns, PluginHost
from gateway.server.context_tools import gate_of
from gateway.telemetry.counters import ContextCounters
from gateway.tools.catalog import Catalog
from gateway.tools.gate import Gate


async def offline_gate(settings: Settings) -> tuple[Gate, Mapping[str, ToolSpec]]:
    """Return the gate, and the definitions of the built-in tools, enabled or not, with the operator's flags.

    Needs no network and no file. Raises ConfigError for assessors that cannot be built.
    """
    host = _host()
    problems: list[Problem] = []
    gate = gate_of(settings, host, problems)
    if problems:
        raise ConfigError(tuple(problems))
    specs: dict[str, ToolSpec] = {}
    asking = {
        tool.use or key if isinstance(tool, PluginTool) else key
        for key, tool in settings.tools.all.items()
        if tool.requires_approval
    }
    for name in plugin_names("tools"):
        source: ToolSource = build_plugin("tools", name, plugin_of_ours("tools", name).anywhere, host)
        specs |= {spec.name: replace(spec, requires_approval=name in asking) for spec in await source.list_tools()}
        await source.close()
    return gate, specs


def _host() -> PluginHost:
    """Return the host that plugins are built with; its store is never opened."""
    clock = SystemClock()
    store = scratch_store()
    return PluginHost(BasePrompts({}, store, clock=clock), store, ContextCounters(), clock, Catalog(()), NoRuns())
