"""The facts about one MCP server: its settings, and the protocol of its transport, of either kind."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream
    from mcp.shared.message import SessionMessage

# How often over its timeout a tool may go on for as long as it reports progress.
_PROGRESS_FACTOR = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server; times are seconds. Tools are named as the server names them."""

    name: str
    transport: Literal["stdio", "http"] = "stdio"
    description: str = ""
    trigger_keywords: tuple[str, ...] = ()
    timeout_s: float = 30.0
    timeouts_s: Mapping[str, float] = field(default_factory=dict)
    max_timeout_s: float | None = None
    start_timeout_s: float = 10.0
    idempotent: frozenset[str] = frozenset()
    requires_approval: bool = False

    def limits_s(self, tool: str) -> tuple[float, float]:
        """Return how long a call may go without an answer or progress, and how long with progress, in seconds."""
        limit_s = self.timeouts_s.get(tool, self.timeout_s)
        longest_s = _PROGRESS_FACTOR * limit_s if self.max_timeout_s is None else self.max_timeout_s
        return limit_s, max(limit_s, longest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The gateway's credentials at an issuer of tokens; `scope`: the requested scopes, separated by spaces."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a server, and the gateway's headers and credentials for it."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    private_networks: bool = False
    oauth: Credentials | None = None


class Outgoing(Protocol):
    """The stream of messages to a server. The SDK has the same protocol, without a public name."""

    async def send(self, item: "SessionMessage", /) -> None: ...
    async def aclose(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


#: The messages and failures from a server, and the messages to it.
Streams: TypeAlias = "tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Outgoing]"


class Channel(AbstractAsyncContextManager["Streams"], Protocol):
    """A transport for one connection: entered, it gives the streams of messages that the SDK works on.

    Its streams end as soon as nothing can come any more; leaving it takes a few seconds at most.
    """

    @property
    def skipped_lines(self) -> int:
        """Return the number of lines on standard output that were no messages."""
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
