"""A gateway in this process is the real one: it serves, logs, counts and reloads."""

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import connect
from gateway.testing.upstream import FakeUpstream

ASK = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_local_gateway_serves_logs_and_counts_requests() -> None:
    """A request goes through to the upstream, is logged when asked for, and counted."""
    async with FakeUpstream() as upstream:
        config = {"upstreams": [{"name": "u", "base_url": upstream.base_url}], "logging": {"access": True}}
        async with LocalGateway(config) as gateway, connect(gateway.host, gateway.port) as client:
            await client.send(ASK)
            assert (await client.read_response()).status == 200
            assert '"path":"/v1/models"' in gateway.get_log()
            assert gateway.metrics.get_upstream("u").outcomes == {"ok": 1}


async def test_local_gateway_applies_a_reload() -> None:
    """After `reload` the next request goes where the new configuration says."""
    async with (
        FakeUpstream() as one,
        FakeUpstream() as two,
        LocalGateway({"upstreams": [{"name": "u", "base_url": one.base_url}]}) as gateway,
        connect(gateway.host, gateway.port) as client,
    ):
        await gateway.reload({"upstreams": [{"name": "u", "base_url": two.base_url}]})
        await client.send(ASK)
        await client.read_response()
    assert (len(one.requests), len(two.requests)) == (0, 1)
