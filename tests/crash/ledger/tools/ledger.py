"""The tool `ledger`: each call is a line in a file, so that everybody can count what really happened."""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Host, Plugin
from gateway.contracts.tools import ToolCall, ToolResult, ToolSource, ToolSpec


class Config(BaseModel):
    """The `with:` of `tools: {ledger: {with: ...}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path = Field(default=Path("ledger.jsonl"), description="Where the lines are.")
    before_s: float = Field(default=0.0, ge=0, description="How long a call takes until its effect.")
    after_s: float = Field(default=0.0, ge=0, description="How long it takes from its effect to its end.")


_SPEC = ToolSpec(
    name="ledger",
    description="Writes a line.",
    parameters={
        "type": "object",
        "properties": {"run": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["run", "n"],
        "additionalProperties": False,
    },
)


class Ledger:
    """The source of this one tool, which nobody may call twice."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._closed = False

    async def list_tools(self) -> Sequence[ToolSpec]:
        return (_SPEC,)

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange
        await asyncio.sleep(self._config.before_s)  # a tool that takes its time is the case, here and below
        line = json.dumps({**call.arguments, "at_s": time.time(), "pid": os.getpid()}).encode() + b"\n"
        file = os.open(self._config.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)
        await asyncio.sleep(self._config.after_s)
        if self._closed:
            return ToolResult("closed while a call was under way", ok=False)
        return ToolResult(f"wrote {call.arguments['n']}")

    async def close(self) -> None:
        self._closed = True


def build(config: Config, host: Host) -> ToolSource:
    del host
    return Ledger(config)


PLUGIN = Plugin(Config, build)
