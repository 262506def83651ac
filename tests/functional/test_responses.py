"""What an upstream answers, or fails to: passed on as it is, or told as an error; never mixed with anything else."""

import pytest
from unanswered_ports import refusing_port, silent_port

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream

from .malformed import BAD_HEADS
from .through import FINE, HOSTS, ask, breathe, client_of, error_of, get, post, says, through


@pytest.mark.parametrize("raw", BAD_HEADS, ids=range(len(BAD_HEADS)))
async def test_ambiguous_upstream_answer_becomes_a_502(raw: bytes) -> None:
    """At once, nothing of it is passed on, its connection is not used again, and the client's goes on."""
    async with through(says(raw), FINE) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        response = await client.read_response(timeout_s=120)
        assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
        assert b"evil" not in response.raw and b"garbage" not in response.raw
        await client.send(get())
        assert (await client.read_response()).payload == b"fine"
        assert len(upstream.connections) == 2
        await upstream.wait_open(1)


@pytest.mark.parametrize("status", [204, 304, 205])
async def test_answers_without_a_body_leave_the_connections_usable(status: int) -> None:
    """With and without framing fields; the next answer is right."""
    heads = [build_head(status, [("Content-Length", "0")]), build_head(status, [("ETag", '"a"')])]
    if status == 205:
        heads = heads[:1]
    for raw in heads:
        script = serve(lambda r, raw=raw: raw if r.method == b"GET" else build_answer(200, b"next"))
        async with through(script) as (gateway, upstream), client_of(gateway) as client:
            for _ in range(3):
                await client.send(get() + post(b"{}"))
                response = await client.read_response()
                assert (response.status, response.raw_body) == (status, b"")
                assert (await client.read_response()).payload == b"next"
            assert len(upstream.connections) == 1


async def test_a_not_modified_answer_keeps_its_length() -> None:
    """304 with Content-Length says what 200 would have; it is never turned into 0."""
    raw = build_head(304, [("Content-Length", "1234"), ("ETag", '"x"')])
    async with through(serve(raw)) as (gateway, _):
        assert (await ask(gateway, get())).raw == raw


async def test_redirects_are_forwarded_and_not_followed() -> None:
    """307 to another host, 302 to itself: passed on, not followed."""
    for status, location in ((307, "http://127.0.0.1:1/x"), (302, "/v1/x"), (308, "//evil")):
        raw = build_answer(status, b"", [("Location", location)])
        async with through(serve(raw)) as (gateway, upstream):
            assert (await ask(gateway, post(b"abc"))).raw == raw
            assert len(upstream.requests) == 1


async def test_upstream_connection_closed_after_its_answer_is_replaced() -> None:
    """FIN while idle: the next request, of any method, gets a fresh connection and no error."""

    async def once(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())

    async with through(once) as (gateway, upstream), client_of(gateway) as client:
        for request in (get(), post(b"{}"), post(b"{}"), get(method=b"DELETE")):
            await client.send(request)
            assert (await client.read_response()).status == 200
            await upstream.wait_open(0)
            await breathe()
        assert len(upstream.connections) == 4


@pytest.mark.parametrize("lines", [[("Connection", "close")], [("connection", "Close, x")]])
async def test_upstream_connection_with_close_is_not_reused(lines: list[tuple[str, str]]) -> None:
    """Its client's connection goes on all the same."""
    async with through(says(build_answer(200, b"a", lines)), FINE) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        first = await client.read_response()
        assert (first.payload, first.list_values(b"connection")) == (b"a", [])
        await upstream.wait_open(0)
        await client.send(get())
        assert (await client.read_response()).payload == b"fine"


