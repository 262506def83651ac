"""The sections about tools and the decisions on them: tools, risk, approvals, MCP servers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from gateway.config.reading.secret_files import COMPANION_SUFFIX
from gateway.config.schema.section import PluginSettings, Section
from gateway.config.values.addresses import DatabaseUrl, HostName
from gateway.config.values.scalars import FilePath, Flag, Name, counted
from gateway.config.values.secret import Secret
from gateway.config.values.units import Duration, sized


class Tool(Section):
    requires_approval: Flag = Field(default=False, description="Ask a person before every call, whatever its risk.")
    untrusted: Flag = Field(default=False, description="Its results come from strangers and taint the run.")


class BuiltIn(Tool):
    """One of our own tools: the keys of its plugin stand beside those that every tool has."""

    def options(self) -> dict[str, object]:
        """Return the options of its plugin, in plain values."""
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
    """A tool under any other key, provided by a plugin: one of your own, or a built-in one under another name."""

    use: Name | None = Field(default=None, description="Name of the plugin; null: the name of the tool.")
    with_: PluginSettings = Field(
        default_factory=dict, alias="with", description="The configuration of the plugin itself."
    )

    def options(self) -> Mapping[str, object]:
        """Return the options of its plugin."""
        return self.with_


class Tools(Section):
    """All tools: built-in ones by their own keys, and every other key for a plugin's tool."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, PluginTool]

    file_operations: FileOperations | None = Field(default=None, description="Reads, lists and writes files.")
    http_request: HttpRequest | None = Field(default=None, description="Asks web servers.")
    execute_sql: ExecuteSql | None = Field(default=None, description="Asks a database.")
    execute_command: ExecuteCommand | None = Field(default=None, description="Runs commands in a sandbox.")

    @property
    def built_in(self) -> Mapping[str, BuiltIn]:
        """Return the built-in tools that are on, by name."""
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: tool for name, tool in known.items() if tool is not None}

    @property
    def plugins(self) -> Mapping[str, PluginTool]:
        return self.__pydantic_extra__ or {}

    @property
    def by_plugin(self) -> Mapping[str, BuiltIn | PluginTool]:
        """Return all tools that are on, by the names of their plugins.

        A model uses these names for the built-in tools.
        """
        return {**self.built_in, **{tool.use or name: tool for name, tool in self.plugins.items()}}


def _plain(value: object) -> object:
    """Return a value as it would stand in a plugin's `with:`."""
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
