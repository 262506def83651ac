"""One turn, one account: what the metrics and the access log say about it is what happened."""

import orjson

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import connect
from gateway.testing.scripts import build_answer, build_event, build_event_stream_answer, serve
from gateway.testing.upstream import FakeUpstream

ASK = b"POST /v1/chat/completions?api=secret HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


async def _talk(response: bytes) -> tuple[LocalGateway, dict[str, object]]:
    """The gateway after one answered request, and the record of its access log."""
    async with FakeUpstream(serve(response)) as upstream:
        config = {"upstreams": [{"name": "u", "base_url": upstream.base_url}], "logging": {"access": True}}
        async with LocalGateway(config) as gateway, connect(gateway.host, gateway.port) as client:
            await client.send(ASK)
            await client.read_response(method="POST")
            records = [orjson.loads(line) for line in gateway.get_log().splitlines()]
    return gateway, next(record for record in records if record["event"] == "request")


async def test_an_answer_is_counted_once_with_its_status() -> None:
    """Status, route, method, outcome and sizes are noted; the query is not."""
    gateway, record = await _talk(build_answer(201, b"12345"))
    tally = gateway.metrics.route("/v1/", "passthrough")
    assert dict(tally.count_codes("POST")) == {201: 1}
    assert (record["status"], record["route"], record["method"], record["outcome"]) == (201, "/v1/", "POST", "ok")
    assert (record["bytes_in"], record["bytes_out"], record["path"]) == (2, 5, "/v1/chat/completions")
    assert record["key"] == "local"
    assert "secret" not in str(record)


async def test_upstream_5xx_is_counted_as_error_and_relayed() -> None:
    """5xx is counted as the upstream's error, and passed on all the same."""
    gateway, record = await _talk(build_answer(503, b"busy"))
    assert dict(gateway.metrics.get_upstream("u").outcomes) == {"error": 1}
    assert (record["status"], record["outcome"]) == (503, "error")


async def test_event_streams_have_a_histogram_of_their_own() -> None:
    """A stream's duration says nothing about an answer's."""
    gateway, _ = await _talk(build_event_stream_answer([build_event("1")]))
    tally = gateway.metrics.route("/v1/", "passthrough")
    assert (tally.streamed.has_samples, tally.answered.has_samples) == (True, False)


async def test_overhead_and_first_byte_are_observed_once() -> None:
    """Overhead and the upstream's first byte are observed once a request."""
    gateway, _ = await _talk(build_answer(200, b"x"))
    tally = gateway.metrics.route("/v1/", "passthrough")
    assert sum(tally.overhead.read_values()[:-1]) == 1
    assert sum(gateway.metrics.get_upstream("u").first_byte.read_values()[:-1]) == 1
