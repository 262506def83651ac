"""The tools of one MCP server, which `gateway.mcp` starts, restarts and calls.

1. Every tool of a server stays untrusted, and no hint of its definition lowers its risk.
2. The SDK is not needed before the first server starts.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock, Host, Plugin
from gateway.contracts.service import ServiceStatus
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import Service, ToolCall, ToolResult, ToolSpec
from gateway.mcp.definitions import (
    Definition,
    Definitions,
    build_client_fields,
    build_document,
    find_output_problem,
    hash_name,
)
from gateway.mcp.placement import ServerPlaces
from gateway.mcp.sdk_import import MISSING_SDK
from gateway.mcp.server_facts import Channel, Config, MakeChannel, ServerEndpoint
from gateway.mcp.server_supervisor import ServerSupervisor
from gateway.mcp.transport.process import Program


@runtime_checkable
class PlacingHost(Protocol):
    """A host whose servers may run once for all gateways."""

    @property
    def places(self) -> ServerPlaces | None: ...


class McpService:
    """The `contracts.ManagedService` of one MCP server."""

    def __init__(self, server: Config, make_channel: MakeChannel, host: Host) -> None:
        self._server = server
        self._places = host.places if isinstance(host, PlacingHost) and server.run == "one" else None
        placement = None if self._places is None else self._places.get_placement(server)
        self._lease = "" if placement is None else placement.name
        self._watchers: list[Callable[[], None]] = []
        self._pins: Mapping[str, str] = {}
        self._shown: tuple[tuple[object, ...], Service] | None = None
        self._specs: tuple[Definitions | None, dict[str, ToolSpec]] = None, {}
        self._session = ServerSupervisor(
            server,
            make_channel,
            changed=self._notify_watchers,
            counters=host.counters,
            clock=host.clock,
            placement=placement,
        )

    def __repr__(self) -> str:
        return f"<McpService {self._server.name!r}>"

    def get_service(self) -> Service:
        """Return the service as the catalog sees it: the same object until something changes."""
        running, definitions = self._session.is_running, self._session.definitions
        of = (running, definitions, self._pins)
        # Each change of any service makes another snapshot of all, and this is the same as long as these are.
        if self._shown is None or any(a is not b for a, b in zip(of, self._shown[0], strict=True)):
            tools = definitions.tools  # by whose names users know a service that does not run just now
            service = Service(
                self._server.name,
                self._server.description or self._server.name,
                self._server.trigger_keywords,
                {name: tool.line for name, tool in tools.items()},
                running=running,
                changed=frozenset(name for name, tool in tools.items() if self._is_changed(tool)),
                known=frozenset(self._pins),
            )
            self._shown = of, service
        return self._shown[1]

    def find_spec(self, tool: str) -> ToolSpec | None:
        found = self._session.definitions.tools.get(tool) if self._session.is_running else None
        return None if found is None else self._get_spec(found)

    async def list_tools(self) -> Sequence[ToolSpec]:
        tools = self._session.definitions.tools if self._session.is_running else {}
        return [self._get_spec(tool) for tool in tools.values()]

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        """Call the server's tool; output that does not match its schema is left out of the result."""
        told = None if exchange.job.watcher is None else exchange.job.watcher.report_progress
        name = call.tool.removeprefix(f"{self._server.name}.")
        tool = self._session.definitions.tools.get(name)
        trace = exchange.execution.tool_trace
        result = await self._session.call(name, call.arguments, told=told, trace=trace, stands=call.stands)
        if tool is None or not result.ok or (problem := find_output_problem(tool, result.structured)) is None:
            return result
        return replace(result, structured=None, unfit=problem)

    async def close(self) -> None:
        await self.stop()

    def start(self) -> None:
        if self._server.enabled:
            self._session.start()
            if self._places is not None:
                self._places.serve(self._lease, self._session)

    async def stop(self) -> None:
        if self._places is not None:
            self._places.withdraw(self._lease, self._session)
        await self._session.stop()

    def get_condition(self) -> ServiceStatus:
        return self._session.get_condition()

    def list_definitions(self) -> Mapping[str, str]:
        return {name: tool.sha256 for name, tool in self._session.definitions.tools.items()}

    def find_document(self, tool: str) -> Json | None:
        found = self._session.definitions.tools.get(tool)
        return None if found is None else build_document(found)

    def get_client_fields(self, tool: str) -> Json:
        found = self._session.definitions.tools.get(tool)
        return {} if found is None else build_client_fields(found)

    def offers(self, kind: str) -> bool:
        return self._session.offers(kind)

    async def ask(self, method: str, params: Json) -> Json:
        return await self._session.ask(method, params)

    def accept(self, pins: Mapping[str, str]) -> None:
        self._pins = dict(pins)

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    def _notify_watchers(self) -> None:
        for changed in self._watchers:
            changed()

    def _is_changed(self, tool: Definition) -> bool:
        """Return whether a tool differs from what was accepted, by the setting `pin`."""
        match self._server.pin:
            case "none":
                return False
            case "names":  # of a server that was never accepted, all are
                return bool(self._pins) and not self._pins.get(tool.name)
        return self._pins.get(tool.name, tool.sha256) != tool.sha256

    def _get_spec(self, tool: Definition) -> ToolSpec:
        """Return the tool as the gateway has it: the same object until the server is listed again."""
        definitions = self._session.definitions
        if self._specs[0] is not definitions:
            self._specs = definitions, {}
        specs = self._specs[1]
        if (spec := specs.get(tool.name)) is None:
            spec = specs[tool.name] = self._build_spec(tool)
        return spec

    def _get_pin(self, tool: Definition) -> str:
        """Return the hash that an approval of this tool is bound to: of its definition or its name."""
        return tool.sha256 if self._server.pin == "definitions" else hash_name(tool.name)

    def _build_spec(self, tool: Definition) -> ToolSpec:
        """Return the tool as the gateway's catalog has it, bound to server and pin."""
        return ToolSpec(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            category=self._server.name,
            untrusted=True,
            requires_approval=self._server.requires_approval,
            idempotent=tool.name in self._server.idempotent,
            server=f"{self._server.sha256} {self._get_pin(tool)}",
        )


def build(config: Config, host: Host) -> McpService:
    """Build the service. Raises ValueError where the SDK is not installed."""
    if importlib.util.find_spec("mcp") is None:
        raise ValueError(MISSING_SDK)
    return McpService(config, _choose_channel_factory(config, host.clock), host)


def _choose_channel_factory(config: Config, clock: Clock) -> MakeChannel:
    """Return the factory of connections for the configured transport: a program or HTTP."""
    endpoint = ServerEndpoint(
        url=config.url or "", headers=config.headers, private_networks=config.private_networks, oauth=config.oauth
    )
    program = Program(config.command or "", config.args, config.env, config.cwd)

    def build_http_channel(lost: Callable[[str], None]) -> Channel:
        from gateway.mcp.transport.http import HttpTransport

        return HttpTransport(endpoint, lost=lost, clock=clock)

    def build_stdio_channel(lost: Callable[[str], None]) -> Channel:
        from gateway.mcp.transport.stdio import StdioTransport

        return StdioTransport(program, lost=lost)

    return build_stdio_channel if config.url is None else build_http_channel


PLUGIN = Plugin(Config, build)
