"""Stages, tools and assessors that keep the rules: tests of the checks break one rule of each."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from gateway.contracts.exchange import Exchange, Handler, Reply
from gateway.contracts.plugin import Plugin
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult, ToolSpec


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def plugin_of(build: Callable[[], object]) -> Plugin[Any, Any]:
    return Plugin(Config, lambda config, host: build())


class PassOn:
    """A stage that does nothing."""

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        return await call_next(exchange)


class Words:
    """A tool that counts words."""

    parameters: ClassVar[Json] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }

    async def list_tools(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name="words", description="Counts words.", parameters=self.parameters)]

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        return None if call.arguments["text"] else "The text is empty."

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        if refusal := await self.refusal(call, exchange):
            return ToolResult(refusal, ok=False)
        return ToolResult(str(len(call.arguments["text"].split())))

    async def close(self) -> None:
        """Nothing is open."""


class Short:
    """An assessor that lets short texts run."""

    def assess(self, arguments: Json) -> Verdict:
        text = arguments.get("text")
        if arguments.keys() == {"text"} and isinstance(text, str) and len(text) < 5:
            return Verdict("auto", "whitelist", "short", "It is short.")
        return Verdict("confirm", "default", "long", "It is no short text.")
