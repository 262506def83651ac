"""The caller of a request: the one fact that every part of the gateway shares."""

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Literal, TypeAlias

from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.contracts.model_names import is_listed_model

#: By this `User-Agent` a decision is known to have been made on the command line.
CLI_AGENT = "gateway-cli"

Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBounds:
    """The bounds of a key besides its scopes. An empty list bounds nothing.

    `expires_s` (Unix time) is when the key ends; None: never. `models` and `tools` are names and globs, `upstreams` are
    names. `networks` contain the addresses from which the key may be used. `limits` are its limits; None: it has none.
    """

    expires_s: float | None = None
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    limits: Allowance | None = None


UNBOUNDED = KeyBounds()


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. Without keys every caller is `local`, with every scope, from loopback only.

    `approvals` is how its requests wait for an approval; None: as the configuration has it for all.
    """

    name: str
    tenant: str
    scopes: frozenset[str]
    bounds: KeyBounds = field(default=UNBOUNDED)
    approvals: Literal["turn", "hold", "reject"] | None = None

    def get_cache_group(self, conversation: bytes) -> bytes:
        """Return what belongs at one endpoint, whose cache has its prompts: a conversation, else the requests of a key.

        Both lanes name a conversation by this. b"": the caller has no key and names no conversation.
        """
        if self == LOCAL and not conversation:
            return b""
        return self.tenant.encode() + b"\0" + (conversation or self.name.encode())

    def may_use_upstream(self, name: str) -> bool:
        """Return whether requests of the caller may go to the upstream of this name."""
        return not self.bounds.upstreams or name in self.bounds.upstreams

    def check_upstream(self, name: str) -> None:
        """Raise GatewayError (upstream_not_allowed) unless requests of the caller may go to this upstream."""
        if not self.may_use_upstream(name):
            raise GatewayError(
                "upstream_not_allowed",
                f"This gateway key may not use the upstream {name!r}, where this request goes: use another key, or a "
                f"path or model of {', '.join(map(repr, self.bounds.upstreams))}.",
            )

    def may_use_model(self, model: str) -> bool:
        """Return whether the caller may use the model of this name."""
        return not self.bounds.models or is_listed_model(model, self.bounds.models)

    def check_model(self, model: str) -> None:
        """Raise GatewayError (model_not_allowed) unless the caller may use the model of this name."""
        if not self.may_use_model(model):
            raise GatewayError(
                "model_not_allowed",
                f"This gateway key may not use this model: use one of {', '.join(map(repr, self.bounds.models))}, or "
                "another key.",
                param="model",
            )


#: The caller of a gateway without keys.
LOCAL = Caller("local", "local", frozenset(("passthrough", "context", "tools", "approve", "admin", "metrics")))
