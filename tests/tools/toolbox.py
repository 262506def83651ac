"""A tool plugin for configurations of tests: `use: tools.toolbox`, with the names of its tools."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Host, Plugin
from gateway.contracts.tools import ToolCall, ToolResult, ToolSpec


class Config(BaseModel):
    """What the source offers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: tuple[str, ...] = Field(default=("look",), description="Names of its tools.")


class Toolbox:
    """Counts how often it is closed."""

    built: ClassVar[list["Toolbox"]] = []

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.closed = 0
        self.built.append(self)

    async def list_tools(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name=name, description="", parameters={"type": "object"}) for name in self.names]

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        raise AssertionError(f"nothing is asked here: {call}, {exchange}")

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        raise AssertionError(f"nothing is called here: {call}, {exchange}")

    async def close(self) -> None:
        self.closed += 1


def build(config: Config, host: Host) -> Toolbox:
    del host
    return Toolbox(config.tools)


PLUGIN = Plugin(Config, build)
