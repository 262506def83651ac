"""The section about keys: what each may do, from where and until when."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.networks import Network
from gateway.config.values.scalars import ApprovalMode, CallerName, Flag, Label, Name, ShownName, Text, parse_text
from gateway.config.values.times import Time
from gateway.config.values.units import DurationOrZero
from gateway.config.values.value import ValueType
from gateway.features.limits.section import AllowanceSettings

Scope = Literal["passthrough", "context", "tools", "approve", "admin", "metrics"]

_SHA256 = re.compile(r"[0-9A-Fa-f]{64}\Z")


def _parse_sha256(value: object) -> str:
    text = parse_text(value)
    if not _SHA256.match(text):
        raise ValueError("expected the SHA-256 of the key as 64 hexadecimal digits (printf %s KEY | sha256sum)")
    return text.lower()


Sha256 = Annotated[str, ValueType(kind="64 hexadecimal digits", parse=_parse_sha256)]


class KeyTerms(Section):
    """The terms of a key, wherever it comes from: the configuration, or an operator who made it at run time."""

    name: CallerName = Field(description="Name in logs and lists; used once.")
    scopes: tuple[Scope, ...] = Field(description="Actions that the key allows; at least one.")
    tenant: ShownName | None = Field(
        default=None,
        description=(
            "Name of the group whose approvals, runs and memories this key shares; null: the name of the key."
        ),
    )
    expires: Time | None = Field(default=None, description="When the key ends; null: never.")
    approvals: ApprovalMode | None = Field(
        default=None, description="How its requests wait for an approval; null: as under `approvals`."
    )
    models: tuple[Text, ...] = Field(
        default=(), description="Models that the key may use, as names and globs; empty: all."
    )
    tools: tuple[Text, ...] = Field(
        default=(),
        description="Tools that the key may use over MCP (`mcp.serve`), as names and globs; empty: all.",
    )
    upstreams: tuple[Name, ...] = Field(
        default=(), description="Names of the upstreams that its requests may go to; empty: all."
    )
    networks: tuple[Network, ...] = Field(
        default=(),
        description=(
            "Networks from which the key may be used. The address is that of the connection, which behind a proxy is "
            "the proxy's; empty: all."
        ),
    )
    limits: AllowanceSettings | None = Field(default=None, description="Limits of the key; null: none.")
    metadata: Mapping[Name, Label] = Field(
        default={}, description="Texts by name that lists show with the key, such as a cost centre."
    )

    @property
    def tenant_name(self) -> str:
        return self.tenant or self.name


class KeySettings(KeyTerms):
    sha256: Sha256 = Field(description="SHA-256 of the key; the configuration never holds the key itself.")


class RuntimeKeys(Section):
    enabled: Flag = Field(
        default=False,
        description=(
            "Let operators make keys while the gateway runs (`gateway keys create`), which the store has. Then every "
            "caller needs a key, also while there is none yet."
        ),
    )
    grace: DurationOrZero = Field(
        default=86400.0,
        description="Time for which a rotated key stays valid beside the new one, unless the rotation says otherwise.",
    )
