"""A service for configurations of tests: `use: context.listed`. It has the tools that its configuration names."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Host, Plugin
from gateway.contracts.tools import Service, ToolCall, ToolResult, ToolSpec

_SCHEMA = {"type": "object", "properties": {"what": {"type": "string", "minLength": 2}}, "required": ["what"]}


class Config(BaseModel):
    """What the service is, in the words of `tests/data/intent.jsonl`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="listed", description="Its name.")
    trigger_keywords: tuple[str, ...] = Field(default=(), description="Words that mean it.")
    tools: tuple[str, ...] = Field(default=(), description="The names of its tools.")
    status: str = Field(default="running", description="Its state.")


class Listed:
    """`contracts.ServiceSource`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._running = config.status == "running"

    def get_service(self) -> Service:
        tools = {tool: f"Does {tool}. It has more to say." for tool in self._config.tools}
        return Service(self._config.name, self._config.name, self._config.trigger_keywords, tools, self._running)

    def find_spec(self, tool: str) -> ToolSpec | None:
        return next((spec for spec in self._specs() if spec.name == tool), None) if self._running else None

    async def list_tools(self) -> Sequence[ToolSpec]:
        return self._specs()

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange
        return ToolResult(f"{call.tool} is done")

    async def close(self) -> None:
        """It holds nothing open."""

    def _specs(self) -> list[ToolSpec]:
        return [
            ToolSpec(name=tool, description=tool, parameters=_SCHEMA, untrusted=True) for tool in self._config.tools
        ]


def build(config: Config, host: Host) -> Listed:
    del host
    return Listed(config)


PLUGIN = Plugin(Config, build)
