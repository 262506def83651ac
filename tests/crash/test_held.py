"""Streams that are held for a person cost little, however many there are."""

import asyncio
import json
from pathlib import Path

import pytest
from faults.test_agents import cpu_s
from gateways import Stopwatch, Usage

from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, effects, settings
from .talk import Stream, post, session_with

pytestmark = pytest.mark.crash

HELD, BATCH = 1000, 100
#: What one run may take, and the keep-alives of all of them.
RUN_BYTES, CPU_SHARE = 100_000, 0.05
WATCHED_S = 30.0


async def test_thousand_held_streams_use_bounded_memory_and_cpu(tmp_path: Path) -> None:
    """At most 100 KB each and 5 % of a core for their keep-alives; then all are approved, and each has its answer."""
    config = settings(tmp_path, approvals={"inline_wait": "10m"})
    async with GatewayProcess(json.dumps(config)) as gateway, session_with(gateway, connections=0) as session:

        async def held(name: str, count: int) -> list[Stream]:
            texts = (f'tool ledger {{"run": "{name}-{i}", "n": {ASKS}}}' for i in range(count))
            streams = await asyncio.gather(*(Stream.ask(session, text) for text in texts))
            await asyncio.gather(*(stream.until_asked() for stream in streams))
            return list(streams)

        async def approved(streams: list[Stream]) -> list[str]:
            for i in range(0, len(streams), BATCH):
                listed = [{"id": stream.approval_id} for stream in streams[i : i + BATCH]]
                status, made = await post(
                    session, "/context/approvals/batch", {"decision": "approve", "approvals": listed}
                )
                assert status == 200 and {one["status"] for one in made["data"]} == {200}, made
            return await asyncio.gather(*(stream.rest() for stream in streams))

        await approved(await held("warm", BATCH))
        usage = Usage(gateway.pid)
        before_bytes, watch = usage.rss_bytes, Stopwatch()
        streams = await held("held", HELD)
        asked_s, run_bytes = watch.s, (usage.rss_bytes - before_bytes) / HELD
        began_s, watch = cpu_s(gateway.pid), Stopwatch()
        await asyncio.sleep(WATCHED_S)  # the time over which the cost of silence is measured
        share = (cpu_s(gateway.pid) - began_s) / watch.s
        assert len(effects(tmp_path)) == BATCH, "nobody has decided yet"
        watch = Stopwatch()
        answers = await approved(streams)
        print(
            f"\n{HELD} held runs, asked within {asked_s:.1f} s: {run_bytes / 1e3:.0f} KB each, "
            f"{share:.1%} of a core for keep-alives; all approved and answered within {watch.s:.1f} s"
        )
    assert all(f"wrote {ASKS}" in answer for answer in answers)
    runs = [effect.run for effect in effects(tmp_path) if effect.run.startswith("held")]
    assert len(runs) == len(set(runs)) == HELD
    assert run_bytes <= RUN_BYTES
    assert share <= CPU_SHARE
