"""The tool `NAME`: counts the words of a text."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Exchange, Host, Plugin, ToolCall, ToolResult, ToolSource, ToolSpec


class Config(BaseModel):
    """Hold the settings in `tools: {NAME: {with: ...}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(default=10_000, ge=1, description="Longest text that is counted.")


_SPEC = ToolSpec(
    name="NAME",
    description="Says how many words a text has.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The text."}},
        "required": ["text"],
        "additionalProperties": False,
    },
    category="text",
    idempotent=True,
)


class WordCount:
    """Offer this one tool. A failure is a result, too: the model reads it and goes on."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def list_tools(self) -> Sequence[ToolSpec]:
        return (_SPEC,)

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        """Return why the call makes no sense, so that no person is asked about it; None: the gate decides."""
        del exchange  # the answer is the same for every caller; the arguments fit the schema
        if len(call.arguments["text"]) > self._config.max_chars:
            return f"The text is longer than {self._config.max_chars} characters."
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        if refusal := await self.refusal(call, exchange):
            return ToolResult(refusal, ok=False)
        return ToolResult(str(len(call.arguments["text"].split())))

    async def close(self) -> None:
        """Do nothing: this tool has nothing open."""


def build(config: Config, host: Host) -> ToolSource:
    del host  # it has the store, counters and a clock for tools that need them
    return WordCount(config)


PLUGIN = Plugin(Config, build)
