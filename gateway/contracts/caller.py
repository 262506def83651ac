"""The caller of a request: the one fact that every part of the gateway shares."""

from dataclasses import dataclass

#: By this `User-Agent` a decision is known to have been made on the command line.
CLI_AGENT = "gateway-cli"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. Without keys every caller is `local`, with every scope, from loopback only."""

    name: str
    tenant: str
    scopes: frozenset[str]
