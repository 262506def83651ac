"""The section about traces."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.addresses import BaseUrl, HeaderName, HeaderValue
from gateway.config.values.scalars import ExistingFile, Flag, Label
from gateway.config.values.units import Share

#: The path of traces below the URL of a receiver, as OTLP defines it.
TRACES = "/v1/traces"


class TracingSettings(Section):
    endpoint: BaseUrl | None = Field(
        default=None,
        description="URL of an OTLP receiver (HTTP), such as `http://127.0.0.1:4318`; null: no traces. Needs the extra "
        "`tracing`.",
    )
    headers: Mapping[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="Headers for `endpoint`; `NAME_file` reads the value from a file."
    )
    ca_file: ExistingFile | None = Field(
        default=None, description="Certificates to trust for `endpoint`, as PEM; null: those of the system."
    )
    service_name: Label = Field(default="twolane", description="Name of the gateway in traces (`service.name`).")
    sample: Share = Field(
        default=1.0, description="Share of the traces that begin here; one that a client began is sampled as it says."
    )
    trust_clients: Flag = Field(
        default=True,
        description="Continue the traces that clients name (`traceparent`); `false`: every request begins one of its "
        "own, sampled by `sample`.",
    )
    propagate: tuple[Literal["upstreams", "tools", "mcp"], ...] = Field(
        default=(),
        description="Receivers of trace context: `upstreams` of the context lane, servers that `tools` ask "
        "(`http_request`), `mcp` servers.",
    )
    passthrough: Flag = Field(
        default=False,
        description="Send trace context to upstreams of passthrough requests, too, in place of the client's: it "
        "changes the bytes of their heads.",
    )

    @property
    def url(self) -> str | None:
        """Return the URL that traces are sent to."""
        if self.endpoint is None or self.endpoint.endswith(TRACES):
            return self.endpoint
        return self.endpoint.rstrip("/") + TRACES
