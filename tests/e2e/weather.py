"""A service for configurations of tests: `use: context.weather`. It tells the weather, after its own fashion."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Host, Plugin
from gateway.contracts.tools import Service, ToolCall, ToolResult, ToolSpec

_CITY = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}, "required": ["city"]}
_SPECS = {
    "forecast": ToolSpec(
        name="forecast",
        description="Tells tomorrow's weather of a city. It is never wrong.",
        parameters=_CITY,
        idempotent=True,
        untrusted=True,
    ),
    "history": ToolSpec(name="history", description="Tells the weather of long ago.", parameters=_CITY, untrusted=True),
}


class Config(BaseModel):
    """The configuration of the service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="weather", description="Its name.")
    description: str = Field(default="", description="One sentence; its name where that is empty.")
    trigger_keywords: tuple[str, ...] = Field(default=(), description="Words that mean it.")
    running: bool = Field(default=True, description="Whether it runs.")


class Weather:
    """`contracts.ServiceSource`."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def get_service(self) -> Service:
        tools = {name: spec.description for name, spec in _SPECS.items()} if self._config.running else {}
        description = self._config.description or self._config.name
        return Service(
            self._config.name, description, self._config.trigger_keywords, tools, running=self._config.running
        )

    def find_spec(self, tool: str) -> ToolSpec | None:
        return _SPECS.get(tool) if self._config.running else None

    async def list_tools(self) -> Sequence[ToolSpec]:
        return list(_SPECS.values())

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange
        return ToolResult(f"{call.tool}: rain in {call.arguments['city']}")

    async def close(self) -> None:
        """It holds nothing open."""


def build(config: Config, host: Host) -> Weather:
    del host
    return Weather(config)


PLUGIN = Plugin(Config, build)
