"""Responses that continue each other cost the store what is said in them, whether or not their runs are on record."""

import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

import aiohttp
import pytest

from tests.support.gateway_process import GatewayProcess

from .effects import Json, settings
from .reading import RESPONSES

SAID = "Tell me about the weather in the hills of the north. " * 8
#: A request is as long as what it goes on from: ten times as many responses take about ten times as long.
TIMES_LONGER = 15
#: Between them lie pages that the first half has freed.
TIMES_LARGER = 1.5


def kept_bytes(folder: Path) -> int:
    """The pages of the store that are in use."""
    with closing(sqlite3.connect(folder / "gateway.db", timeout=60)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def asked(kind: str, number: int) -> Json:
    match kind:
        case "background":
            return {"input": SAID, "background": True, "stream": True}
        case "with a call":
            tools = [{"type": "mcp", "server_label": "gateway", "allowed_tools": ["ledger"]}]
            return {"input": f'tool ledger {{"run": "chain", "n": {number + 10}}} {SAID}', "tools": tools}
        case _:
            return {"input": SAID}


async def chained(folder: Path, kind: str, count: int) -> tuple[Sequence[float], Sequence[int]]:
    """The time of each of so many responses, in ms, and the size of the store after each tenth of them."""
    times_ms, sizes, before = [], [], None
    folder.mkdir()
    config = json.dumps(settings(folder))
    async with GatewayProcess(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
        for number in range(count):
            began_s = time.perf_counter()
            body = {"model": "demo", "previous_response_id": before, **asked(kind, number)}
            async with session.post(RESPONSES, json=body) as response:
                assert response.status == 200, await response.text()
                content = await response.read()
            times_ms.append(1e3 * (time.perf_counter() - began_s))
            before = content.partition(b'"id":"')[2].partition(b'"')[0].decode()
            if (number + 1) % (count // 10) == 0:
                sizes.append(kept_bytes(folder))
    return times_ms, sizes


@pytest.mark.parametrize("kind", ["background", "with a call"])
async def test_response_chain_grows_the_store_linearly(tmp_path: Path, kind: str) -> None:
    """Its second half is no larger than its first one, although each request contains all before it."""
    _, sizes = await chained(tmp_path / "chain", kind, 60)
    assert sizes[9] - sizes[4] <= TIMES_LARGER * (sizes[4] - sizes[0]) * 5 / 4


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["plain", "background", "with a call"])
async def test_chain_of_a_thousand_responses_stays_linear(tmp_path: Path, kind: str) -> None:
    """Linear in what is said: the store as a whole, and each request."""
    times_ms, sizes = await chained(tmp_path / "chain", kind, 1000)
    at_ms = {k: median(times_ms[max(k - 10, 1) : k]) for k in (10, 100, 1000)}
    told = ", ".join(f"request {k} takes {ms:.1f} ms" for k, ms in at_ms.items())
    each_bytes = (sizes[9] - sizes[0]) / 900
    print(
        f"\n1,000 responses in a chain, {kind}, {len(SAID)} characters asked in each: {told}; "
        f"{each_bytes / 1e3:.1f} KB in the store for each"
    )
    assert sizes[9] - sizes[4] <= TIMES_LARGER * (sizes[4] - sizes[0]) * 5 / 4
    assert at_ms[1000] <= TIMES_LONGER * at_ms[100]
