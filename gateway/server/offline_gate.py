"""Gate and tools of a configuration without a gateway that runs, for `gateway assess`."""

from collections.abc import Mapping, Sequence

from gateway.aio.clock import SystemClock
from gateway.config import ConfigError, Problem, Settings
from gateway.context.prompts import BasePrompts
from gateway.contracts.tools import ToolSource, ToolSpec
from gateway.plugins import list_built_in_plugins, load_built_in_plugin
from gateway.registry.loader import build_plugin
from gateway.registry.stores import build_scratch_store
from gateway.server.context_lane import PluginHost
from gateway.server.lanes.context_tools import build_gate, get_tool_plugin, try_build_plugin
from gateway.telemetry.counters import ContextCounters
from gateway.tools.catalog import ConfiguredSource
from gateway.tools.gate import Gate


async def build_offline_gate(settings: Settings) -> tuple[Gate, Mapping[str, ToolSpec]]:
    """Return the gate, and the definitions of all tools that it can know, with the operator's flags.

    These are the built-in tools, enabled or not, which need no network and no file; and the configured tools of other
    plugins, which are built for it. Raises ConfigError for a plugin that cannot be built.
    """
    clock, store, problems = SystemClock(), build_scratch_store(), list[Problem]()  # the store is never opened
    host = PluginHost(BasePrompts({}, store, clock=clock), store, ContextCounters(), clock)
    ours = {
        name: await _list_and_close(build_plugin("tools", name, load_built_in_plugin("tools", name).anywhere, host))
        for name in list_built_in_plugins("tools")
    }
    specs = {spec.name: spec for _, listed in ours.values() for spec in listed}
    names: dict[str, list[str]] = {}
    for key, tool in settings.tools.all.items():
        plugin, options = get_tool_plugin(key, tool)
        if plugin in ours:
            source, listed = ours[plugin]
        else:
            source = try_build_plugin(
                "tools", plugin, options, host, f"tools.{key}", problems, folder=settings.plugins.folder
            )
            if source is None:
                continue
            _, listed = await _list_and_close(source)
        names[key] = [spec.name for spec in listed]
        configured = ConfiguredSource(source, tool.requires_approval, tool.untrusted)
        specs |= {spec.name: configured.build_spec(spec) for spec in listed}
    gate = build_gate(settings, host, problems, names=names)
    if problems:
        raise ConfigError(tuple(problems))
    return gate, specs


def list_asking_services(settings: Settings) -> frozenset[str]:
    """Return the MCP servers whose every call needs an approval: their definitions come with the lines."""
    return frozenset(name for name, server in settings.mcp.servers.items() if server.requires_approval)


async def _list_and_close(source: ToolSource) -> tuple[ToolSource, Sequence[ToolSpec]]:
    """Return the source, closed, and its tools."""
    listed = await source.list_tools()
    await source.close()
    return source, listed
