"""The port for other workers serves their pages alone, and those to gateways on the same store alone."""

from pathlib import Path

import aiohttp
import pytest

from gateway.server.pages.replicas import LINES, RefusalLog
from gateway.testing.local_gateway import LocalGateway
from gateway.upstream.replicas.seals import SealError


async def test_port_serves_gateways_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of the gateway's own pages is there, whatever a client sends."""
    config = {"store": f"sqlite:///{tmp_path / 'gateway.db'}"}
    async with LocalGateway(config) as gateway, LocalGateway(config) as other:
        replicas, others = gateway.gateway._shared.replicas, other.gateway._shared.replicas
        await replicas.open()
        await others.open()
        address = replicas.directory.find_address(replicas.owner)
        async with aiohttp.ClientSession(f"http://{address}") as session:
            for path in ("/replica/mcp", "/replica/mcp/git", "/replica/delivered", "/replica/services/call"):
                async with session.post(path, json={}) as response:
                    assert response.status == 421, path
            for path in ("/v1/models", "/context/runs", "/metrics", "/mcp", "/console"):
                async with session.get(path) as response:
                    assert response.status == 404, path
        assert "was refused: it has no seal of a gateway" in caplog.text
        fields = [(b"Content-Type", b"application/json")]
        await others.directory.refresh()
        path, body = b"/replica/services/check", b'{"name":"x"}'
        answer = await others.send(replicas.owner, b"POST", path, fields=fields, body=body)
        assert answer.status == 503  # it runs no such server
        answer.close()


def test_refused_requests_are_logged_in_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger who finds the port fills no disk, and the operator learns how many there were."""
    refusals = RefusalLog()
    for second in range(100):
        refusals.record(SealError("it has no seal"), now_s=second / 2)
    assert caplog.text.count("was refused: it has no seal") == LINES == len(caplog.records)
    refusals.record(SealError("it came late"), now_s=60.0)
    assert f"{100 - LINES} more requests" in caplog.text and "was refused: it came late" in caplog.text
