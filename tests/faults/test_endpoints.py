"""Endpoints that fail: no storm, no double execution, a breaker with one probe, recovery, and nothing left behind."""

import asyncio
import random
import socket

import pytest
from functional.several import BODY, STORES, chat, several
from functional.through import ask, client_of, error_of, listener_of, post, sweeps
from gateways import until

from gateway.testing.raw_connection import PEER_LEFT, Peer
from gateway.testing.scripts import build_answer, build_ok_answer, serve

OFF = {"failures": 0}


async def resets(peer: Peer) -> None:
    await peer.read_request()
    peer.reset()


async def test_retries_to_a_failing_upstream_stay_within_their_budget() -> None:
    """However often they may be sent again (U6)."""
    async with (
        several(*[serve(build_answer(502))] * 3, breaker=OFF, retry={"tries": 3}) as up,
        client_of(up.gateway) as client,
    ):
        for _ in range(500):
            await client.send(chat())
            assert (await client.read_response()).status == 502
        assert 500 < sum(up.counts) <= 600
        assert up.group.tally.refused["budget"] > 0


async def test_breaker_opens_after_resets_until_a_probe_succeeds() -> None:
    """A reason and a time at once; another upstream is not touched; one probe for each interval (U7)."""
    well = False

    async def flaps(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            if not well:
                peer.reset()
                return
            await peer.send(build_ok_answer())

    async with several(flaps, breaker={"failures": 5, "open": "1h", "longest": "1h"}) as up:
        for _ in range(5):
            assert (await ask(up.gateway, chat())).status == 502
        for _ in range(20):
            response = await ask(up.gateway, chat())
            assert response.status == 503 and error_of(response)["code"] == "circuit_open"
            assert "failed too often" in error_of(response)["message"] and response.list_values(b"retry-after") == [
                b"3600"
            ]
        assert len(up.endpoints[0].connections) == 5
    async with several(flaps, breaker={"failures": 5, "open": "300ms"}, retry={"tries": 1}) as up:
        for _ in range(5):
            await ask(up.gateway, chat())
        await until(lambda: up.group.members[0].find_obstacle(up.group.clock()) is None)
        answers = await asyncio.gather(*(ask(up.gateway, chat()) for _ in range(10)))
        assert sorted(response.status for response in answers) == [502] + [503] * 9
        well = True
        await until(lambda: up.group.members[0].find_obstacle(up.group.clock()) is None)
        assert (await ask(up.gateway, chat())).status == 200
        assert (await ask(up.gateway, chat())).status == 200


async def test_slow_answer_is_awaited_without_a_retry() -> None:
    """Slow is not failed (U8)."""
    go_on = asyncio.Event()

    async def slow(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await go_on.wait()
            await peer.send(build_ok_answer())

    async with (
        several(slow, serve(build_ok_answer()), timeouts={"first_byte": "2m"}) as up,
        client_of(up.gateway) as client,
    ):
        await client.send(chat())
        await up.endpoints[0].wait_requests(1)
        listener = listener_of(up.gateway)
        swept = sweeps(listener)
        await until(lambda: sweeps(listener) > swept)
        go_on.set()
        assert (await client.read_response()).status == 200
        assert up.counts == [1, 0] and not up.group.tally.retries


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_dns_name_is_resolved_again_for_each_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connect asks for the address, so the next one after the correction is right (U11)."""
    looked_up, address = socket.getaddrinfo, "127.0.0.1"

    def answered(host: str, *rest: object, **more: object) -> object:
        return looked_up(address if host == "up.example" else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", answered)
    async with several(serve(build_answer(200, b"", [("Connection", "close")]))) as other:
        port = other.endpoints[0].port
        config = {"upstreams": [{"name": "up", "base_url": f"http://up.example:{port}", "breaker": {"open": "10ms"}}]}
        await other.gateway.reload({**config, "allowed_hosts": ["gw.example"]})
        assert (await ask(other.gateway, chat())).status == 200
        address = "127.0.0.2"
        assert {(await ask(other.gateway, chat())).status for _ in range(8)} == {502, 503}
        address = "127.0.0.1"
        await until(lambda: other.group.members[0].find_obstacle(other.group.clock()) is None)
        assert (await ask(other.gateway, chat())).status == 200


async def test_cancelled_clients_leave_no_queue_places_or_requests() -> None:
    """No place, no place in a queue, no request at an endpoint; with retries, hedges and a full queue (U14)."""
    rng = random.Random(14)

    async def random_endpoint(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            match rng.randrange(4):
                case 0:
                    peer.reset()
                    return
                case 1:
                    await peer.send(build_answer(503))
                case 2:
                    await asyncio.sleep(rng.random() / 50)
                    await peer.send(build_ok_answer())
                case 3:
                    await peer.wait_end(timeout_s=None)

    async def leaves(gateway_of: object, request: bytes) -> None:
        try:
            async with client_of(gateway_of) as client:  # type: ignore[arg-type]
                await client.send(request)
                await asyncio.sleep(rng.random() / 20)
        except PEER_LEFT:
            pass

    rules: dict[str, object] = {"hedge": "5ms", "queue": {"size": 20}, "breaker": {"open": "5ms"}}
    async with several(*[random_endpoint] * 3, each={"concurrent": 5}, **rules) as up:
        for _ in range(20):
            requests = [post(BODY, STORES) if rng.random() < 0.3 else chat() for _ in range(50)]
            await asyncio.gather(*(leaves(up.gateway, request) for request in requests))
        await until(lambda: up.inflight == [0, 0, 0] and up.group.queue_length == 0)
        for member in up.group.members:
            await until(lambda member=member: len(member.pool.open) == len(member.pool.idle))  # type: ignore[misc]
