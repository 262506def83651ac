"""The facts about one MCP server: its settings, and the protocol of its transport, of either kind."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.units import parse_positive_seconds

if TYPE_CHECKING:
    from mcp.shared.dispatcher import Dispatcher
    from mcp.shared.transport_context import TransportContext

Seconds: TypeAlias = Annotated[float, BeforeValidator(parse_positive_seconds)]

# How often over its timeout a tool may go on for as long as it reports progress.
_PROGRESS_FACTOR = 5
_DOMAIN: Final = b"twolane mcp server 1\n"
#: The reason for the end of a connection after which the protocol wants a new one at once.
SESSION_ENDED: Final = "the server has ended the session"
#: In the task of a call: returns whether what cleared the call is unchanged (`stands` of `ToolCall`).
#: The SDK's session passes on nothing of its caller's but what the protocol has.
CALL_STANDS: Final[ContextVar[Callable[[], bool]]] = ContextVar("CALL_STANDS")


class OAuth(BaseModel):
    """The gateway's credentials at an issuer of tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    issuer: str = Field(description="The authorization server, as it calls itself.")
    client_id: str = Field(description="Who the gateway is to the issuer.")
    client_secret: str = Field(description="Its secret there.", repr=False)
    scope: str | None = Field(default=None, description="What to ask for, separated by spaces.")


class Config(BaseModel):
    """The settings of one server; times are seconds. Tools are named as the server names them."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(default="mcp", description="Name of the service.")
    enabled: bool = Field(default=True, description="Start it; false: it is there and stays stopped.")
    command: str | None = Field(default=None, description="Program of a stdio server.")
    args: tuple[str, ...] = Field(default=(), description="Arguments of `command`.", repr=False)
    env: Mapping[str, str] = Field(default_factory=dict, description="Environment of `command`.", repr=False)
    cwd: str | None = Field(default=None, description="Folder in which `command` runs.")
    url: str | None = Field(default=None, description="Address of a streamable HTTP server.", repr=False)
    headers: Mapping[str, str] = Field(default_factory=dict, description="Headers for `url`.", repr=False)
    oauth: OAuth | None = Field(default=None, description="How to get tokens for `url`.")
    private_networks: bool = Field(
        default=False, description="Let the name in `url` lead to loopback and private addresses."
    )
    description: str = Field(default="", description="One sentence for the prompt; empty: the name.")
    trigger_keywords: tuple[str, ...] = Field(default=(), description="Words of a user that mean this server.")
    timeout: Seconds = Field(default=30.0, description="Longest run of a tool without an answer or progress.")
    timeouts: Mapping[str, Seconds] = Field(default_factory=dict, description="By tool: another `timeout` for it.")
    max_timeout: Seconds | None = Field(
        default=None, description="Longest run of a tool that tells its progress; null: 5 times its timeout."
    )
    start_timeout: Seconds = Field(default=10.0, description="Longest wait until it is ready for calls.")
    requires_approval: bool = Field(default=False, description="Ask a person before every call, whatever its risk.")
    run: Literal["each", "one"] = Field(
        default="each", description="Each worker runs the program, or one worker of all gateways on the store."
    )
    pin: Literal["definitions", "names", "none"] = Field(
        default="definitions", description="What of its tools must stay as it was accepted."
    )
    idempotent: tuple[str, ...] = Field(default=(), description="Tools that do no harm when they run twice.")

    @model_validator(mode="after")
    def _check_one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("expected either command or url")
        if self.run == "one" and self.command is None:
            raise ValueError("`run: one` is for servers with a command")
        return self

    @property
    def transport(self) -> Literal["stdio", "http"]:
        return "stdio" if self.url is None else "http"

    @cached_property
    def sha256(self) -> str:
        """Return what identifies the server (hex): its transport and where it is, whatever its environment and headers.

        Their secrets are renewed, and the server stays the same one.
        """
        where = [self.transport, self.command, self.args, self.cwd, self.url]
        return hashlib.sha256(_DOMAIN + write_canonical(where).encode("utf-8", "surrogatepass")).hexdigest()

    def get_limits_s(self, tool: str) -> tuple[float, float]:
        """Return how long a call may go without an answer or progress, and how long with progress, in seconds."""
        limit_s = self.timeouts.get(tool, self.timeout)
        longest_s = _PROGRESS_FACTOR * limit_s if self.max_timeout is None else self.max_timeout
        return limit_s, max(limit_s, longest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEndpoint:
    """The address of a server, and the gateway's headers and credentials for it."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    private_networks: bool = False
    oauth: OAuth | None = None


class Channel(AbstractAsyncContextManager["Dispatcher[TransportContext]"], Protocol):
    """A transport for one connection: entered, it gives the dispatcher that the SDK's session works on.

    Its `run` ends as soon as nothing can come any more; leaving it takes a few seconds at most.
    """

    @property
    def skipped_lines(self) -> int:
        """Return the number of lines on standard output that were not messages."""
        ...

    @property
    def stderr(self) -> Sequence[str]:
        """Return the last lines on standard error."""
        ...

    @property
    def returncode(self) -> int | None:
        """Return the exit code of its program, as shells count; None: it has not ended, there is none, or unknown."""
        ...


#: Makes the transport of the next connection, which may report why it lost the connection.
MakeChannel: TypeAlias = Callable[[Callable[[str], None]], Channel]
