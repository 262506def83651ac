"""The sections about requests and upstreams, for the passthrough lane and the listener."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.addresses import BaseUrl, Credential, CredentialHeader, ListenAddress, PathPrefix
from gateway.config.values.scalars import (
    ExistingFile,
    FilePath,
    Flag,
    Name,
    Text,
    counted,
)
from gateway.config.values.units import Duration, DurationOrZero, sized
from gateway.json_values import VALUES_LIMIT


class Admin(Section):
    listen: ListenAddress | None = Field(
        default=None,
        description="A second address, for metrics, health and administration; null: they are on `listen`.",
    )


class Tls(Section):
    verify: Flag = Field(default=True, description="Check the upstream's certificate and name.")
    ca_file: ExistingFile | None = Field(
        default=None, description="Certificates to trust, as PEM; null: those of the system."
    )
    cert_file: ExistingFile | None = Field(
        default=None, description="The gateway's certificate for the upstream, as PEM."
    )
    key_file: ExistingFile | None = Field(
        default=None, description="Private key of `cert_file`, as PEM; null: it is in `cert_file`."
    )
    server_name: Text | None = Field(
        default=None, description="Server name to send (SNI) and to verify; null: the host of `base_url`."
    )


class Timeouts(Section):
    connect: Duration = Field(default=5.0, description="Longest wait for a connection, TLS included.")
    first_byte: Duration = Field(default=600.0, description="Longest wait for the head of the response.")
    idle: Duration = Field(default=300.0, description="Longest pause within a response.")


class Upstream(Section):
    name: Name = Field(description="Name in metrics, logs and `context.upstream`; used once.")
    base_url: BaseUrl = Field(
        description=(
            "URL of the upstream, up to `/v1`. Its path replaces the matched prefix, or `/v1` if the "
            "prefix names a part of the API, such as `/v1/embeddings`."
        )
    )
    api_key: Credential | None = Field(
        default=None,
        description="The gateway's key for this upstream; null: the gateway passes on the client's own key.",
    )
    api_key_file: FilePath | None = Field(default=None, description="File that holds `api_key`.")
    auth_header: CredentialHeader | None = Field(
        default=None, description="Header that carries `api_key`; null: the one in which the client sent its own."
    )
    models: tuple[Text, ...] = Field(
        default=(), description="Models that it serves, as globs; they choose the upstream in the context lane only."
    )
    paths: tuple[PathPrefix, ...] = Field(
        default=(), description="Path prefixes that it serves; empty: those of `passthrough.paths`."
    )
    stream: Literal["usage", "plain", "never"] = Field(
        default="usage",
        description="How the context lane asks its models to answer: `usage` streams and asks for tokens, `plain` only "
        "streams, `never` asks for whole answers. What a model refuses is learnt and left out.",
    )
    timeouts: Timeouts = Field(default_factory=Timeouts, description="Longest waits for this upstream.")
    tls: Tls = Field(default_factory=Tls, description="TLS with this upstream.")


class Passthrough(Section):
    paths: tuple[PathPrefix, ...] = Field(
        default=("/v1/",), description="Path prefixes whose requests the gateway relays unchanged."
    )


class Limits(Section):
    head: Annotated[int, sized(1 << 10, 1 << 20)] = Field(default=32 << 10, description="Largest head of a request.")
    headers: Annotated[int, counted(1, 10_000)] = Field(default=256, description="Most header fields of a request.")
    context_body: Annotated[int, sized(1 << 10, 1 << 30)] = Field(
        default=32 << 20, description="Largest body of a request in the context lane."
    )
    context_values: Annotated[int, counted(100, 10_000_000)] = Field(
        default=VALUES_LIMIT,
        description=(
            "Most JSON values (texts, numbers, lists, objects) in a request of the context lane, with those of the "
            "responses or the conversation that it goes on from. Each thousand delays other requests by about 1 ms."
        ),
    )
    connections: Annotated[int, counted(1, 1_000_000)] = Field(
        default=10_000, description="Most client connections of a worker; further ones get 503 at once."
    )
    concurrent: Annotated[int, counted(1, 1_000_000)] | None = Field(
        default=None,
        description=(
            "Most requests that a worker handles at a time, with runs that go on without a client, such as "
            "background responses; further ones get 503 at once; null: no limit."
        ),
    )
    head_timeout: Duration = Field(
        default=10.0, description="Longest time for the head of a request, from its first byte."
    )
    body_idle: Duration = Field(
        default=60.0,
        description=("Longest pause of a client within its body; it must also send at least 100 bytes a second."),
    )
    write: Duration = Field(
        default=60.0,
        description="Longest time in which a client reads nothing of its response, as far as the kernel reports it.",
    )
    keepalive: Duration = Field(default=75.0, description="Longest idle time of a client connection between requests.")
    drain: DurationOrZero = Field(default=30.0, description="Time that requests get to finish when the gateway stops.")
