"""Requests to a collector: what they have, what is read of the answer, and what the log says of a failure."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import Certificates, self_signed
from collector import Collector

from gateway.contracts.tracing.tracer import Tracer
from gateway.telemetry.tracing.export import Collector as Target
from gateway.telemetry.tracing.export import SpanSender


async def sent(url: str, *, ca_file: Path | None = None) -> dict[str, float]:
    """The outcome of one span at a collector."""
    sending = SpanSender(Target(url, {"X-Own": "sesame"}, ca_file, "svc", "here:1"), secrets=tuple)
    Tracer(sending.send, share=1.0, receivers=frozenset()).begin("one", "internal", {}, parent=None).end()
    await sending.close()
    return {labels[0]: count for (_, labels), (count,) in sending.collect_counts()}


async def sent_to(answer: bytes, *, more_bytes: int = 0) -> tuple[dict[str, float], int]:
    """The outcome of a span at a collector with this answer, and how much of `more_bytes` behind it could be sent."""
    written = 0

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with suppress(ConnectionError):
            while written < more_bytes:
                writer.write(bytes(1 << 20))
                await writer.drain()
                written += 1 << 20
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        return await sent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/traces"), written


async def test_collector_redirect_counts_as_failure_and_is_not_followed() -> None:
    async with Collector() as elsewhere:
        head = f"HTTP/1.1 307 Elsewhere\r\nLocation: {elsewhere.url}/v1/traces\r\nContent-Length: 0\r\n\r\n"
        assert (await sent_to(head.encode()))[0] == {"failed": 1}
        assert elsewhere.headers == []


async def test_endless_collector_response_is_not_read() -> None:
    counted, written = await sent_to(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", more_bytes=128 << 20)
    assert counted == {"sent": 1} and written < 64 << 20


async def test_otel_environment_variables_do_not_configure_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variables are of the SDK, and of other collectors. What it says about the machine goes with the spans."""
    for name, value in {
        "EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "EXPORTER_OTLP_HEADERS": "authorization=Bearer%20of-another,content-type=text/plain",
        "EXPORTER_OTLP_TRACES_HEADERS": "x-own=of-another,x-more=of-another",
        "EXPORTER_OTLP_CERTIFICATE": "/no/such/file",
        "EXPORTER_OTLP_CLIENT_CERTIFICATE": "/no/such/file",
        "EXPORTER_OTLP_COMPRESSION": "none",
        "EXPORTER_OTLP_TIMEOUT": "nonsense",
        "BSP_SCHEDULE_DELAY": "nonsense",
        "SDK_DISABLED": "true",
        "SERVICE_NAME": "another",
        "RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.name=another",
    }.items():
        monkeypatch.setenv(f"OTEL_{name}", value)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with Collector() as collector:
        assert await sent(f"{collector.url}/v1/traces") == {"sent": 1}
        headers = {name.lower(): value for name, value in collector.headers[0].items()}
        assert "of-another" not in str(headers) and headers["x-own"] == "sesame"
        assert (headers["content-type"], headers["content-encoding"]) == ("application/x-protobuf", "gzip")
        resource = collector.spans[0].resource
        assert (resource["service.name"], resource["deployment.environment.name"]) == ("svc", "test")


async def told_of(url: str, caplog: pytest.LogCaptureFixture, *, ca_file: Path | None = None) -> str:
    """The only line that the log has of a collector that takes nothing."""
    assert await sent(url, ca_file=ca_file) == {"failed": 1}
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING" and url in one.getMessage()]
    return line.removeprefix(f"traces cannot be sent to {url}: ").removesuffix(
        ". Spans are lost until it takes them again"
    )


async def test_a_certificate_for_another_name_is_refused_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = await asyncio.to_thread(self_signed, tmp_path, dns_names=("otel.example",), addresses=("127.9.9.9",))
    line = await told_of_tls(made, made.ca, caplog)
    assert line.startswith("its certificate was not accepted (") and "mismatch" in line


async def test_an_unknown_authority_is_refused_and_the_log_says_so(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    line = await told_of_tls(certificates, None, caplog)
    assert line.startswith("its certificate was not accepted (")


async def told_of_tls(made: Certificates, ca_file: Path | None, caplog: pytest.LogCaptureFixture) -> str:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.server_cert, made.server_key)
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        return await told_of(f"https://127.0.0.1:{port}/v1/traces", caplog, ca_file=ca_file)


async def test_log_names_the_status_of_a_failing_collector(caplog: pytest.LogCaptureFixture) -> None:
    async with Collector(401) as collector:
        assert await told_of(f"{collector.url}/v1/traces", caplog) == "it answered with status 401"
        assert await told_of(f"{collector.url}/elsewhere/v1/traces", caplog) == "it answered with status 404"
