"""Upstreams behind TLS: who they are is checked, and a cut stays visible."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from certificates import Certificates, self_signed
from measuring import LoopTime

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_chunk, build_head, build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream, Script

from .through import HOSTS, ask, breathe, client_of, error_of, get, post, through

CHUNKED = build_head(200, [("Transfer-Encoding", "chunked")])


def trusting(certificates: Certificates, **more: object) -> dict[str, object]:
    return {"tls": {"ca_file": str(certificates.ca), **more}}


async def test_upstream_tls_accepts_certificate_of_configured_ca(certificates: Certificates) -> None:
    """Many requests over one connection, which speaks HTTP/1.1 by ALPN; the scheme does not show in Host."""
    context = certificates.server_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with (
        through(upstream=trusting(certificates), tls=context) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        for i in range(50):
            await client.send(post(b"x" * i * 400))
            assert (await client.read_response()).raw == build_ok_answer()
        (peer,) = upstream.connections
        assert peer.tls is not None and peer.tls.selected_alpn_protocol() == "http/1.1"
        assert upstream.requests[0].list_values(b"host") == [b"127.0.0.1:%d" % upstream.port]


async def test_an_unknown_ca_is_a_502(certificates: Certificates) -> None:
    """Nothing is sent to a stranger, the cause is told without paths."""
    async with through(tls=certificates.server_context()) as (gateway, upstream):
        response = await ask(gateway, post(b"secret", b"/v1/x", b"Authorization: Bearer sk"))
        error = error_of(response)
        assert (response.status, error["code"]) == (502, "upstream_error")
        assert "certificate" in error["message"] and "/" not in error["message"].split("(request id")[0]
        assert all(peer.n_received == 0 for peer in upstream.connections)


async def test_upstream_certificate_with_wrong_name_returns_502(tmp_path: Path) -> None:
    """A certificate of the right CA for somebody else; `server_name` says whom to expect."""
    other = await asyncio.to_thread(self_signed, tmp_path, dns_names=("models.example",), addresses=("127.9.9.9",))
    async with through(upstream=trusting(other), tls=other.server_context()) as (gateway, _):
        response = await ask(gateway, get())
        assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
    named = trusting(other, server_name="models.example")
    async with through(upstream=named, tls=other.server_context()) as (gateway, upstream):
        assert (await ask(gateway, get())).status == 200
        assert upstream.requests[0].list_values(b"host") == [b"127.0.0.1:%d" % upstream.port]


async def test_verification_can_be_switched_off(certificates: Certificates) -> None:
    """By the operator, for one upstream."""
    async with through(upstream={"tls": {"verify": False}}, tls=certificates.server_context()) as (gateway, _):
        assert (await ask(gateway, get())).status == 200


async def test_gateway_presents_its_client_certificate_to_upstream(certificates: Certificates) -> None:
    """Where the upstream asks for one; without it that upstream cannot be used."""
    ours = {"cert_file": str(certificates.client_cert), "key_file": str(certificates.client_key)}
    context = certificates.server_context(require_client=True)
    async with through(upstream=trusting(certificates, **ours), tls=context) as (gateway, upstream):
        assert (await ask(gateway, get())).status == 200
        (peer,) = upstream.connections
        assert peer.tls is not None and peer.tls.getpeercert()
    async with through(upstream=trusting(certificates), tls=context) as (gateway, upstream):
        response = await ask(gateway, get())
        assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
        assert not upstream.requests


async def test_plain_text_on_a_tls_port_is_a_502(certificates: Certificates) -> None:
    """And silence there a 504 within the connect timeout, which includes the handshake."""

    async def plain(peer: Peer) -> None:
        await peer.read_some()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.wait_end()

    async def silent(peer: Peer) -> None:
        await peer.wait_end()

    for script, status in ((plain, 502), (silent, 504)):
        async with FakeUpstream(script) as upstream:
            entry = {"name": "up", "base_url": f"https://127.0.0.1:{upstream.port}", "timeouts": {"connect": "2s"}}
            async with LocalGateway({"upstreams": [entry], "allowed_hosts": HOSTS}) as gateway:
                assert (await ask(gateway, get())).status == status
                await upstream.wait_open(0)


async def test_tls_on_a_plain_port_is_a_502(certificates: Certificates) -> None:
    """The upstream speaks TLS, the configuration does not."""
    async with FakeUpstream(ssl=certificates.server_context()) as upstream:
        config = {"upstreams": [{"name": "up", "base_url": f"http://127.0.0.1:{upstream.port}"}]}
        async with LocalGateway({**config, "allowed_hosts": HOSTS}) as gateway:
            assert (await ask(gateway, get())).status == 502


def ends(raw: bytes, how: str) -> Script:
    """`cut`: FIN without a close_notify; `close`: with one; `reset`: RST."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)
        await breathe()
        getattr(peer, how)()

    return script


