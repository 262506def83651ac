"""The sections about tools and who decides on them: tools, risk, approvals, MCP servers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from gateway.config.values.addresses import BaseUrl, DatabaseUrl, HeaderName, HeaderValue, HostName, SecretText, SecretUrl, VariableValue
from gateway.config.reading.secret_files import COMPANION_SUFFIX
from gateway.config.values.scalars import ApprovalMode, FilePath, Flag, Label, Name, Text, VariableName, counted
from gateway.config.values.secret import Secret
from gateway.config.schema.section import PluginSettings, PluginUse, Section
from gateway.config.values.units import Duration, sized

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


class Tool(Section):
    requires_approval: Flag = Field(default=False, description="Ask a person before every call, whatever its risk.")
    untrusted: Flag = Field(default=False, description="Its results come from strangers and taint the run.")


class BuiltIn(Tool):
    """One of our own tools: the keys of its plugin stand beside those that every tool has."""

    def options(self) -> dict[str, object]:
        """What its plugin is given, in plain values."""
        return {
            name: _plain(value)
            for name, value in self
            if name not in Tool.model_fields and not name.endswith(COMPANION_SUFFIX)
        }


class FileOperations(BuiltIn):
    roots: tuple[FilePath, ...] = Field(
        default=(Path("work"),), validate_default=True, description="Folders that the tool may see; they must exist."
    )
    write: Flag = Field(default=False, description="Allow writing at all.")
    max_read_bytes: Annotated[int, sized(1, 1 << 30)] = Field(
        default=1 << 20, description="How much of a file is read."
    )
    max_write_bytes: Annotated[int, sized(1, 1 << 30)] = Field(
        default=1 << 20, description="Largest file that is written."
    )
    max_entries: Annotated[int, counted(1, 1_000_000)] = Field(
        default=1000, description="How many entries of a folder are listed."
    )


class HttpRequest(BuiltIn):
    untrusted: Flag = Field(default=True, description="Its results come from strangers and taint the run.")
    private_networks: Flag = Field(
        default=False, description="Allow loopback, private and link-local addresses, and any port."
    )
    hosts: tuple[HostName, ...] = Field(
        default=(), description="Hosts to ask; ports 80 and 443 unless one is named; empty: all."
    )
    timeout: Duration = Field(default=30.0, description="Longest time for a call, redirects included.")
    max_bytes: Annotated[int, sized(1, 1 << 30)] = Field(
        default=1 << 20, description="How much of an answer is read, decoded."
    )


class ExecuteSql(BuiltIn):
    url: DatabaseUrl = Field(
        default=Secret("sqlite:///./data.db"),
        description="The database: `sqlite:///FILE`, which must exist, or `postgresql://...`.",
    )
    url_file: FilePath | None = Field(default=None, description="File that holds `url`.")
    read_only: Flag = Field(default=True, description="Open the database for reading only.")
    timeout: Duration = Field(default=30.0, description="Longest time for a statement.")
    max_rows: Annotated[int, counted(1, 10_000_000)] = Field(default=1000, description="Rows in a result.")
    max_bytes: Annotated[int, sized(1, 1 << 30)] = Field(
        default=256 << 10, description="Size of the rows of a result, as JSON."
    )


class CommandLimits(Section):
    cpu_s: Annotated[int, counted(1, 86_400)] = Field(default=30, description="CPU time of each process, in seconds.")
    memory_bytes: Annotated[int, sized(16 << 20, 1 << 40)] = Field(
        default=1 << 30, description="Memory of all processes together."
    )
    file_bytes: Annotated[int, sized(0, 1 << 40)] = Field(
        default=64 << 20, description="Largest file that a command writes."
    )
    processes: Annotated[int, counted(1, 100_000)] = Field(default=64, description="Processes at the same time.")
    open_files: Annotated[int, counted(16, 1 << 20)] = Field(
        default=256, description="Files that each process has open."
    )


class ExecuteCommand(BuiltIn):
    cwd: FilePath = Field(
        default=Path("work"),
        validate_default=True,
        description="Folder in which commands run, and the only one they may write; it must exist.",
    )
    timeout: Duration = Field(default=30.0, description="Longest run of a command.")
    sandbox: Literal["auto", "bubblewrap", "landlock", "none"] = Field(
        default="auto", description="What confines a command; auto: the strongest that this machine has."
    )
    readable: tuple[FilePath, ...] = Field(default=(), description="Further files and folders that commands may read.")
    max_output_bytes: Annotated[int, sized(1 << 10, 64 << 20)] = Field(
        default=256 << 10, description="How much of the output is kept."
    )
    limits: CommandLimits = Field(default_factory=CommandLimits, description="What a command may use.")


class PluginTool(Tool):
    """Any other key names a tool that a plugin provides: one of your own, or a built-in one under another name."""

    use: Name | None = Field(default=None, description="Name of the plugin; null: the name of the tool.")
    with_: PluginSettings = Field(
        default_factory=dict, alias="with", description="The configuration of the plugin itself."
    )

    def options(self) -> Mapping[str, object]:
        """What its plugin is given."""
        return self.with_


class Tools(Section):
    """Built-in tools by their own keys; every other key is a plugin's tool."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, PluginTool]

    file_operations: FileOperations | None = Field(default=None, description="Reads, lists and writes files.")
    http_request: HttpRequest | None = Field(default=None, description="Asks web servers.")
    execute_sql: ExecuteSql | None = Field(default=None, description="Asks a database.")
    execute_command: ExecuteCommand | None = Field(default=None, description="Runs commands in a sandbox.")

    @property
    def built_in(self) -> Mapping[str, BuiltIn]:
        """Those of our own that are on, by name."""
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: tool for name, tool in known.items() if tool is not None}

    @property
    def plugins(self) -> Mapping[str, PluginTool]:
        return self.__pydantic_extra__ or {}

    @property
    def by_plugin(self) -> Mapping[str, BuiltIn | PluginTool]:
        """All that are on, by the names of their plugins, under which a model knows those of ours."""
        return {**self.built_in, **{tool.use or name: tool for name, tool in self.plugins.items()}}


