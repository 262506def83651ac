"""The doubles for tests of tools: a tool of the test's making, and who asks for it."""

from collections.abc import Awaitable, Callable, Sequence

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, ToolSteering
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult, ToolSpec

Does = Callable[[ToolCall], Awaitable[ToolResult]]
Refuses = Callable[[ToolCall], str | None]
Doubts = Callable[[ToolCall], Awaitable[Verdict | None]]


async def _works(_call: ToolCall) -> ToolResult:
    return ToolResult("done")


def _never(_call: ToolCall) -> str | None:
    return None


def spec(name: str = "look", **facts: object) -> ToolSpec:
    given: dict[str, object] = {"name": name, "description": f"Does {name}.", "parameters": {"type": "object"}, **facts}
    return ToolSpec(**given)  # type: ignore[arg-type]


class Source:
    """A tool source that does what the test says, and notes what it was asked for."""

    def __init__(self, *specs: ToolSpec, does: Does = _works, refuses: Refuses = _never) -> None:
        self.specs = specs
        self.does = does
        self.refuses = refuses
        self.calls: list[ToolCall] = []
        self.closed = 0

    async def list_tools(self) -> Sequence[ToolSpec]:
        return self.specs

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del exchange
        return self.refuses(call)

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange
        self.calls.append(call)
        return await self.does(call)

    async def close(self) -> None:
        self.closed += 1


class ExaminingSource(Source):
    """A source whose engine doubts what the test says; it notes what it was shown."""

    def __init__(self, *specs: ToolSpec, doubts: Doubts, does: Does = _works, refuses: Refuses = _never) -> None:
        super().__init__(*specs, does=does, refuses=refuses)
        self.doubts = doubts
        self.examined: list[ToolCall] = []

    async def examine(self, call: ToolCall, exchange: Exchange) -> Verdict | None:
        del exchange
        self.examined.append(call)
        return await self.doubts(call)


def exchange(*only: str, tenant: str = "t", body: Json | None = None) -> Exchange:
    caller = Caller("c", tenant, frozenset(("context",)))
    return Exchange(
        id="run_1", body=body or {"messages": []}, caller=caller, chain="main", steering=ToolSteering(only_tools=only)
    )


def call(tool: str = "look", **arguments: object) -> ToolCall:
    return ToolCall(id="call_1", tool=tool, arguments=arguments)
