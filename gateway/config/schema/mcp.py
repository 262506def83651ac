"""The section `mcp`."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from gateway.config.schema.mcp_serve import Serve
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

    issuer: BaseUrl = Field(description="Identifier of the authorization server, a URL.")
    client_id: Text = Field(description="Client id of the gateway at the issuer.")
    client_secret: SecretText = Field(description="Client secret of the gateway at the issuer.")
    client_secret_file: FilePath | None = Field(default=None, description="File that holds `client_secret`.")
    scope: Text | None = Field(default=None, description="Scopes to request, separated by spaces.")


class McpServer(Section):
    enabled: Flag = Field(default=True, description="Start the server; false: it is listed and stays stopped.")
    command: Text | None = Field(default=None, description="Program of a stdio server.")
    args: tuple[Text, ...] = Field(default=(), description="Arguments of `command`.")
    env: Mapping[VariableName, VariableValue] = Field(default_factory=dict, description="Environment of `command`.")
    cwd: FilePath | None = Field(default=None, description="Folder in which `command` runs.")
    url: SecretUrl | None = Field(default=None, description="Address of a streamable HTTP server.")
    url_file: FilePath | None = Field(default=None, description="File that holds `url`.")
    headers: Mapping[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="Headers for `url`; `NAME_file` reads the value from a file."
    )
    oauth: McpOAuth | None = Field(default=None, description="OAuth settings for tokens for `url`.")
    private_networks: Flag = Field(
        default=False,
        description=(
            "Allow a host name in `url` that resolves to loopback or private addresses. An address in "
            "`url` is always allowed."
        ),
    )
    description: Text | None = Field(
        default=None, description="One sentence for the prompt; null: the name of the server."
    )
    trigger_keywords: tuple[Text, ...] = Field(
        default=(), description="Words in a user's message that bring this server's tools into the prompt."
    )
    timeout: Duration = Field(
        default=30.0, description="Longest time that one of its tools runs without a result or a progress report."
    )
    timeouts: Mapping[Text, Duration] = Field(default_factory=dict, description="By tool: another `timeout`.")
    max_timeout: Duration | None = Field(
        default=None, description="Longest run of a tool that reports progress; null: 5 times its timeout."
    )
    start_timeout: Duration = Field(default=10.0, description="Longest wait until the server is ready for calls.")
    run: Literal["each", "one"] = Field(
        default="each",
        description=(
            "Which worker runs `command`: `each` has a process of its own, or `one` of all workers of all gateways on "
            "the store runs it, and the others use that."
        ),
    )
    requires_approval: Flag = Field(default=False, description="Every call needs an approval, whatever its risk.")
    pin: Literal["definitions", "names", "none"] = Field(
        default="definitions",
        description=(
            "What must stay as it was accepted for calls not to ask: `definitions` of tools, their `names` only (for "
            "servers that describe a tool differently at each start), or `none`."
        ),
    )
    idempotent: tuple[Text, ...] = Field(
        default=(),
        description=(
            "Tools that do no harm when they run twice; the gateway calls them again after the server failed."
        ),
    )


class Mcp(Section):
    servers: Mapping[Label, McpServer] = Field(
        default_factory=dict, description="Servers by name; you can paste the inside of an `mcpServers` block here."
    )
    serve: Serve | None = Field(
        default=None, description="Serve the gateway's tools to MCP clients, `{}` with all defaults; null: off."
    )
