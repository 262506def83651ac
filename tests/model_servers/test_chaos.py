"""Streams with the habits of all rooms at once, split and cut anywhere: no text is lost, and no half of a call runs."""

import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.testing.local_gateway import LocalGateway
from tests.e2e.talking import NO_WORKFLOWS, desk, stages

from .chaos import ChaoticServer, Plan, faults, plans
from .clients import CLIENTS, Asked

#: Streams of one gateway.
AT_ONCE = 50
SOAKED = 20_000
#: Whether the client asks for a stream; each client does both.
STREAMED = (True, True, False, False)


async def play(chosen: Sequence[Plan], folder: Path) -> Counter[str]:
    """Play streams to clients. Return how often each outcome was; a fault names its stream."""
    outcomes: Counter[str] = Counter()
    server = ChaoticServer(chosen)
    app = web.Application(client_max_size=1 << 22)
    app.router.add_post("/v1/chat/completions", server.answer)
    async with TestServer(app) as listening:
        upstream = {"name": "up", "base_url": str(listening.make_url("/v1"))}
        common = {"upstreams": [upstream], "store": "sqlite:///:memory:", "chains": stages()}
        config = {**common, "workflows": NO_WORKFLOWS, "tools": desk(folder)}
        async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
            for number, (plan, client, is_stream) in enumerate(
                zip(chosen, itertools.cycle(CLIENTS), itertools.cycle(STREAMED))
            ):
                asked = Asked([], f"number {number}", has_tools=True, is_stream=is_stream)
                async with session.post(client.path, json=client.request(asked)) as response:
                    raw = await response.text()
                has_run = number in server.ran
                wrong = faults(plan, client, response.status, raw, is_stream=is_stream, has_run=has_run)
                assert not wrong, (
                    f"{wrong}\n{client.name}, {is_stream=}\n{plan}\n{plan.pieces}\n{response.status} {raw}"
                )
                outcomes["failed" if plan.must_fail else "whole"] += 1
                outcomes["ran"] += has_run
            assert "Traceback" not in gateway.get_log()
    return outcomes


@given(st.lists(plans(), min_size=AT_ONCE, max_size=AT_ONCE))
@settings(max_examples=4)
def test_mixed_server_streams_lose_no_text(chosen: list[Plan]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(chosen, Path(folder)))


@pytest.mark.soak
def test_twenty_thousand_mixed_server_streams_lose_no_text() -> None:
    """Prints how many were whole, failed as they must, and ran a tool."""
    outcomes: Counter[str] = Counter()

    @given(st.lists(plans(), min_size=AT_ONCE, max_size=AT_ONCE))
    @settings(max_examples=SOAKED // AT_ONCE, derandomize=False)
    def soak(chosen: list[Plan]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcomes.update(asyncio.run(play(chosen, Path(folder))))

    soak()
    assert outcomes["whole"] + outcomes["failed"] >= SOAKED
    print(f"{SOAKED} streams of mixed habits: {dict(outcomes)}")