@pytest.mark.parametrize("how", ["cut", "close", "reset"])
@pytest.mark.parametrize(
    "raw",
    [build_head(200, [("Content-Length", "9")]) + b"1234", CHUNKED + build_chunk(b"abc"), CHUNKED + b"5\r\nab"],
    ids=["length", "between chunks", "in a chunk"],
)
async def test_truncated_tls_answer_stays_visibly_incomplete(certificates: Certificates, raw: bytes, how: str) -> None:
    """However the connection ended: less than was announced arrives, no last chunk."""
    script = ends(raw, how)
    context = certificates.server_context()
    async with (
        through(script, upstream=trusting(certificates), tls=context) as (gateway, _),
        client_of(gateway) as client,
    ):
        await client.send(post(b"{}"))
        assert await client.wait_end() in ("eof", "reset")
        assert raw.startswith(bytes(client.received)) and client.received.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_tls_truncation_attack_resets_the_client(certificates: Certificates, how: str) -> None:
    """Close-delimited over TLS: an end without close_notify is not the end of the answer, so the client is reset."""
    script = ends(build_head(200) + b"data: 1\n\n", how)
    context = certificates.server_context()
    async with (
        through(script, upstream=trusting(certificates), tls=context) as (gateway, _),
        client_of(gateway) as client,
    ):
        await client.send(post(b"{}"))
        assert await client.wait_end() == "reset"


async def test_a_close_notify_ends_an_answer_cleanly(certificates: Certificates) -> None:
    """The regular end of a close-delimited answer: all of it, and FIN."""
    payload = bytes(range(256)) * 2000
    script = ends(build_head(200) + payload, "close")
    context = certificates.server_context()
    async with (
        through(script, upstream=trusting(certificates), tls=context) as (gateway, _),
        client_of(gateway) as client,
    ):
        await client.send(get())
        await client.read_head()
        assert await client.read_rest() == payload


@pytest.mark.parametrize("how", ["cut", "close", "reset"])
async def test_tls_connection_closed_before_the_answer_returns_502(certificates: Certificates, how: str) -> None:
    """And with the next connection all is well."""
    scripts = ends(b"", how), ends(b"HTTP/1.1 200", how), serve(build_ok_answer())
    async with through(*scripts, upstream=trusting(certificates), tls=certificates.server_context()) as (gateway, _):
        assert [(await ask(gateway, post(b"{}"))).status for _ in range(3)] == [502, 502, 200]


async def test_an_idle_tls_connection_that_ended_is_replaced(certificates: Certificates) -> None:
    """With and without close_notify, for any method."""
    for how in ("cut", "close", "reset"):
        script = ends(build_ok_answer(), how)
        async with through(script, upstream=trusting(certificates), tls=certificates.server_context()) as (
            gateway,
            upstream,
        ):
            for request in (get(), post(b"{}"), post(b"{}")):
                assert (await ask(gateway, request)).status == 200
                await upstream.wait_open(0)
                await breathe(10)
            assert len(upstream.connections) == 3


async def test_unsolicited_bytes_on_idle_tls_connection_are_discarded(certificates: Certificates) -> None:
    """It is closed, and the next request has its own answer."""
    go = asyncio.Event()

    async def poisoned(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(200, b"first"))
        await go.wait()
        await peer.send(build_answer(200, b"stray"))
        await peer.wait_end()

    scripts = poisoned, serve(build_answer(200, b"fine"))
    async with through(*scripts, upstream=trusting(certificates), tls=certificates.server_context()) as (
        gateway,
        upstream,
    ):
        assert (await ask(gateway, get())).payload == b"first"
        go.set()
        await upstream.wait_open(0)
        assert (await ask(gateway, post(b"{}"))).payload == b"fine"


async def test_large_bodies_go_through_tls_both_ways(certificates: Certificates) -> None:
    """8 MB up and down at the pace of a slow reader; the connections are usable afterwards."""
    body = hashlib.shake_256(b"seed").digest(8_000_000)

    async def echo(peer: Peer) -> None:
        while True:
            request = await peer.read_request(timeout_s=None)
            await peer.send(build_answer(200, request.payload), timeout_s=None)

    async with through(echo, upstream=trusting(certificates), tls=certificates.server_context()) as (gateway, upstream):
        async with client_of(gateway, rcvbuf=16384) as client:
            for _ in range(2):
                sending = asyncio.create_task(client.send(post(body)))
                response = await client.read_response(timeout_s=120)
                await sending
                assert response.payload == body
        assert len(upstream.connections) == 1


async def test_a_client_that_leaves_ends_the_tls_connection(certificates: Certificates) -> None:
    """At once, while its answer is awaited and while it flows."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED + build_chunk(b"abc"))
        await peer.wait_end()

    async with through(script, upstream=trusting(certificates), tls=certificates.server_context()) as (
        gateway,
        upstream,
    ):
        client = await client_of(gateway)
        await client.send(get())
        await client.read_head()
        left = LoopTime()
        client.close()
        await upstream.wait_open(0)
        left.within(0.5)
