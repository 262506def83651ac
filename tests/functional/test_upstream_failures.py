"""Exchanges with an upstream that fail are logged as the gateway comes: nobody has to switch anything on."""

import asyncio
import json
from collections.abc import Mapping

import pytest
from gateways import until
from host_names import host_names
from unanswered_ports import refusing_port, silent_port

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, serve
from gateway.testing.upstream import FakeUpstream, Script

from .through import HOSTS, ask, error_of, get, post, through

CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Say hello"}]}).encode()
#: What a model answers.
HELLO = json.dumps({"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()
#: How each lane is asked.
LANES = {"passthrough": post(CHAT), "context": post(CHAT, b"/context/v1/chat/completions")}


def warnings(caplog: pytest.LogCaptureFixture) -> list[Mapping[str, object]]:
    return [vars(record)["facts"] for record in caplog.records if record.getMessage() == "upstream failed"]


def to(port: int, *, scheme: str = "http", **upstream: object) -> Mapping[str, object]:
    url = f"{scheme}://127.0.0.1:{port}"
    return {"upstreams": [{"name": "up", "base_url": url, **upstream}], "allowed_hosts": HOSTS}


@pytest.mark.parametrize("lane", LANES)
async def test_a_refused_connection_is_logged_with_its_address(lane: str, caplog: pytest.LogCaptureFixture) -> None:
    """Upstream, host and port, cause, and the id that the client was told; a hundred of them are two lines."""
    with refusing_port() as port:
        async with LocalGateway(to(port)) as gateway:
            response = await ask(gateway, LANES[lane])
            assert response.status == 502
            for _ in range(99):
                await ask(gateway, LANES[lane])
            (line,) = warnings(caplog)
            assert (line["upstream"], line["address"]) == ("up", f"127.0.0.1:{port}")
            assert "Connection refused" in str(line["cause"])
            assert str(line["request_id"]) in error_of(response)["message"]
        *_, last = warnings(caplog)
        assert len(warnings(caplog)) == 2 and last["more"] == 99


async def speaks_plainly(peer: Peer) -> None:
    await peer.read_some()
    await peer.send(build_answer(400, b"speak HTTP"))
    peer.close()


async def writes_no_http(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")
    await peer.wait_end(timeout_s=None)


@pytest.mark.parametrize("lane", LANES)
async def test_tls_to_a_plain_port_reports_the_wrong_scheme(lane: str, caplog: pytest.LogCaptureFixture) -> None:
    """OpenSSL's own words (WRONG_VERSION_NUMBER) tell nobody that the scheme is wrong."""
    async with through(speaks_plainly) as (_, upstream), LocalGateway(to(upstream.port, scheme="https")) as gateway:
        message = error_of(await ask(gateway, LANES[lane]))["message"]
        assert "it does not speak TLS" in message and "http://" in message
        assert "it does not speak TLS" in str(warnings(caplog)[0]["cause"])


async def falls_silent(peer: Peer) -> None:
    await peer.wait_end(timeout_s=None)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (serve(build_answer(503, b"busy")), "answered 503"),
        (writes_no_http, "failed"),
        (falls_silent, "did not answer within"),
    ],
)
async def test_other_upstream_failures_are_logged(
    lane: str, script: Script, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own errors, answers that are no HTTP, silence."""
    async with through(script, upstream={"timeouts": {"first_byte": "100ms"}}) as (gateway, _):
        await ask(gateway, LANES[lane])
        (line,) = warnings(caplog)
        assert cause in str(line["cause"])


async def test_truncated_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The client had the head already, and sees the cut by itself."""
    cut = build_head(200, [("Content-Length", "100")]) + b"beginning"

    async def breaks_off(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(cut)
        peer.close()

    async with through(breaks_off) as (gateway, _):
        with pytest.raises(EOFError):
            await ask(gateway, get())
        assert "in the middle of an answer" in str(warnings(caplog)[0]["cause"])


async def test_upstream_404_and_client_errors_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither an upstream's 404 nor a client's bad request is a failure of the upstream."""
    async with through(serve(build_answer(404, b"no such model"))) as (gateway, _):
        assert (await ask(gateway, LANES["passthrough"])).status == 404
        await ask(gateway, LANES["context"])
        await ask(gateway, post(b"{", b"/context/v1/chat/completions"))
        assert warnings(caplog) == []


@pytest.mark.parametrize("lane", LANES)
async def test_a_silent_name_server_stops_no_other_upstream(lane: str) -> None:
    """Nor does an address that is silent. More requests wait for the name than the event loop has threads."""
    async with FakeUpstream(serve(build_answer(200, HELLO, [("Content-Type", "application/json")]))) as upstream:
        port = upstream.port
        names = {"silent.example": None, "up.example": ["127.0.0.2", "127.0.0.1"]}
        config = {
            "upstreams": [
                {"name": "up", "base_url": f"http://up.example:{port}", "quirks": ["no_stream"]},
                {"name": "silent", "base_url": f"http://silent.example:{port}", "paths": ["/silent/v1/"]},
            ],
            "allowed_hosts": HOSTS,
        }
        with silent_port("127.0.0.2", port), host_names(names) as found:
            async with LocalGateway(config) as gateway:
                waits = [
                    asyncio.create_task(ask(gateway, post(CHAT, b"/silent/v1/chat/completions"))) for _ in range(40)
                ]
                await until(lambda: bool(found.asked["silent.example"]))
                assert (await ask(gateway, LANES[lane])).status == 200
                found.go_on.set()
                for wait in waits:
                    assert "its name cannot be resolved" in error_of(await wait)["message"]
