"""The durations of one server's operations, counted under OpenTelemetry's names for MCP."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.contracts.plugin import Clock, Counters
from gateway.mcp.server_facts import Config


@dataclass(slots=True)
class TimedOperation:
    """A running operation; `error_type` is its outcome if it does not end well: one word of a closed set."""

    error_type: str = "cancelled"


class OperationMetrics:
    """The metrics of the operations of one server."""

    def __init__(self, server: Config, *, counters: Counters, clock: Clock) -> None:
        self._server = server
        self._counters = counters
        self._clock = clock

    @property
    def network(self) -> str:
        """Return what carries the messages, in OpenTelemetry's words."""
        return "pipe" if self._server.transport == "stdio" else "tcp"

    @contextmanager
    def operation(self, method: str) -> Iterator[TimedOperation]:
        """Measure an operation. Set its `error_type` to `""` when it ends well.

        The duration of each tool also counts in that of all tools.
        """
        operation, began_s = TimedOperation(), self._clock.monotonic()
        try:
            yield operation
        finally:
            self._counters.observe(
                "mcp_client_operation_duration_seconds",
                self._clock.monotonic() - began_s,
                mcp_method_name=method,
                network_transport=self.network,
                error_type=operation.error_type,
            )
