"""A service whose server the gateway starts and stops, and how it is: what a fleet of services asks of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from gateway.contracts.store import ServiceState
from gateway.contracts.tools import ServiceSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """How a service is, for its operator. `error` is the last thing that went wrong, in words."""

    state: ServiceState
    since_s: float  # Unix time
    transport: Literal["stdio", "http"]
    error: str | None = None
    protocol: str | None = None  # the version that was agreed on
    restarts: int = 0  # by itself, since it was started
    skipped_lines: int = 0  # on standard output, that were no messages
    stderr: tuple[str, ...] = ()  # the last lines


@runtime_checkable
class ManagedService(ServiceSource, Protocol):
    """A service that is started and stopped, and comes back by itself when it fails."""

    def start(self) -> None:
        """Connects in the background. Idempotent."""
        ...

    async def stop(self) -> None:
        """Returns once nothing of it runs any more. Idempotent; `start` may follow."""
        ...

    def condition(self) -> ServiceStatus: ...

    def definitions(self) -> Mapping[str, str]:
        """The SHA-256 (hex) of the definition of each of its tools, as of its last listing."""
        ...

    def accept(self, pins: Mapping[str, str]) -> None:
        """What was accepted, by tool: one whose definition is another one is `changed`; one without a pin is not."""
        ...

    def watch(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each change of its condition or its definitions."""
        ...
