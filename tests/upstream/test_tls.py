"""A new TLS connection to an upstream resumes the session of the last one."""

import socket
import ssl
from pathlib import Path

import pytest
from certificates import Certificates
from functional.through import ask, get, listener_of, through

from gateway.testing.scripts import build_answer, serve
from gateway.upstream.tls import ResumingContext

ONCE = serve(build_answer(200, b"fine", [("Connection", "close")]))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_next_connection_resumes_the_tls_session(certificates: Certificates, version: ssl.TLSVersion) -> None:
    """The server counts it; the first one and a connection that ends with its answer are whole handshakes."""
    context = certificates.server_context()
    context.maximum_version = version
    upstream = {"tls": {"ca_file": str(certificates.ca)}}
    async with through(upstream=upstream, tls=context) as (gateway, fake):
        for n in range(3):
            assert (await ask(gateway, get())).status == 200
            assert context.session_stats()["hits"] == n
            for connection in fake.connections:
                connection.close()
        assert len(fake.connections) == 3


async def test_forgotten_tls_session_falls_back_to_a_full_handshake(certificates: Certificates) -> None:
    """As after its restart."""
    upstream = {"tls": {"ca_file": str(certificates.ca)}}
    async with through(upstream=upstream, tls=certificates.server_context()) as (gateway, fake):
        assert (await ask(gateway, get())).status == 200
        fake.connections[0].close()
        fake._ssl = other = certificates.server_context()
        assert (await ask(gateway, get())).status == 200
        assert other.session_stats()["hits"] == 0


def test_resuming_context_keeps_the_checks_of_a_default_context(certificates: Certificates) -> None:
    """Certificate and name; and an end without close_notify is an error."""
    ours, usual = ResumingContext(certificates.ca), ssl.create_default_context(cafile=str(certificates.ca))
    for name in ("verify_mode", "check_hostname", "verify_flags", "minimum_version", "maximum_version"):
        assert getattr(ours, name) == getattr(usual, name), name
    assert ours.cert_store_stats() == usual.cert_store_stats()
    assert ours.options == usual.options & ~ssl.OP_IGNORE_UNEXPECTED_EOF
    with pytest.raises(OSError):  # noqa: PT011 - the message is OpenSSL's
        ResumingContext(Path(__file__))


async def test_upstream_connection_enables_tcp_keepalive() -> None:
    """Its connections have keep-alive probes, so that no request waits for the time of a first byte."""
    async with through() as (gateway, _):
        await ask(gateway, get())
        (connection,) = listener_of(gateway).router.groups[0].members[0].pool.open
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
