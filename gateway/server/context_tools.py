"""The tools and the risk gate of one configuration, built from plugins."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.config import Problem, Settings
from gateway.config.judged import idle_rule, no_such_tool
from gateway.contracts.managed import ManagedService
from gateway.contracts.plugin import Host
from gateway.contracts.risk import RiskAssessor
from gateway.contracts.tools import ToolSource
from gateway.http.hosts import allowed_host
from gateway.registry.find import Kind, PluginProblem, build_plugin
from gateway.tools.added_assessor import AddedAssessor
from gateway.tools.catalog import Catalog, CatalogError, Configured, Services, load_catalog
from gateway.tools.gate import Gate, Policy
from gateway.tools.results import READ_RESULT, ReadsOnly, Results

log = logging.getLogger("gateway")

SQLITE: Final = "sqlite:///"
POSTGRES: Final = ("postgresql://", "postgres://")
#: The assessors of the built-in tools.
ASSESSORS = {"execute_sql": "sql", "execute_command": "command", "file_operations": "file", "http_request": "http"}
#: Where the tools of ours stand in the configuration.
BUILT_IN = frozenset(f"tools.{name}" for name in ASSESSORS)


def database_url(url: str, folder: Path) -> str:
    """Return the database URL. A relative SQLite file is placed beneath `folder`."""
    file = url.removeprefix(SQLITE)
    if file == url or file == ":memory:" or Path(file).is_absolute():
        return url
    return SQLITE + str(folder / file)


async def load_tools(
    settings: Settings,
    folder: Path,
    host: Host,
    results: Results,
    problems: list[Problem],
    *,
    services: Services = tuple,
) -> Catalog:
    """Return the tools that can be built. Append other tools' errors and unknown names to `problems`.

    `services` are those of MCP servers.
    """
    sources: dict[str, Configured[ToolSource]] = {}
    wanted = _tools(settings, folder)
    for name, (plugin, options, requires_approval, untrusted) in wanted.items():
        source = built("tools", plugin, options, host, f"tools.{name}", problems, folder=settings.plugins.folder)
        if isinstance(source, ManagedService):  # nobody here would start it
            problems.append(Problem("configuration", f"tools.{name}", "this is a service: name it under 'mcp.servers'"))
        elif source is not None:
            sources[name] = Configured(source, requires_approval, untrusted)
    reading: dict[str, Configured[ToolSource]] = {f"{READ_RESULT} (built in)": Configured(results)}
    try:
        if not sources:
            catalog = await load_catalog({}, further=services, beside=reading)
            _warn_of_idle(settings, ())
            return catalog
        catalog = await load_catalog(sources | reading, further=services)
        _warn_of_idle(settings, catalog.names())
        if len(sources) == len(wanted):  # of one that cannot be built nobody knows the names
            problems += _nameless(settings, catalog.names())
        return catalog
    except CatalogError as error:
        problems.append(Problem("configuration", "", str(error)))
        for configured in sources.values():
            await configured.source.close()
        return Catalog(())


def _tools(settings: Settings, folder: Path) -> dict[str, tuple[str, Mapping[str, object], bool, bool]]:
    """Return for each tool name its plugin, the plugin's options, `requires_approval` and `untrusted`."""
    found: dict[str, tuple[str, Mapping[str, object], bool, bool]] = {}
    for name, tool in settings.tools.built_in.items():
        options = tool.options()
        if tool is settings.tools.execute_sql:
            options["url"] = database_url(str(options["url"]), folder)
        found[name] = name, options, tool.requires_approval, tool.untrusted
    for name, plugin in settings.tools.plugins.items():
        found[name] = plugin.use or name, plugin.with_, plugin.requires_approval, plugin.untrusted
    return found