async def test_http_1_0_upstream_answer_is_forwarded_as_http_1_1() -> None:
    """HTTP/1.0 with and without a length: the client gets HTTP/1.1; no connection is kept, unless both say so."""
    old = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    async with through(says(old), says(old.replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"))) as (
        gateway,
        upstream,
    ):
        for _ in range(2):
            response = await ask(gateway, get())
            assert response.raw == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        assert len(upstream.connections) == 2
    async with through(says(b"HTTP/1.0 200 OK\r\n\r\nhi", holds=False)) as (gateway, _), client_of(gateway) as client:
        await client.send(get())
        assert await client.read_rest() == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi"


def at(url: str) -> dict[str, object]:
    entry = {"name": "up", "base_url": url, "timeouts": {"connect": "0.3s"}}
    return {"upstreams": [entry], "allowed_hosts": HOSTS}


async def unreachable(url: str) -> list[tuple[int, str]]:
    """Status and code of two answers on one connection, with the upstream at `url`; none may tell where that is."""
    told = []
    async with LocalGateway(at(url)) as gateway, client_of(gateway) as client:
        for request in (get(), post(b"{}")):
            await client.send(request)
            response = await client.read_response()
            error = error_of(response)
            assert "'up'" in error["message"]
            assert "127.0.0.1" not in error["message"] and "invalid" not in error["message"]
            assert response.status == 504 or "no-such-host" not in url or "name cannot be resolved" in error["message"]
            told.append((response.status, error["code"]))
    return told


async def test_refusing_upstream_becomes_a_502() -> None:
    """And the client's connection goes on."""
    with refusing_port() as port:
        assert await unreachable(f"http://127.0.0.1:{port}") == [(502, "upstream_error")] * 2


async def test_unaccepting_upstream_becomes_a_504() -> None:
    """Within the connect timeout: a connect to a black hole is not waited for."""
    with silent_port() as port:
        assert await unreachable(f"http://127.0.0.1:{port}") == [(504, "upstream_timeout")] * 2


async def test_an_upstream_without_an_address_is_a_502() -> None:
    """Or a 504 where the resolver itself does not answer."""
    for status, code in await unreachable("http://no-such-host.invalid"):
        assert (status, code) in ((502, "upstream_error"), (504, "upstream_timeout"))


async def test_invalid_upstream_host_name_is_an_error() -> None:
    """Refused by the configuration, or told to the client: never a request without an answer."""
    for name in ("a" * 64 + ".invalid", "a..invalid", "-.invalid"):
        try:
            told = await unreachable(f"http://{name}")
        except ValueError:
            continue
        assert all(status in (502, 504) for status, _ in told)


async def test_recovered_upstream_is_used_again() -> None:
    """Nothing remembers that it was gone."""
    async with through() as (gateway, upstream):
        with refusing_port() as port:
            await gateway.reload(at(f"http://127.0.0.1:{port}"))
            assert (await ask(gateway, get())).status == 502
        async with FakeUpstream(FINE, port=port):
            assert (await ask(gateway, get())).payload == b"fine"
        assert not upstream.connections


async def test_an_upstream_on_ipv6_is_reached() -> None:
    """With its brackets in Host."""
    async with through(host="::1") as (gateway, upstream):
        assert (await ask(gateway, get())).status == 200
        assert upstream.requests[0].list_values(b"host") == [b"[::1]:%d" % upstream.port]


async def test_http_1_0_client_gets_a_chunked_answer_unchunked() -> None:
    """HTTP/1.0: the payload, no Transfer-Encoding, and the end of the connection as its end."""
    raw = (
        build_head(200, [("A", "1"), ("Transfer-Encoding", "chunked"), ("B", "2")])
        + b"5;x=y\r\nhello\r\n06\r\n world\r\n0\r\nT: 1\r\n\r\n"
    )
    for parts in ((raw,), [bytes((byte,)) for byte in raw]):
        async with through(says(*parts)) as (gateway, _), client_of(gateway) as client:
            await client.send(get(version=b"1.0"))
            assert (
                await client.read_rest() == b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nConnection: close\r\n\r\nhello world"
            )


@pytest.mark.parametrize("request_", [get(), post(b"{}", method=b"PUT"), post(b"{}")], ids=["get", "put", "post"])
async def test_upstream_that_closes_after_each_answer_causes_no_errors(request_: bytes) -> None:
    """Without saying so, hundreds of times: with its FIN at once, or, where that is safe, in the next request."""
    safe = not request_.startswith(b"POST")

    async def once(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_ok_answer())
        await breathe(len(upstream.connections) % 5 if safe else 0)

    async with through(once) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(200):
            await client.send(request_)
            assert (await client.read_response()).status == 200
        assert len(upstream.requests) == 200


@pytest.mark.parametrize("key", ["ollama", "json", "1", "HTTP"])
async def test_error_answer_containing_the_key_is_forwarded_unchanged(key: str) -> None:
    """A key that is a word stands in heads and bodies by itself: nothing of them is overwritten."""
    raw = build_answer(
        404, b'{"error":"model ollama 1 not found"}', [("Server", "ollama"), ("Content-Type", "application/json")]
    )
    async with through(serve(raw), upstream={"api_key": key}) as (gateway, _):
        assert (await ask(gateway, get())).raw == raw


@pytest.mark.parametrize("chunked", [False, True])
async def test_upstream_key_is_masked_only_in_error_bodies(chunked: bool) -> None:
    """An upstream that repeats what it refuses does not give our key away; its head stays as it came."""
    key = "sk-proj-0123456789abcdefghij"
    raw = build_answer(401, f"bad key {key}".encode(), [("WWW-Authenticate", "Bearer")], chunked=chunked)
    async with through(serve(raw), upstream={"api_key": key}) as (gateway, _):
        assert (await ask(gateway, get())).raw == raw.replace(key.encode(), b"*" * len(key))


@pytest.mark.parametrize(("status", "length", "kept"), [(204, "0", True), (204, "5", False), (304, "0", True)])
async def test_bodiless_response_keeps_only_a_zero_content_length(status: int, length: str, kept: bool) -> None:
    """0 has one reading and goes on as it came; any other would make a client wait for a body."""
    raw = build_answer(status, b"", [("Content-Length", length), ("X", "y")])
    async with through(serve(raw)) as (gateway, _):
        response = await ask(gateway, get())
    assert response.raw == (raw if kept else raw.replace(b"Content-Length: 5\r\n", b""))
