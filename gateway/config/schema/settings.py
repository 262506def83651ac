"""The root of the configuration: gateway.yaml as one frozen model."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.approvals import Approvals, Risk
from gateway.config.schema.context import Chains, Context, Prompts, Workflows
from gateway.config.schema.http import Admin, Key, Limits, Passthrough, Upstream
from gateway.config.schema.mcp import Mcp
from gateway.config.schema.section import Section
from gateway.config.schema.tools import Tools
from gateway.config.values.addresses import Address, BaseUrl, DatabaseUrl, HostName, ListenAddress, Origin
from gateway.config.values.scalars import FilePath, Flag, counted
from gateway.config.values.secret import Secret

DEFAULT_LISTEN = Address("127.0.0.1", 8080)


class Metrics(Section):
    enabled: Flag = Field(default=True, description="Count and serve `/metrics`.")
    public: Flag = Field(
        default=False,
        description="Serve `/metrics` to everybody; false: where there are `keys`, to scope `metrics` or `admin`.",
    )


class Logging(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level to log.")
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="One JSON object per line, or text; auto: text on a terminal, else JSON."
    )
    access: Flag = Field(default=False, description="One line per request; bodies are never logged.")


class Plugins(Section):
    folder: FilePath = Field(
        default=Path("plugins"),
        validate_default=True,
        description="Folder of your own plugins: `stages/NAME.py`, `tools/NAME.py`, `assessors/NAME.py` beneath it.",
    )


class Settings(Section):
    """gateway.yaml, complete: every key has its value."""

    listen: ListenAddress = Field(
        default=DEFAULT_LISTEN, description="Address to listen on; beyond loopback only with `keys`."
    )
    workers: Annotated[int, counted(1, 256)] = Field(default=1, description="Worker processes.")
    admin: Admin = Field(default_factory=Admin, description="Where operators look.")
    upstreams: tuple[Upstream, ...] = Field(
        default=(), description="Where requests go, the first by default; empty: the built-in demo model."
    )
    passthrough: Passthrough = Field(default_factory=Passthrough, description="What is passed on unchanged.")
    keys: tuple[Key, ...] = Field(default=(), description="Who may come in; empty: everybody on this machine.")
    public_url: BaseUrl | None = Field(
        default=None, description="How people reach the gateway; null: approvals are shown without a link."
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        default=(),
        description="Further hosts that are the gateway's, besides localhost and `listen`: for our own routes, and "
        "without `keys` for all.",
    )
    cors: tuple[Origin, ...] = Field(
        default=(),
        description="Other sites whose pages may ask and read our answers, such as `https://chat.example.com`.",
    )
    limits: Limits = Field(default_factory=Limits, description="What one client can take.")
    context: Context = Field(default_factory=Context, description="Defaults of the context lane.")
    prompts: Prompts = Field(
        default={}, validate_default=True, description="Base prompts by id; `default` is there unless it is replaced."
    )
    chains: Chains = Field(
        default={},
        validate_default=True,
        description="Stages of a request by chain, outermost first; `assistant` is there unless it is replaced.",
    )
    tools: Tools = Field(default_factory=Tools, description="Tools of the model; none is on unless it is named here.")
    risk: Risk = Field(default_factory=Risk, description="Which tool calls run without asking.")
    approvals: Approvals = Field(default_factory=Approvals, description="How a person is asked.")
    mcp: Mcp = Field(default_factory=Mcp, description="Tools of MCP servers.")
    workflows: Workflows = Field(default_factory=Workflows, description="Workflows that users start.")
    plugins: Plugins = Field(default_factory=Plugins, description="Plugins of your own.")
    store: DatabaseUrl = Field(
        default=Secret("sqlite:///./gateway.db"), description="Where prompts, memories, hidden turns and runs are kept."
    )
    store_file: FilePath | None = Field(default=None, description="File that holds `store`.")
    metrics: Metrics = Field(default_factory=Metrics, description="What is counted.")
    logging: Logging = Field(default_factory=Logging, description="What is logged.")
