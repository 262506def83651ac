"""The sections about tools and who decides on them: tools, risk, approvals, MCP servers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from gateway.config.addresses import (
    DatabaseUrl,
    HeaderName,
    HeaderValue,
    HostName,
    SecretText,
    SecretUrl,
    VariableValue,
)
from gateway.config.scalars import FilePath, Flag, Label, Name, Text, VariableName
from gateway.config.secret import Secret
from gateway.config.section import PluginSettings, PluginUse, Section
from gateway.config.units import Duration

# Keys of other programs' `mcpServers` blocks that mean nothing here.
FOREIGN_MCP_KEYS = frozenset(
    {
        "alwaysAllow",
        "autoApprove",
        "autoStart",
        "disabled",
        "disabledTools",
        "enabled",
        "enabledTools",
        "excludeTools",
        "gallery",
        "icon",
        "includeTools",
        "isActive",
        "oauth",
        "tags",
        "transport",
        "transportType",
        "trust",
        "type",
        "version",
    }
)


class Tool(Section):
    requires_approval: Flag = Field(default=False, description="Ask a person before every call, whatever its risk.")
    untrusted: Flag = Field(default=False, description="Its results come from strangers and taint the run.")


class FileOperations(Tool):
    roots: tuple[FilePath, ...] = Field(
        default=(Path("work"),), validate_default=True, description="Folders that the tool may see."
    )
    write: Flag = Field(default=False, description="Allow writing at all.")


class HttpRequest(Tool):
    untrusted: Flag = Field(default=True, description="Its results come from strangers and taint the run.")
    private_networks: Flag = Field(default=False, description="Allow loopback, private and link-local addresses.")
    hosts: tuple[HostName, ...] = Field(default=(), description="Hosts to ask; empty: all.")


class ExecuteSql(Tool):
    url: DatabaseUrl = Field(
        default=Secret("sqlite:///./data.db"), description="The database: `sqlite:///FILE` or `postgresql://...`."
    )
    url_file: FilePath | None = Field(default=None, description="File that holds `url`.")
    read_only: Flag = Field(default=True, description="Open the database for reading only.")


class ExecuteCommand(Tool):
    cwd: FilePath = Field(default=Path("work"), validate_default=True, description="Folder in which commands run.")
    timeout: Duration = Field(default=30.0, description="Longest run of a command.")
    sandbox: Literal["auto", "bubblewrap", "landlock", "none"] = Field(
        default="auto", description="What confines a command; auto: the strongest that this machine has."
    )


class PluginTool(Tool):
    use: Name | None = Field(default=None, description="Name of the plugin; null: the name of the tool.")
    with_: PluginSettings = Field(
        default_factory=dict, alias="with", description="The configuration of the plugin itself."
    )


class Tools(Section):
    """Built-in tools by their own keys; every other key is a plugin's tool."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, PluginTool]

    file_operations: FileOperations | None = Field(default=None, description="Reads, lists and writes files.")
    http_request: HttpRequest | None = Field(default=None, description="Asks web servers.")
    execute_sql: ExecuteSql | None = Field(default=None, description="Asks a database.")
    execute_command: ExecuteCommand | None = Field(default=None, description="Runs commands in a sandbox.")

    @property
    def plugins(self) -> Mapping[str, PluginTool]:
        return self.__pydantic_extra__ or {}


class Risk(Section):
    trust_llm: Literal["always", "until_tainted", "never"] = Field(
        default="always", description="When a model's own `risk_level: low` lets a call run."
    )
    profile: Literal["literal", "standard", "hardened"] = Field(
        default="standard", description="Which calls are known to be harmless."
    )
    default: Literal["confirm", "deny"] = Field(
        default="confirm", description="Verdict on a call that no rule knows: ask a person, or refuse."
    )
    assessors: Mapping[str, PluginUse] = Field(
        default_factory=dict, description="Assessors of your own, by the name of the tool they judge."
    )


class Notify(Section):
    webhook: SecretUrl | None = Field(default=None, description="URL that is told of each new approval.")
    webhook_file: FilePath | None = Field(default=None, description="File that holds `webhook`.")
    secret: SecretText | None = Field(default=None, description="Signs what is sent (HMAC-SHA256).")
    secret_file: FilePath | None = Field(default=None, description="File that holds `secret`.")


class Approvals(Section):
    mode: Literal["auto", "hold", "turn", "reject"] = Field(
        default="auto",
        description="How a client waits: hold the stream, end the turn, or not at all; auto: hold streams, else turn.",
    )
    inline_wait: Duration = Field(default=120.0, description="How long a stream is held before it becomes a turn.")
    expires: Duration = Field(default=24 * 3600.0, description="How long an approval can be decided.")
    on_reject: Literal["abort", "continue"] = Field(
        default="abort", description="After a rejection: end the run, or tell the model and go on."
    )
    notify: tuple[Notify, ...] = Field(default=(), description="Whom to tell of new approvals.")


class McpServer(Section):
    command: Text | None = Field(default=None, description="Program of a stdio server.")
    args: tuple[Text, ...] = Field(default=(), description="Arguments of `command`.")
    env: Mapping[VariableName, VariableValue] = Field(default_factory=dict, description="Environment of `command`.")
    cwd: FilePath | None = Field(default=None, description="Folder in which `command` runs.")
    url: SecretUrl | None = Field(default=None, description="Address of a streamable HTTP server.")
    url_file: FilePath | None = Field(default=None, description="File that holds `url`.")
    headers: Mapping[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="Headers for `url`; `NAME_file` reads the value from a file."
    )
    description: Text | None = Field(
        default=None, description="One sentence for the prompt; null: the name of the server."
    )
    trigger_keywords: tuple[Text, ...] = Field(default=(), description="Words of a user that mean this server.")
    timeout: Duration = Field(default=30.0, description="Longest run of one of its tools.")


class Mcp(Section):
    servers: Mapping[Label, McpServer] = Field(
        default_factory=dict, description="Servers by name; the inside of an `mcpServers` block can be pasted here."
    )
