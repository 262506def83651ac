"""The agent loop: it lets the model call tools, over many rounds, within limits. The answer stays one clean stream.

Stages above it run once a request, stages below it once a model call. The loop itself is the gateway's (`host.runs`).
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gateway.plugin import Host, LoopLimits, Plugin, Stage, parse_positive_seconds


class Config(BaseModel):
    """Limits of one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_tool_calls: int = Field(default=10, ge=1, le=1000, description="Tool calls in one turn.")
    timeout: Annotated[float, BeforeValidator(parse_positive_seconds)] = Field(
        default=300.0, description="Longest run: model calls and tools, without waiting for people."
    )
    max_malformed: int = Field(default=3, ge=1, le=20, description="Unreadable calls in a row that end the run.")
    tool_format: Literal["json", "native"] = Field(
        default="json",
        description="How the model calls: JSON in its text, as the prompt explains, or the API's `tools`.",
    )
    result_role: Literal["tool", "user"] = Field(default="tool", description="Role of the messages that carry results.")
    result_chars: int = Field(default=32768, ge=256, description="Longest result that the model sees at once.")


def build(config: Config, host: Host) -> Stage:
    return host.runs.build_stage(
        LoopLimits(
            max_tool_calls=config.max_tool_calls,
            timeout_s=config.timeout,
            max_malformed=config.max_malformed,
            tool_format=config.tool_format,
            result_role=config.result_role,
            result_chars=config.result_chars,
        )
    )


PLUGIN = Plugin(Config, build, runs_tools=True, tool_format=lambda config: config.tool_format)
