"""The place of a span in its trace, which goes with a request, is stored with a run, and is sent on."""

from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span, as others refer to it (W3C Trace Context, https://www.w3.org/TR/trace-context/).

    Ids are in lower-case hexadecimal digits. `parent_id` is the span above it, "" at the top; `remote`: that one is of
    another program. `state` is the `tracestate` that came with it.
    """

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""
    parent_id: str = ""
    remote: bool = False

    @property
    def traceparent(self) -> str:
        """Return the value of the header `traceparent` for requests within this span."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @property
    def fields(self) -> dict[str, str]:
        """Return the header fields, or the members of an MCP `_meta`, for requests within this span."""
        fields = {"traceparent": self.traceparent}
        if self.state:
            fields["tracestate"] = self.state
        return fields

    @property
    def lines(self) -> bytes:
        """Return these fields as lines of a request's head."""
        return "".join(f"{name}: {value}\r\n" for name, value in self.fields.items()).encode()


@dataclass(slots=True, eq=False)
class RunTrace:
    """The span of a run, which ends with the run, in whatever process. `began_s` is Unix time.

    `goes_on`: the run has left this process, and has not ended. `outcome` is how it ended, if a loop reports it. `told`
    are the approvals whose spans were sent.
    """

    context: TraceContext
    began_s: float
    goes_on: bool = False
    outcome: str = ""
    told: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class ToolTrace:
    """The span of a tool call, for its tool: what it may send on with its requests, and what it may add.

    `facts` are further attributes, `error` the type of a failure that the tool's result does not name.
    """

    context: TraceContext
    receivers: Collection[str]
    facts: dict[str, str] = field(default_factory=dict)
    error: str = ""

    def get_fields(self, receiver: str) -> Mapping[str, str]:
        """Return the trace context for servers of a kind (configuration: `tracing.propagate`), if they get it."""
        return self.context.fields if receiver in self.receivers else {}


#: The span that is under way in this task, where traces are made. Tasks begin with that of the task that made them.
CURRENT: Final[ContextVar[TraceContext | None]] = ContextVar("CURRENT", default=None)