def gate_of(settings: Settings, host: Host, problems: list[Problem], *, at_hand: bool = False) -> Gate:
    """Build the gate. Append the errors of assessors that cannot be built to `problems`.

    `at_hand`: the tools exist, and examine the calls that the gate lets run. Then only enabled tools get assessors.
    The command assessor's list of known programs alone costs 60 ms of each start.
    """
    risk, used = settings.risk, {name: tool.options() for name, tool in settings.tools.by_plugin.items()}
    uses: dict[str, tuple[str, dict[str, object]]] = {
        tool: (name, {"profile": risk.profile}) for tool, name in ASSESSORS.items() if not at_hand or tool in used
    }
    if (http := used.get("http_request")) is not None:
        uses["http_request"][1].update(private_networks=http.get("private_networks") is True, hosts=_hosts(http))
    if at_hand and (sql := used.get("execute_sql")) is not None:
        dialect = "postgresql" if str(sql.get("url")).startswith(POSTGRES) else "sqlite"
        uses["execute_sql"][1].update(dialect=dialect)
    added = {tool: uses[tool] for tool, use in risk.assessors.items() if use.adds and tool in uses}
    problems += _adding_to_none(settings)
    uses |= {tool: (use.use, dict(use.with_)) for tool, use in risk.assessors.items()}
    assessors: dict[str, RiskAssessor] = {READ_RESULT: ReadsOnly()}
    folder = settings.plugins.folder
    for tool, (name, options) in uses.items():
        place = f"risk.assessors.{tool}"
        assessors[tool] = built("assessors", name, options, host, place, problems, folder=folder)
    for tool, (name, options) in added.items():
        built_in = built("assessors", name, options, host, f"risk.assessors.{tool}", problems, folder=folder)
        assessors[tool] = AddedAssessor(built_in, assessors[tool])
    return Gate(
        Policy(trust_llm=risk.trust_llm, default=risk.default),
        assessors,
        rules=risk.rules,
        configured={
            tool: orjson.dumps((*use, *added.get(tool, ())), option=orjson.OPT_SORT_KEYS).decode()
            for tool, use in uses.items()
        },
    )


def _adding_to_none(settings: Settings) -> Iterator[Problem]:
    """Yield a problem for each assessor that adds to a built-in assessor which does not exist."""
    for tool, use in settings.risk.assessors.items():
        if use.adds and tool not in ASSESSORS:
            text = (
                f"{tool!r} has no built-in assessor: leave `adds` out; those that have one are {', '.join(ASSESSORS)}"
            )
            yield Problem("configuration", f"risk.assessors.{tool}.adds", text)


def _hosts(options: Mapping[str, object]) -> list[str]:
    """Return the hosts that the tool may request, without ports; [] if the option is no list or has a bad host."""
    hosts = options.get("hosts")
    with suppress(ValueError):
        return [allowed_host(str(host))[0] for host in hosts] if isinstance(hosts, list) else []
    return []


def _warn_of_idle(settings: Settings, names: Sequence[str]) -> None:
    """Log each rule that matches no enabled tool. `names` are the enabled tools."""
    for rule in settings.risk.rules:
        if (text := idle_rule(rule, names, settings.mcp.servers)) is not None:
            log.warning("risk.rules.%s: %s", rule, text)


def _nameless(settings: Settings, names: Sequence[str]) -> Iterator[Problem]:
    """Yield problems for rules and assessors whose tool is none of `names`."""
    risk = settings.risk
    for path, problem in [
        *((f"risk.rules.{name}", no_such_tool("rules", name, names)) for name in risk.rules),
        *((f"risk.assessors.{name}", no_such_tool("assessors", name, names)) for name in risk.assessors),
    ]:
        if problem is not None:
            yield Problem("configuration", path, problem)


def built(
    kind: Kind,
    name: str,
    options: Mapping[str, object],
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
        # A tool of ours has no `use:` and `with:` of its own.
        below = problem.path[1:] if place in BUILT_IN else problem.path
        path = ".".join([place, *map(str, below)])
        problems.append(Problem("configuration", path, problem.message))
        return None
