"""The services of a worker outlive its configurations: a reload builds a lane on the same ones."""

from gateway.testing.local_gateway import LocalGateway


async def test_a_reload_keeps_the_services_of_the_worker() -> None:
    async with LocalGateway({"upstreams": [], "store": "sqlite:///:memory:"}) as made:
        gateway = made.gateway
        shared, lane = gateway._shared, gateway._context.lane
        await gateway.reload()
        assert gateway._shared is shared and gateway._context.lane is not lane
        assert gateway._context.lane.runs is shared.runs
