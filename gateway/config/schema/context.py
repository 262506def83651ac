"""The sections about the context lane: its defaults, prompts, chains and workflows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from gateway.config.schema.section import PluginUse, Section
from gateway.config.values.scalars import ExistingFile, FilePath, Name, Text
from gateway.config.values.units import Duration, DurationOrZero
from gateway.config.values.value import JsonObject


class StreamSettings(Section):
    keepalive: Duration = Field(default=10.0, description="Pause after which the gateway sends an empty chunk.")
    status_wait: DurationOrZero = Field(
        default=10.0,
        description="Longest wait of a stream's head for the upstream's status, so that an error keeps its own status.",
    )


class Context(Section):
    upstream: Name | None = Field(
        default=None, description="Upstream of the context lane; null: the one whose `models` match, else the first."
    )
    model: Text | None = Field(
        default=None, description="Model to use, or an alias of `models`; null: the one that the client names."
    )
    models: Literal["upstream", "merged"] = Field(
        default="upstream",
        description="Answer of `GET /context/v1/models`: `upstream`, the list of one upstream as it is; `merged`, the "
        "aliases of `models`, and of all upstreams the models whose requests go to them.",
    )
    prompt: Name = Field(default="default", description="Base prompt of a request that names none.")
    chain: Name = Field(default="assistant", description="Chain of a request that names none.")
    tasks: Literal["plain", "off"] = Field(
        default="plain",
        description="Requests for titles, tags and the like that chat programs make by themselves: `plain`, they go to "
        "the model alone, without any stage of a chain; `off`, they are not looked for.",
    )
    stream: StreamSettings = Field(default_factory=StreamSettings, description="Waits and keep-alives of streams.")


class Prompt(Section):
    text: Text | None = Field(default=None, description="The prompt itself.")
    file: ExistingFile | None = Field(default=None, description="File that holds the prompt, UTF-8.")


class StageUse(PluginUse):
    on_error: Literal["fail", "skip"] = Field(
        default="fail", description="If the stage fails: `fail` the request, or `skip` the stage."
    )


class WorkflowsSettings(Section):
    folder: FilePath = Field(default=Path("workflows"), validate_default=True, description="Folder of workflow files.")


DEFAULT_PROMPTS: JsonObject = {"default": {"text": "You are a helpful assistant."}}
# With what each stage would assume anyway, so that the documentation shows it.
DEFAULT_CHAINS: JsonObject = {
    "assistant": [
        {"use": "intent", "with": {"exclude_keywords": []}},
        {"use": "memory"},
        {
            "use": "prompt_enhancer",
            "with": {
                "tools": True,
                "mermaid": False,
                "custom_context": None,
                "cache_ttl": "5m",
                "cache_size": 1024,
                "max_tokens": 8000,
            },
        },
        {
            "use": "agent_loop",
            "with": {
                "max_tool_calls": 10,
                "timeout": "5m",
                "max_malformed": 3,
                "tool_format": "json",
                "result_role": "tool",
                "result_chars": 32768,
            },
        },
    ]
}


@dataclass(frozen=True, slots=True, eq=False)
class DefaultEntries:
    """The annotation of a mapping with default entries: they are there unless the file replaces them."""

    entries: JsonObject

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._add_default_entries, handler(source))

    def _add_default_entries(self, declared: object) -> object:
        return {**self.entries, **declared} if isinstance(declared, dict) else declared


Prompts = Annotated[Mapping[Name, Prompt], DefaultEntries(DEFAULT_PROMPTS)]
Chains = Annotated[Mapping[Name, tuple[StageUse, ...]], DefaultEntries(DEFAULT_CHAINS)]
