"""A service of a test's making: it runs as soon as it is told to, and has the tools that the test gives it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from gateway.contracts.exchange import Exchange
from gateway.contracts.service import ServiceStatus
from gateway.contracts.storage.store import Json, ServiceState
from gateway.contracts.tools import Service, ToolCall, ToolResult, ToolSpec

from .doubles import spec


class Managed:
    """`contracts.ManagedService`. `did` is what it was told, in order; `gate` holds up the end of a `stop`."""

    def __init__(self, name: str, options: Mapping[str, object] | None = None) -> None:
        self.name = name
        self.options = dict(options or {})
        self.did: list[str] = []
        self.tools: dict[str, str] = {"look": "1" * 64}
        self.state: ServiceState = "stopped"
        self.error: str | None = None
        self.stderr: tuple[str, ...] = ()
        self.restarts = 0
        self.described: dict[str, str] = {}
        self.pins: Mapping[str, str] = {}
        self.changed: Callable[[], None] = lambda: None
        self.gate = asyncio.Event()
        self.gate.set()

    def becomes(self, state: ServiceState, *, error: str | None = None, **tools: str) -> None:
        """And says so."""
        self.state, self.error = state, error
        self.tools = dict(tools) or self.tools
        self.changed()

    def start(self) -> None:
        self.did.append("start")
        self.becomes("running")

    async def stop(self) -> None:
        await self.gate.wait()
        self.did.append("stop")
        self.becomes("stopped")

    async def close(self) -> None:
        await self.gate.wait()
        self.did.append("close")
        self.becomes("stopped")

    def get_condition(self) -> ServiceStatus:
        return ServiceStatus(
            state=self.state,
            since_s=100.0,
            transport="stdio",
            error=self.error,
            protocol="2026-07-28",
            restarts=self.restarts,
            stderr=self.stderr,
        )

    def list_definitions(self) -> Mapping[str, str]:
        return self.tools if self.state == "running" else {}

    def find_document(self, tool: str) -> Json | None:
        if tool not in self.list_definitions():
            return None
        described = self.described.get(tool, f"Does {tool}.")
        nothing: Json = dict.fromkeys(("title", "output_schema", "annotations"))
        return {"description": described, "parameters": {"type": "object"}, **nothing}

    def accept(self, pins: Mapping[str, str]) -> None:
        self.pins = dict(pins)

    def watch(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def get_service(self) -> Service:
        tools = {name: f"Does {name}." for name in self.list_definitions()}
        changed = frozenset(
            name for name, digest in self.list_definitions().items() if self.pins.get(name, digest) != digest
        )
        keywords = tuple(self.options.get("trigger_keywords", ()))  # type: ignore[call-overload]
        running = self.state == "running"
        return Service(self.name, str(self.options.get("description", self.name)), keywords, tools, running, changed)

    def find_spec(self, tool: str) -> ToolSpec | None:
        return spec(tool, untrusted=True) if tool in self.list_definitions() else None

    async def list_tools(self) -> Sequence[ToolSpec]:
        return [spec(tool) for tool in self.list_definitions()]

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange
        return ToolResult(f"{call.tool} done")


class ServiceFactory:
    """Builds them; `built` are all that there ever were."""

    def __init__(self) -> None:
        self.built: list[Managed] = []
        self.refuses: str | None = None

    def build(self, name: str, options: Mapping[str, object]) -> Managed:
        if self.refuses is not None:
            raise ValueError(self.refuses)
        self.built.append(Managed(name, options))
        return self.built[-1]

    def newest(self, name: str) -> Managed:
        return next(one for one in reversed(self.built) if one.name == name)
