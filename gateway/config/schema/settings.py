"""The root of the configuration: gateway.yaml as one frozen model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.approvals import ApprovalsSettings, Risk
from gateway.config.schema.context import Chains, Context, Prompts, WorkflowsSettings
from gateway.config.schema.http import Admin, LimitsSettings, Passthrough, ReplicasSettings
from gateway.config.schema.keys import KeySettings, RuntimeKeys
from gateway.config.schema.mcp import Mcp
from gateway.config.schema.models import ModelAlias
from gateway.config.schema.section import Section
from gateway.config.schema.tools import ToolsSettings
from gateway.config.schema.upstreams import UpstreamSettings
from gateway.config.values.addresses import Address, BaseUrl, HostName, ListenAddress, Origin, StoreUrl
from gateway.config.values.scalars import FilePath, Flag, Label, build_count_type
from gateway.config.values.secret import Secret
from gateway.config.values.units import Duration, DurationOrZero
from gateway.features.tracing.section import TracingSettings
from gateway.features.usage.section import UsageSettings

DEFAULT_LISTEN = Address("127.0.0.1", 8080)
DEFAULT_STORE = Secret("sqlite:///./gateway.db")
#: A store that lasts as long as its process, for dry runs.
SCRATCH_STORE = "sqlite:///:memory:"


class MetricsSettings(Section):
    enabled: Flag = Field(default=True, description="Collect metrics, and serve `/metrics`.")
    public: Flag = Field(
        default=False,
        description="Serve `/metrics` to every client; false: with `keys`, only to the scopes `metrics` and `admin`.",
    )


class LoggingSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level to log.")
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="One JSON object per line, or text; auto: text on a terminal, else JSON."
    )
    access: Flag = Field(default=False, description="One line per request; bodies are never logged.")


class ConsoleSettings(Section):
    enabled: Flag = Field(default=True, description="Serve the console at `/console`.")
    url: BaseUrl | None = Field(
        default=None,
        description="URL of the gateway as people open it in a browser, for links to approvals; null: `public_url`.",
    )
    session: Duration = Field(default=43200.0, description="Time after which a person signs in anew.")


class Plugins(Section):
    folder: FilePath = Field(
        default=Path("plugins"),
        validate_default=True,
        description=(
            "Folder of your own plugins, with `stages/`, `tools/`, `assessors/` and `stores/` in it; a plugin is "
            "`NAME.py` or `NAME/__init__.py`."
        ),
    )


class Settings(Section):
    """gateway.yaml, complete: every key has its value."""

    listen: ListenAddress = Field(
        default=DEFAULT_LISTEN, description="Address to listen on; beyond loopback only with `keys`."
    )
    workers: Annotated[int, build_count_type(1, 256)] = Field(default=1, description="Worker processes.")
    admin: Admin = Field(default_factory=Admin, description="The address of the pages for operators.")
    replicas: ReplicasSettings = Field(
        default_factory=ReplicasSettings, description="The port for other gateways on the same store."
    )
    upstreams: tuple[UpstreamSettings, ...] = Field(
        default=(), description="Servers that requests go to, the first by default; empty: the built-in demo model."
    )
    models: Mapping[Label, ModelAlias] = Field(
        default={}, description="Names for models of upstreams, which the context lane tries in order."
    )
    passthrough: Passthrough = Field(
        default_factory=Passthrough, description="Requests that the gateway relays unchanged."
    )
    keys: tuple[KeySettings, ...] = Field(
        default=(),
        description="Keys of the clients; none, and no `runtime_keys`: any client on this machine may use the gateway.",
    )
    runtime_keys: RuntimeKeys = Field(default_factory=RuntimeKeys, description="Keys that are made at run time.")
    public_url: BaseUrl | None = Field(
        default=None, description="URL under which people reach the gateway; null: approvals are shown without a link."
    )
    console: ConsoleSettings = Field(default_factory=ConsoleSettings, description="The pages for people, in a browser.")
    allowed_hosts: tuple[HostName, ...] = Field(
        default=(),
        description="Further hosts that are the gateway's, besides localhost and `listen`: for our own routes, and "
        "without `keys` for all.",
    )
    cors: tuple[Origin, ...] = Field(
        default=(),
        description=(
            "Other sites whose pages may send requests and read the answers, such as `https://chat.example.com`."
        ),
    )
    limits: LimitsSettings = Field(default_factory=LimitsSettings, description="Limits for clients and for stopping.")
    context: Context = Field(default_factory=Context, description="Defaults of the context lane.")
    prompts: Prompts = Field(
        default={}, validate_default=True, description="Base prompts by id; `default` exists unless you replace it."
    )
    chains: Chains = Field(
        default={},
        validate_default=True,
        description="Stages of each chain, outermost first; `assistant` exists unless you replace it.",
    )
    tools: ToolsSettings = Field(
        default_factory=ToolsSettings,
        description="Tools that the model may call; a tool that is not named here is off.",
    )
    risk: Risk = Field(default_factory=Risk, description="Rules for the tool calls that run without an approval.")
    approvals: ApprovalsSettings = Field(
        default_factory=ApprovalsSettings, description="Approvals: how clients wait, how long, and where webhooks go."
    )
    mcp: Mcp = Field(default_factory=Mcp, description="Tools of MCP servers.")
    workflows: WorkflowsSettings = Field(default_factory=WorkflowsSettings, description="Workflows that users start.")
    plugins: Plugins = Field(default_factory=Plugins, description="Plugins of your own.")
    store: StoreUrl = Field(
        default=DEFAULT_STORE,
        description="Database for prompts, memories, hidden turns, runs and approvals.",
    )
    store_file: FilePath | None = Field(default=None, description="File that holds `store`.")
    store_wait: DurationOrZero = Field(
        default=300.0, description="Longest time that a start waits for the server of `store`, if that is away."
    )
    usage: UsageSettings = Field(default_factory=UsageSettings, description="Tokens and costs, by who used them.")
    metrics: MetricsSettings = Field(default_factory=MetricsSettings, description="Metrics.")
    logging: LoggingSettings = Field(default_factory=LoggingSettings, description="Logs.")
    tracing: TracingSettings = Field(
        default_factory=TracingSettings, description="Traces, for an OpenTelemetry collector."
    )

    @property
    def is_keyless(self) -> bool:
        """Return whether every client that reaches the gateway may do everything."""
        return not self.keys and not self.runtime_keys.enabled

    @property
    def console_url(self) -> str | None:
        """Return the URL of the console, without a slash at its end; None: nothing can link to it."""
        base = self.console.url or self.public_url
        return f"{base.rstrip('/')}/console" if self.console.enabled and base is not None else None
