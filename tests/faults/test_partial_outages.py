"""One endpoint fails for every request, and another one is well: clients notice next to nothing, in both lanes.

The failing one is taken out after some tries, however fast its errors are. What may happen twice, and what says that
nothing was done, goes to the other one. An answer that breaks off behind its head has gone to the client in
passthrough: only that is lost.
"""

import asyncio
import json
from itertools import product

import pytest
from functional.several import CHAT, several
from functional.through import client_of, post
from gateways import exchange

from gateway.testing.messages import Request
from gateway.testing.raw_connection import PEER_LEFT, Peer
from gateway.testing.scripts import (
    build_answer,
    build_event,
    build_event_stream_answer,
    build_head,
    build_ok_answer,
    serve,
)
from gateway.testing.upstream import Script

CLIENTS = 4
FAILURES = 5  # in a row, until a breaker opens
FAULTS = ("401", "403", "404", "408", "429", "500", "503", "cut", "hang")
BALANCES = ("weighted", "least_loaded", "sticky")
LANES = {"passthrough": CHAT, "context": b"/context/v1/chat/completions"}
WORD = {"choices": [{"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}]}
WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}


def well(request: Request) -> bytes:
    """The answer of a model, as a stream if it is asked for one."""
    if json.loads(request.payload).get("stream"):
        return build_event_stream_answer([build_event(json.dumps(WORD)), build_event("[DONE]")])
    return build_ok_answer(json.dumps(WHOLE).encode())


async def cut(peer: Peer) -> None:
    await peer.read_request(timeout_s=None)
    await peer.send(build_head(200, [("Content-Type", "text/event-stream"), ("Content-Length", "100")]) + b"data: ")


async def hang(peer: Peer) -> None:
    await peer.read_request(timeout_s=None)
    await peer.wait_end(timeout_s=None)


def failing(fault: str) -> Script:
    scripts: dict[str, Script] = {"cut": cut, "hang": hang}
    return scripts.get(fault) or serve(build_answer(int(fault), b'{"error": {"message": "no"}}'))


async def outage(fault: str, balance: str, lane: str, *, streamed: bool, count: int) -> tuple[int, int]:
    """How many of so many requests were answered well, and how many went to the endpoint that fails."""
    served, left = 0, count
    rules: dict[str, object] = {"balance": balance, "api_key": "sk-own"}
    if fault == "hang":
        rules["timeouts"] = {"connect": "1m", "first_byte": "1s"}

    async def client(number: int) -> None:
        nonlocal served, left
        while left > 0:
            async with client_of(up.gateway) as peer:
                while left > 0:
                    left -= 1
                    body = {"model": "m", "stream": streamed, "messages": [{"role": "user", "content": "Hi"}]}
                    conversation = b"X-Context-Conversation: c%d" % (number + left)
                    lines = [conversation, b"X-Context-Mode: passthrough"] if lane == "passthrough" else [conversation]
                    try:
                        response = await exchange(peer, post(json.dumps(body).encode(), LANES[lane], *lines))
                    except PEER_LEFT:
                        break
                    served += response.status == 200 and b"fine" in response.payload

    async with several(failing(fault), serve(well), **rules) as up:  # type: ignore[arg-type]
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        return served, up.counts[0]


def is_lost(fault: str, lane: str) -> bool:
    """Whether a request at the endpoint that fails is lost, because its client has the head of the answer."""
    return fault == "cut" and lane == "passthrough"


#: Each fault with each balance in one lane, and each fault in both lanes, streamed or not.
SOME = {
    *((fault, balance, "passthrough", False) for fault in FAULTS if fault != "hang" for balance in BALANCES),
    *((fault, "least_loaded", "context", True) for fault in FAULTS),
    *((fault, "weighted", "context", False) for fault in FAULTS),
    ("hang", "weighted", "passthrough", True),
}


@pytest.mark.parametrize(("fault", "balance", "lane", "streamed"), sorted(SOME))
async def test_failing_endpoint_is_removed_after_its_allowed_failures(
    fault: str, balance: str, lane: str, *, streamed: bool
) -> None:
    """After as many tries as its breaker allows, and those that were under way meanwhile."""
    served, tried = await outage(fault, balance, lane, streamed=streamed, count=60)
    assert tried <= FAILURES + CLIENTS
    assert served == 60 - (tried if is_lost(fault, lane) else 0)


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "balance", "lane", "streamed"), [*product(FAULTS, BALANCES, LANES, (False, True))])
async def test_partial_outage_fails_almost_no_client_requests(
    fault: str, balance: str, lane: str, *, streamed: bool
) -> None:
    """99 of 100 requests are answered well, and fewer than 2 of 100 tries go to the endpoint that fails."""
    served, tried = await outage(fault, balance, lane, streamed=streamed, count=600)
    print(f"\n{fault} {balance} {lane} {'streamed' if streamed else 'whole'}: {served} of 600, {tried} tries lost")
    assert tried < 12
    assert served >= 594 - (tried if is_lost(fault, lane) else 0)
