"""The section `mcp`."""

from collections.abc import Mapping

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.addresses import BaseUrl, HeaderName, HeaderValue, SecretText, SecretUrl, VariableValue
from gateway.config.values.scalars import FilePath, Flag, Label, Text, VariableName
from gateway.config.values.units import Duration

# Keys of other programs' `mcpServers` blocks that mean nothing here.
FOREIGN_MCP_KEYS = frozenset(
    {
        "alwaysAllow",
        "autoApprove",
        "autoStart",
        "disabled",
        "disabledTools",
        "enabledTools",
        "excludeTools",
        "gallery",
        "icon",
        "includeTools",
        "isActive",
        "tags",
        "transport",
        "transportType",
        "trust",
        "type",
        "version",
    }
)


class McpOAuth(Section):
    """Tokens by OAuth client credentials. They and the secret go to the issuer and to the server only."""

    issuer: BaseUrl = Field(description="The authorization server, as it calls itself.")
    client_id: Text = Field(description="Who the gateway is to the issuer.")
    client_secret: SecretText = Field(description="Its secret there.")
    client_secret_file: FilePath | None = Field(default=None, description="File that holds `client_secret`.")
    scope: Text | None = Field(default=None, description="What to ask for, separated by spaces.")


class McpServer(Section):
    enabled: Flag = Field(default=True, description="Start it; false: it is there and stays stopped.")
    command: Text | None = Field(default=None, description="Program of a stdio server.")
    args: tuple[Text, ...] = Field(default=(), description="Arguments of `command`.")
    env: Mapping[VariableName, VariableValue] = Field(default_factory=dict, description="Environment of `command`.")
    cwd: FilePath | None = Field(default=None, description="Folder in which `command` runs.")
    url: SecretUrl | None = Field(default=None, description="Address of a streamable HTTP server.")
    url_file: FilePath | None = Field(default=None, description="File that holds `url`.")
    headers: Mapping[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="Headers for `url`; `NAME_file` reads the value from a file."
    )
    oauth: McpOAuth | None = Field(default=None, description="How to get tokens for `url`.")
    private_networks: Flag = Field(
        default=False,
        description="Let the name in `url` lead to loopback and private addresses; an address itself always may.",
    )
    description: Text | None = Field(
        default=None, description="One sentence for the prompt; null: the name of the server."
    )
    trigger_keywords: tuple[Text, ...] = Field(default=(), description="Words of a user that mean this server.")
    timeout: Duration = Field(
        default=30.0, description="Longest run of one of its tools without an answer or word of its progress."
    )
    timeouts: Mapping[Text, Duration] = Field(default_factory=dict, description="By tool: another `timeout` for it.")
    max_timeout: Duration | None = Field(
        default=None, description="Longest run of a tool that tells its progress; null: 5 times its timeout."
    )
    start_timeout: Duration = Field(default=10.0, description="Longest wait until it is ready for calls.")
    requires_approval: Flag = Field(default=False, description="Ask a person before every call, whatever its risk.")
    idempotent: tuple[Text, ...] = Field(
        default=(), description="Tools that do no harm when they run twice: called again when the server fails."
    )


class Mcp(Section):
    servers: Mapping[Label, McpServer] = Field(
        default_factory=dict, description="Servers by name; the inside of an `mcpServers` block can be pasted here."
    )
