"""Gate and tools of a configuration without a gateway that runs, for `gateway assess`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gateway.clock import SystemClock
from gateway.config import ConfigError, Problem, Settings
from gateway.context.prompts import BasePrompts
from gateway.contracts.store import Store
from gateway.contracts.tools import ToolSource, ToolSpec
from gateway.registry.find import build_plugin
from gateway.server.context_lane import NoRuns, PluginHost
from gateway.server.context_tools import ASSESSORS, gate_of
from gateway.telemetry.counters import ContextCounters
from gateway.tools.catalog import Catalog
from gateway.tools.gate import Gate

#: A folder that is there on every machine: a tool is built for its definition only.
_SOME_FOLDER = str(Path(__file__).parent.parent)
_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "file_operations": {"roots": [_SOME_FOLDER]},
    "execute_command": {"cwd": _SOME_FOLDER},
}


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
    used = settings.tools.by_plugin
    for name in ASSESSORS:
        source: ToolSource = build_plugin("tools", name, _OPTIONS.get(name, {}), host)
        asks = name in used and used[name].requires_approval
        specs |= {spec.name: replace(spec, requires_approval=asks) for spec in await source.list_tools()}
        await source.close()
    return gate, specs


def _host() -> PluginHost:
    """Return the host that plugins are built with; its store is never opened."""
    clock = SystemClock()
    store: Store = build_plugin("stores", "sqlite", {"url": "sqlite:///:memory:"}, None)
    return PluginHost(BasePrompts({}, store, clock=clock), store, ContextCounters(), clock, Catalog(()), NoRuns())
