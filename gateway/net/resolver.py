"""The lookups of `dns.py` for clients of aiohttp, whose own resolver uses the event loop's four threads."""

import socket
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.net.dns import LOOKUPS, Lookups

#: Lookups of names that models choose. They have separate threads: no name there stops one that an operator chose.
MODELS_LOOKUPS: Final = Lookups()


class Resolver(AbstractResolver):
    """A resolver of names. It requests both address families: the connector takes either.

    `for_models`: the names are chosen by models, and not by an operator.
    """

    def __init__(self, *, for_models: bool = False) -> None:
        self._lookups = MODELS_LOOKUPS if for_models else LOOKUPS

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - both are requested
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises OSError."""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._lookups.resolve_addresses(host)
        ]

    async def close(self) -> None:
        """Do nothing: the lookups belong to the process."""
