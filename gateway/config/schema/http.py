"""The sections about requests and upstreams, for the passthrough lane and the listener."""

import re
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.addresses import BaseUrl, Credential, CredentialHeader, ListenAddress, PathPrefix
from gateway.config.values.scalars import (
    ApprovalMode,
    ExistingFile,
    FilePath,
    Flag,
    Label,
    Name,
    Text,
    counted,
    parse_text,
)
from gateway.config.values.units import Duration, DurationOrZero, sized
from gateway.config.values.value import Value
from gateway.json_values import VALUES_LIMIT

Scope = Literal["passthrough", "context", "approve", "admin", "metrics"]

_SHA256 = re.compile(r"[0-9A-Fa-f]{64}\Z")


def _parse_sha256(value: object) -> str:
    text = parse_text(value)
    if not _SHA256.match(text):
        raise ValueError("expected the SHA-256 of the key as 64 hexadecimal digits (printf %s KEY | sha256sum)")
    return text.lower()


Sha256 = Annotated[str, Value(kind="64 hexadecimal digits", parse=_parse_sha256)]


class Admin(Section):
    listen: ListenAddress | None = Field(
        default=None,
        description="Address of its own for metrics, health, administration and console; null: they are on `listen`.",
    )


class Tls(Section):
    verify: Flag = Field(default=True, description="Check the upstream's certificate and name.")
    ca_file: ExistingFile | None = Field(
        default=None, description="Certificates to trust, PEM; null: those of the system."
    )
    cert_file: ExistingFile | None = Field(default=None, description="Our certificate for the upstream, PEM.")
    key_file: ExistingFile | None = Field(
        default=None, description="Private key of `cert_file`, PEM; null: it is in `cert_file`."
    )
    server_name: Text | None = Field(
        default=None, description="Name to ask for and to check (SNI); null: the host of `base_url`."
    )


class Timeouts(Section):
    connect: Duration = Field(default=5.0, description="Longest wait for a connection, TLS included.")
    first_byte: Duration = Field(default=600.0, description="Longest wait for the head of the answer.")
    idle: Duration = Field(default=300.0, description="Longest silence within an answer.")


class Upstream(Section):
    name: Name = Field(description="Name in metrics, logs and `context.upstream`; used once.")
    base_url: BaseUrl = Field(
        description="Where it is, up to `/v1`; its path stands in place of the matched prefix, or of `/v1` where "
        "that names a part of the API, as `/v1/embeddings` does."
    )
    api_key: Credential | None = Field(
        default=None, description="Our key for it; null: the client's own key is passed on."
    )
    api_key_file: FilePath | None = Field(default=None, description="File that holds `api_key`.")
    auth_header: CredentialHeader | None = Field(
        default=None, description="Header that carries `api_key`; null: the one in which the client sent its own."
    )
    models: tuple[Text, ...] = Field(
        default=(), description="Models it serves, as globs; chooses in the context lane only."
    )
    paths: tuple[PathPrefix, ...] = Field(
        default=(), description="Path prefixes it serves; empty: those of `passthrough.paths`."
    )
    stream: Literal["usage", "plain", "never"] = Field(
        default="usage",
        description="How the context lane asks its models to answer: `usage` streams and asks for tokens, `plain` only "
        "streams, `never` asks for whole answers. What a model refuses is learnt and left out.",
    )
    timeouts: Timeouts = Field(default_factory=Timeouts, description="How long to wait for it.")
    tls: Tls = Field(default_factory=Tls, description="How to speak TLS with it.")


class Passthrough(Section):
    paths: tuple[PathPrefix, ...] = Field(
        default=("/v1/",), description="Path prefixes whose requests go to an upstream unchanged."
    )


class Key(Section):
    name: Label = Field(description="Name in logs and lists; used once.")
    sha256: Sha256 = Field(description="SHA-256 of the key; the key itself is nowhere in the configuration.")
    scopes: tuple[Scope, ...] = Field(description="What the key may do; at least one.")
    tenant: Label | None = Field(
        default=None, description="Whose approvals, runs and memories it shares; null: the name of the key."
    )
    approvals: ApprovalMode | None = Field(
        default=None, description="How its requests wait for a person; null: as `approvals` says."
    )

    @property
    def tenant_name(self) -> str:
        return self.tenant or self.name


class Limits(Section):
    head: Annotated[int, sized(1 << 10, 1 << 20)] = Field(default=32 << 10, description="Largest head of a request.")
    headers: Annotated[int, counted(1, 10_000)] = Field(default=256, description="Most header fields of a request.")
    context_body: Annotated[int, sized(1 << 10, 1 << 30)] = Field(
        default=32 << 20, description="Largest body of a request in the context lane."
    )
    context_values: Annotated[int, counted(100, 10_000_000)] = Field(
        default=VALUES_LIMIT,
        description="Most JSON values (texts, numbers, lists, objects) in a request of the context lane; others wait "
        "about 1 ms for each thousand.",
    )
    connections: Annotated[int, counted(1, 1_000_000)] = Field(
        default=10_000, description="Most client connections of a worker; more get 503 at once."
    )
    concurrent: Annotated[int, counted(1, 1_000_000)] | None = Field(
        default=None, description="Most requests of a worker under way; more get 503 at once; null: no limit."
    )
    head_timeout: Duration = Field(default=10.0, description="Longest time for a head, from its first byte.")
    body_idle: Duration = Field(
        default=60.0, description="Longest silence of a client within its body, which needs 100 bytes a second besides."
    )
    write: Duration = Field(
        default=60.0,
        description="Longest time in which a client reads nothing of its answer, as far as the kernel shows it.",
    )
    keepalive: Duration = Field(default=75.0, description="Longest idle time of a client connection between requests.")
    drain: DurationOrZero = Field(
        default=30.0, description="How long requests under way may finish when the gateway stops."
    )
