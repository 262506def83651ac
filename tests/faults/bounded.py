"""How connections end at a limit, and the counter of deadlines."""

import pytest
from gateways import scrape

from gateway.testing.local_gateway import LocalGateway

#: For what takes long and does not depend on the loop: the one that the gateway runs on.
UVLOOP = pytest.mark.asyncio(loop_factories=["uvloop"])


async def deadlines(gateway: LocalGateway) -> dict[str, float]:
    """How often each deadline has struck."""
    prefix = 'gateway_deadlines_total{deadline="'
    return {name[len(prefix) : -2]: n for name, n in (await scrape(gateway)).items() if name.startswith(prefix)}
