"""One call, run: whatever the tool does becomes a result, and is counted."""

import asyncio
import re

import pytest
from agent.doubles import Clock, Endless, samples

from gateway.contracts.calls import CallOutcome
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.tools.catalog import CatalogEntry
from gateway.tools.results import READ_RESULT, Results
from gateway.tools.runner import Runner

from .doubles import Does, Source, call, exchange, spec


class Bench:
    """A runner, with the tool `look` that does what the test says."""

    def __init__(self, does: Does) -> None:
        self.clock, self.counters = ManualClock(), ContextCounters()
        self.source = Source(spec(), does=does)
        self.runner = Runner(Results(), counters=self.counters, clock=Clock(self.clock))

    async def run(self, *, limit_chars: int = 1000) -> CallOutcome:
        entry = CatalogEntry(self.source.specs[0], self.source, "look")
        return await self.runner.run(entry, call(path="x"), exchange(), limit_chars=limit_chars)

    def outcomes(self) -> dict[str, float]:
        found = samples(self.counters).items()
        return {labels[1]: value for (name, labels), value in found if name == "gateway_tool_calls_total"}


def says(content: str, *, ok: bool = True) -> Does:
    async def does(_call: ToolCall) -> ToolResult:
        return ToolResult(content, ok=ok)

    return does


async def test_tool_result_is_shown_without_control_characters() -> None:
    """The tool gets the call as it was judged; what it says comes back without control characters."""
    bench = Bench(says("a\x00b\r\n"))
    assert await bench.run() == CallOutcome("ab\n", "ab\n")
    assert bench.source.calls == [call(path="x")]
    assert bench.outcomes() == {"ok": 1}


async def test_failed_tool_result_is_shown_as_an_error() -> None:
    """The model reads it and goes on."""
    bench = Bench(says("No such file.", ok=False))
    assert (await bench.run()).shown == "Error: No such file."
    assert bench.outcomes() == {"failed": 1}


async def test_tool_exception_is_logged_and_hidden_from_the_model(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, the model does not learn it: it may be anything."""

    async def breaks(_call: ToolCall) -> ToolResult:
        raise OSError("password=hunter2")

    bench = Bench(breaks)
    outcome = await bench.run()
    assert outcome.shown == "Error: The tool 'look' failed; the gateway's log says why."
    assert "hunter2" in caplog.text and "run_1" in caplog.text
    assert bench.outcomes() == {"failed": 1}


async def test_a_long_result_is_shortened_for_the_model_and_kept_whole() -> None:
    """An answer that ends the turn is the whole of it."""
    bench = Bench(says("x" * 5000))
    outcome = await bench.run(limit_chars=300)
    assert outcome.whole == "x" * 5000
    assert len(outcome.shown) < 400 and "characters omitted" in outcome.shown


async def test_a_cancelled_call_is_cancelled_in_its_tool() -> None:
    """And counted as that."""
    waits = Endless()
    bench = Bench(waits)
    running = asyncio.create_task(bench.run())
    await waits.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert waits.ended.is_set()
    assert bench.outcomes() == {"cancelled": 1}


async def test_the_time_of_a_call_is_observed() -> None:
    """By tool, whatever came of it."""
    bench = Bench(says(""))

    async def slow(_call: ToolCall) -> ToolResult:
        bench.clock.advance(0.5)
        raise OSError

    bench.source.does = slow
    await bench.run()
    assert samples(bench.counters)["gateway_tool_duration_seconds_sum", ("look",)] == 0.5


async def test_reading_an_untrusted_result_taints_like_its_tool() -> None:
    """However often a part of it is too long itself; the results of other tools do not."""
    results = Results()
    runner = Runner(results, counters=ContextCounters(), clock=Clock(ManualClock()))
    reader = CatalogEntry((await results.list_tools())[0], results, READ_RESULT)

    async def kept(entry: CatalogEntry, asked: ToolCall) -> tuple[bool, ToolCall]:
        """Whether the call taints, and the call that reads on."""
        outcome = await runner.run(entry, asked, exchange(), limit_chars=300)
        found = re.search(r"id (res_[0-9a-f]{16})", outcome.shown)
        assert found is not None
        return runner.taints(entry, asked, exchange()), call(READ_RESULT, id=found[1])

    for untrusted in (True, False):
        source = Source(spec(untrusted=untrusted), does=says("x" * 5000))
        tainted, reading = await kept(CatalogEntry(source.specs[0], source, "look"), call())
        for _ in range(3):
            assert tainted is untrusted
            tainted, reading = await kept(reader, reading)
    assert runner.taints(reader, call(READ_RESULT, id=[]), exchange()) is False
