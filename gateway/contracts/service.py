"""The protocol of a service whose server the gateway starts and stops, and its status."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from gateway.contracts.storage.store import Json, ServiceState
from gateway.contracts.tools import ServiceSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The status of a service, for its operator. `error` describes the last failure.

    A service that runs once for all gateways has `runs_at`, the address of the worker that runs it as far as that is
    known. `is_here`: this worker runs it.
    """

    state: ServiceState
    since_s: float  # Unix time
    transport: Literal["stdio", "http"]
    error: str | None = None
    protocol: str | None = None  # the version that was agreed on
    implementation: str | None = None  # name and version, as the server reports them
    restarts: int = 0  # by itself, since it was started
    runs_at: str | None = None
    is_here: bool = True
    skipped_lines: int = 0  # on standard output, other than messages
    stderr: tuple[str, ...] = ()  # the last lines


@runtime_checkable
class ManagedService(ServiceSource, Protocol):
    """A service that is started and stopped, and comes back by itself when it fails."""

    def start(self) -> None:
        """Connect in the background. Idempotent."""
        ...

    async def stop(self) -> None:
        """Stop the service, and return once nothing of it runs any more. Idempotent; `start` may follow."""
        ...

    def get_condition(self) -> ServiceStatus: ...

    def list_definitions(self) -> Mapping[str, str]:
        """Return the SHA-256 (hex) of the definition of each of its tools, as of its last listing."""
        ...

    def find_document(self, tool: str) -> Json | None:
        """Return the definition of a tool for a person to compare; None: its last listing has no such tool.

        It has the fields `description`, `parameters`, `title`, `output_schema` and `annotations`. Texts are cleaned
        and cut; a part that is too large is null.
        """
        ...

    def accept(self, pins: Mapping[str, str]) -> None:
        """Set the accepted definitions, by tool.

        A tool with another definition is `changed`. A tool without a pin is not.
        """
        ...

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of its condition or its definitions."""
        ...
