"""Who a request comes from: the one fact that every part of the gateway shares."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request comes from. Without keys everybody is `local`, with every scope, from loopback only."""

    name: str
    tenant: str
    scopes: frozenset[str]
