"""Runs that another request drives, as the answer of one more request."""

import asyncio
from collections.abc import Sequence

from gateways import until

from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.exchange import Chunk
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.runs.live_run import LiveRun
from gateway.runs.transcript import BEHIND_CHARS
from tests.agent.agent_bench import answer, texts

from .workers import HI, Opened, Worker, risky, whole


class Slow:
    """A client that takes nothing more until `may` is set."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.took: list[Chunk] = []

    def take(self, chunks: Sequence[Chunk]) -> bool:
        self.took += chunks
        return self.may.is_set()

    async def wait_until_caught_up(self) -> None:
        await self.may.wait()


async def decided(worker: Worker, request_id: str) -> LiveRun:
    (pending,) = await worker.pending_approvals()
    repeated = worker.request_key(HI, {"role": "user", "content": "approve it"}, request_id=request_id)
    return await worker.resumption.decide_and_continue([ChatDecision(True, (pending.id,), in_field=True)], repeated)


async def test_following_requests_ask_the_same_new_approval_question(opened: Opened) -> None:
    """A repetition of one of the requests is asked again."""
    worker = await opened(answer(risky(1)), answer(risky(2)))
    await worker.first()
    one, two = await decided(worker, "run_2"), await decided(worker, "run_3")
    assert "approve ap_" in texts(await whole(one)) and await whole(one) == await whole(two)
    assert (one.answer.asks, two.answer.asks) == ("run_1", "run_1")


async def test_slow_client_applies_backpressure_to_the_followed_run(opened: Opened) -> None:
    """Nothing piles up; once it reads, it gets all."""
    long = [*(letter * BEHIND_CHARS for letter in "uvwxy"), "z"]  # more than both answers let their readers be behind
    reads = asyncio.Event()

    async def look(asked: ToolCall) -> ToolResult:
        await reads.wait()
        return ToolResult(f"looked at {asked.arguments}")

    worker = await opened(answer(risky()), answer(*long), does=look)
    await worker.first()
    first, second = await decided(worker, "run_2"), await decided(worker, "run_3")
    slow = Slow()
    reading = asyncio.create_task(second.transcript.read(slow))
    reads.set()  # the task above takes its first step before what waits for this does
    await until(lambda: len(slow.took) > 0)
    assert not first.done
    slow.may.set()
    await reading
    assert texts(await whole(first)) == texts(await whole(second)) == "".join(long)