class AssessorUse(PluginUse):
    adds: Flag = Field(
        default=False,
        description="Keep the built-in assessor of the tool beside it; false: it replaces that one.",
    )


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
    rules: Mapping[Text, Literal["deny", "confirm", "floor"]] = Field(
        default_factory=dict,
        description="By tool (globs): refuse its calls, ask, or never take a model's own word that the risk is low.",
    )
    assessors: Mapping[str, AssessorUse] = Field(
        default_factory=dict, description="Assessors of your own, by the name of the tool they judge."
    )


class Notify(Section):
    webhook: SecretUrl | None = Field(default=None, description="URL that is told of each new approval.")
    webhook_file: FilePath | None = Field(default=None, description="File that holds `webhook`.")
    secret: SecretText | None = Field(default=None, description="Signs what is sent (HMAC-SHA256).")
    secret_file: FilePath | None = Field(default=None, description="File that holds `secret`.")


class Approvals(Section):
    mode: ApprovalMode = Field(
        default="turn",
        description="How a client waits: the answer ends with the question (`turn`), the stream stays open until "
        "somebody has decided elsewhere (`hold`), or nobody is asked (`reject`).",
    )
    chains: Mapping[Name, ApprovalMode] = Field(
        default_factory=dict, description="By chain: another `mode` for its requests."
    )
    inline_wait: Duration = Field(default=120.0, description="How long a stream is held before it becomes a turn.")
    expires: Duration = Field(default=24 * 3600.0, description="How long an approval can be decided.")
    remembered: Duration = Field(
        default=30 * 24 * 3600.0,
        description="How long a conversation is remembered that approved a call for good, or asks before each.",
    )
    on_reject: Literal["abort", "continue"] = Field(
        default="abort", description="After a rejection: end the run, or tell the model and go on."
    )
    notify: tuple[Notify, ...] = Field(default=(), description="Whom to tell of new approvals.")


class McpOAuth(Section):
    """Tokens by OAuth client credentials; they and the secret go to the issuer and to the server only."""

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


def _plain(value: object) -> object:
    """A value as it would stand in a plugin's `with:`."""
    match value:
        case Path():
            return str(value)
        case Secret():
            return value.reveal()
        case Section():
            return {name: _plain(inner) for name, inner in value}
        case tuple():
            return [_plain(inner) for inner in value]
    return value
