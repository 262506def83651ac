"""The sections about requests, for the passthrough lane and the listener."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.addresses import HostName, ListenAddress, PathPrefix, ValkeyUrl
from gateway.config.values.scalars import FilePath, Flag, Label, ShownName, build_count_type
from gateway.config.values.units import Duration, DurationOrZero, build_size_type
from gateway.features.limits.section import AllowanceSettings
from gateway.jsontext.value_count import VALUES_LIMIT


class Admin(Section):
    listen: ListenAddress | None = Field(
        default=None,
        description="A second address, for metrics, health and administration; null: they are on `listen`.",
    )


class ReplicasSettings(Section):
    """The port for other gateways on the same store, and for further workers of this one. Only gateways may use it."""

    listen: ListenAddress | None = Field(
        default=None,
        description=(
            "Address to listen on for other gateways on the same store. Further workers take the next ports. null: the "
            "host of `listen` where the store is one of several machines, else loopback, and any free port."
        ),
    )
    address: HostName | None = Field(
        default=None,
        description=(
            "Host at which other gateways reach this one; null: the host of `replicas.listen`, or where that is all "
            "addresses, the one from which this machine reaches others."
        ),
    )


class Passthrough(Section):
    paths: tuple[PathPrefix, ...] = Field(
        default=("/v1/",), description="Path prefixes whose requests the gateway relays unchanged."
    )
    by_model: Flag = Field(
        default=False,
        description=(
            "Choose the upstream of a request under `paths` by the `model` of its JSON body and the `models` of the "
            "upstreams that have no paths of their own. At most 1 MiB of the body is looked at, and nothing is changed."
        ),
    )


class LimitsSettings(Section):
    head: Annotated[int, build_size_type(1 << 10, 1 << 20)] = Field(
        default=32 << 10, description="Largest head of a request."
    )
    headers: Annotated[int, build_count_type(1, 10_000)] = Field(
        default=256, description="Most header fields of a request."
    )
    context_body: Annotated[int, build_size_type(1 << 10, 1 << 30)] = Field(
        default=32 << 20, description="Largest body of a request in the context lane."
    )
    context_values: Annotated[int, build_count_type(100, 10_000_000)] = Field(
        default=VALUES_LIMIT,
        description=(
            "Most JSON values (texts, numbers, lists, objects) in a request of the context lane, with those of the "
            "responses or the conversation that it goes on from. Each thousand delays other requests by about 1 ms."
        ),
    )
    connections: Annotated[int, build_count_type(1, 1_000_000)] = Field(
        default=10_000, description="Most client connections of a worker; further ones get 503 at once."
    )
    concurrent: Annotated[int, build_count_type(1, 1_000_000)] | None = Field(
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
    body_rate: Annotated[int, build_size_type(100, 1 << 30)] = Field(
        default=8 << 10,
        description=(
            "Least bytes a second, apart from pauses within `body_idle`, of a body that holds places which others "
            "want: at an endpoint, or in limits of an upstream, a model or a tenant. Bodies within `retry.body` hold "
            "none."
        ),
    )
    write: Duration = Field(
        default=60.0,
        description=(
            "Longest time in which a client reads nothing of its response, as far as the kernel reports it; it must "
            "also read 512 bytes a second. Over loopback the kernel reports up to 95 KB at once: there a client must "
            "read as much within this time."
        ),
    )
    keepalive: Duration = Field(default=75.0, description="Longest idle time of a client connection between requests.")
    drain: DurationOrZero = Field(default=30.0, description="Time that requests get to finish when the gateway stops.")
    stop_delay: DurationOrZero = Field(
        default=0.0,
        description=(
            "Time in which a gateway that stops still accepts connections, and `/health/ready` answers 503: so long a "
            "balancer may take to see that. Then `drain` begins."
        ),
    )
    shared: Flag | None = Field(
        default=None,
        description=(
            "Count the limits of keys, tenants, models and upstreams together with other gateways on the same `store`; "
            "false: each gateway counts for itself; null: together, if it is a store for several machines, or with "
            "`valkey`."
        ),
    )
    valkey: ValkeyUrl | None = Field(
        default=None,
        description=(
            "The Valkey or Redis server in which gateways share limits, in place of the `store`, such as "
            "`valkey://HOST:6379/0`; it needs `twolane[valkey]`."
        ),
    )
    valkey_file: FilePath | None = Field(default=None, description="File that holds `valkey`.")
    tenants: Mapping[ShownName, AllowanceSettings] = Field(
        default={}, description="Limits of tenants by name, over all their keys."
    )
    models: Mapping[Label, AllowanceSettings] = Field(
        default={},
        description="Limits of models by name or glob, over all callers. Each one that matches counts.",
    )
