"""A service that cannot be built from its settings: it appears in the lists with its error, and never runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from gateway.contracts.exchange import Exchange
from gateway.contracts.service import ServiceStatus
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import Service, ToolCall, ToolResult, ToolSpec


class BrokenServer:
    """A `contracts.ManagedService` without tools, always in the state `error`."""

    def __init__(self, name: str, *, error: str, transport: Literal["stdio", "http"], since_s: float) -> None:
        self._service = Service(name, name, (), {}, running=False)
        self._condition = ServiceStatus(state="error", since_s=since_s, transport=transport, error=error)

    def start(self) -> None:
        """Do nothing: there is nothing to start."""

    async def stop(self) -> None:
        """Do nothing: there is nothing to stop."""

    def get_condition(self) -> ServiceStatus:
        return self._condition

    def list_definitions(self) -> Mapping[str, str]:
        return {}

    def find_document(self, tool: str) -> Json | None:
        del tool
        return None

    def accept(self, pins: Mapping[str, str]) -> None:
        """Do nothing: it has no tools."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Do nothing: it never changes."""

    def get_service(self) -> Service:
        return self._service

    def find_spec(self, tool: str) -> ToolSpec | None:
        del tool
        return None

    async def list_tools(self) -> Sequence[ToolSpec]:
        return ()

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange
        return ToolResult(f"the service {self._service.name!r} of the tool {call.tool!r} cannot run", ok=False)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
