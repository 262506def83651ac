"""The tool `demo_note`: it does nothing but return a text, after a person's approval. For a first look at approvals."""

from collections.abc import Sequence
from typing import Final

from gateway.plugin import Exchange, Host, Plugin, ToolCall, ToolResult, ToolSpec
from gateway.plugin.settings import ToolConfig

_TEXT_CHARS: Final = 2000


class Config(ToolConfig):
    """Writes a note that goes nowhere, to try approvals. Without `upstreams` and `tools` it is on by itself."""


class DemoNote:
    """The source of this tool. It has no effect and no memory: tenants share it."""

    def __init__(self, config: Config) -> None:
        self._spec = ToolSpec(
            name="demo_note",
            description="Writes a note. It is harmless, and a person approves each call.",
            parameters={
                "type": "object",
                "properties": {
                    "text": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": _TEXT_CHARS,
                        "description": "The text of the note.",
                    }
                },
                "required": ["text"],
                "additionalProperties": False,
            },
            category="demo",
            untrusted=config.untrusted,
            requires_approval=True,
            idempotent=True,
        )

    async def list_tools(self) -> Sequence[ToolSpec]:
        return (self._spec,)

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange  # what fits the schema can be written
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange
        return ToolResult(f"Noted: {call.arguments['text']}")

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def build(config: Config, host: Host) -> DemoNote:
    del host
    return DemoNote(config)


PLUGIN = Plugin(Config, build)
