"""One call: its time, its end, and what the model reads of it."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.contracts.exchange import CallProgress
from gateway.contracts.storage.store import Json
from gateway.mcp.calls import AnsweredError, LostError, NotRunError, ServerCalls, ServerConnection, Told
from gateway.mcp.metrics import OperationMetrics
from gateway.mcp.server_facts import Config
from tests.mcp.mcp_host import Clock, Counters

DONE: Json = {"content": [{"type": "text", "text": "done"}]}


class Wire:
    """`calls.Line`: answers with what `answer` does; a coroutine function that may tell progress."""

    def __init__(self, answer: Callable[[Told], Any]) -> None:
        self.closed_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls: list[tuple[str, Json]] = []
        self.began, self.cancelled = asyncio.Event(), asyncio.Event()
        self._answer = answer

    async def call(self, tool: str, arguments: Json, *, progressed: Told, meta: Mapping[str, str]) -> Json:
        self.calls.append((tool, arguments))
        self.began.set()
        try:
            answer: Json = await self._answer(progressed)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return answer

    async def ping(self) -> None:
        """It lives."""

    def end(self) -> None:
        raise AssertionError("it lives")


async def at_once(_: Told) -> Json:
    return DONE


async def never(_: Callable[[str], None]) -> Json:
    return await asyncio.get_running_loop().create_future()


async def lost(_: Callable[[str], None]) -> Json:
    raise LostError


async def not_run(_: Callable[[str], None]) -> Json:
    raise NotRunError


class Box:
    """Calls over a line, and over the next ones once that is lost."""

    def __init__(self, *lines: ServerConnection, **facts: Any) -> None:
        self.counters = Counters()
        self._lines = list(lines)
        server = Config(name="box", command="box", **facts)
        meter = OperationMetrics(server, counters=self.counters, clock=Clock())
        self.calls = ServerCalls(
            server, line=lambda: next(iter(self._lines), None), next_line=self._next, lost=self._lost, meter=meter
        )

    def _lost(self, reason: str) -> None:
        raise AssertionError(reason)

    async def _next(self) -> ServerConnection:
        del self._lines[0]
        if not self._lines:
            await asyncio.get_running_loop().create_future()
        return self._lines[0]

    async def said(self, *, stands: Callable[[], bool] = lambda: True) -> str:
        result = await self.calls.call("dig", {"deep": True}, stands=stands)
        assert result.ok == (result.content == "done")
        return result.content

    @property
    def errors(self) -> list[str]:
        return self.counters.errors("tools/call")


async def test_call_returns_the_answer_of_the_tool() -> None:
    """The service is asked for the tool by its own name."""
    wire = Wire(at_once)
    box = Box(wire)
    assert await box.said() == "done"
    assert (wire.calls, box.errors) == ([("dig", {"deep": True})], [""])


async def test_tool_error_is_returned_as_a_failed_result() -> None:
    """Its text is the result."""

    async def fails(_: Callable[[str], None]) -> Json:
        return {**DONE, "isError": True}

    box = Box(Wire(fails))
    result = await box.calls.call("dig", {})
    assert (result.ok, result.content, box.errors) == (False, "done", ["tool_error"])


async def test_timeout_message_names_tool_service_and_time() -> None:
    """Tool and service by name, the configured time; what is under way is cancelled, and nobody waits for that."""
    wire = Wire(never)
    box = Box(wire, timeout=0.04)
    assert await box.said() == (
        "the tool 'dig' of the service 'box' did not answer within 0.04 s and was stopped. "
        "Whether it had an effect is not known: say so, and call it again only if its user wants that."
    )
    await asyncio.wait_for(wire.cancelled.wait(), 120)
    assert (len(wire.calls), box.errors) == (1, ["timeout"])


async def test_progress_extends_the_timeout() -> None:
    """Longer than the timeout is not too long as long as something happens."""

    async def works(progressed: Told) -> Json:
        for _ in range(6):
            await asyncio.sleep(0.25)
            progressed(CallProgress("on its way"))
        return DONE

    assert await Box(Wire(works), timeout=1).said() == "done"


async def test_progress_notifications_reach_the_waiting_caller() -> None:
    """Each, as the server wrote it."""
    told: list[CallProgress] = []

    async def works(progressed: Told) -> Json:
        progressed(CallProgress("half", 1.0, 2.0))
        progressed(CallProgress("all", 2.0, 2.0))
        return DONE

    await Box(Wire(works)).calls.call("dig", {}, told=told.append)
    assert told == [CallProgress("half", 1.0, 2.0), CallProgress("all", 2.0, 2.0)]


async def test_endless_progress_ends_at_the_maximum_timeout() -> None:
    """M5: each word of progress is heard, and none of them counts after that."""

    async def works(progressed: Told) -> Json:
        while True:
            await asyncio.sleep(0.01)
            progressed(CallProgress("on its way"))

    began = time.monotonic()
    text = await Box(Wire(works), timeout=0.5, max_timeout=1).said()
    assert "did not answer within 1 s" in text and time.monotonic() - began >= 0.99


async def test_not_running_message_is_returned_at_once() -> None:
    """Nothing is waited for."""
    box = Box()
    assert await box.said() == "the service 'box' is not running just now. Say so, and go on without it."
    assert box.errors == ["not_running"]


async def test_crash_message_reports_an_unknown_outcome() -> None:
    """M3: nobody knows what the tool did, and nobody does it again."""
    first, second = Wire(lost), Wire(at_once)
    box = Box(first, second)
    assert "the service 'box' ended while it ran the tool 'dig'; whether it had an effect is not known." in (
        await box.said()
    )
    assert (len(first.calls), len(second.calls), box.errors) == (1, 0, ["connection_lost"])


async def test_closed_connection_ends_its_calls() -> None:
    """Whether or not the call itself hears of it."""
    wire = Wire(never)
    box = Box(wire)
    call = asyncio.create_task(box.said())
    await wire.began.wait()
    wire.closed_future.set_result(None)
    assert "ended while it ran" in await call


async def test_answer_received_just_before_the_close_counts() -> None:
    """What was read before the end was read is an answer."""

    async def late(_: Callable[[str], None]) -> Json:
        wire.closed_future.set_result(None)
        await asyncio.sleep(0.01)
        return DONE

    wire = Wire(late)
    assert await Box(wire).said() == "done"


async def test_idempotent_call_is_retried_once() -> None:
    """On the next connection; a second loss is the last."""
    second = Wire(at_once)
    assert await Box(Wire(lost), second, idempotent=frozenset({"dig"})).said() == "done"
    assert len(second.calls) == 1
    assert "ended while" in await Box(Wire(lost), Wire(lost), Wire(at_once), idempotent=frozenset({"dig"})).said()


async def test_call_that_never_ran_is_sent_over_the_next_connection() -> None:
    """Of any tool, once; an idempotent one may have been lost before. Else the service does not run."""
    second = Wire(at_once)
    assert await Box(Wire(not_run), second).said() == "done" and len(second.calls) == 1
    box = Box(Wire(not_run), Wire(not_run), Wire(at_once))
    assert "is not running just now" in await box.said() and box.errors == ["not_running"]
    assert "is not running just now" in await Box(Wire(not_run), timeout=0.1).said()
    assert "ended while" in await Box(Wire(not_run), Wire(lost), Wire(at_once)).said()
    for lines in ((lost, not_run, at_once), (not_run, lost, at_once)):
        assert await Box(*map(Wire, lines), idempotent=frozenset({"dig"})).said() == "done"


async def test_call_timeout_includes_the_wait_for_a_reconnect() -> None:
    """A server that does not come back holds nobody up for longer than the call may take."""
    box = Box(Wire(lost), idempotent=frozenset({"dig"}), timeout=0.1)
    assert "did not answer within 0.1 s" in await box.said()


async def test_server_error_is_reported_with_bounded_length() -> None:
    """Its words, so far."""

    async def refuses(_: Callable[[str], None]) -> Json:
        raise AnsweredError("no such tool " + "x" * 100_000)

    box = Box(Wire(refuses))
    text = await box.said()
    assert text.startswith("the service 'box' answered the call of 'dig' with an error: no such tool x")
    assert len(text) < 2200 and box.errors == ["answered_error"]


@pytest.mark.parametrize("words", ["Tool 'dig' execution timed out after 1s", "Request timeout", "操作超时"])
@pytest.mark.parametrize("is_result", [True, False])
async def test_timeout_reported_by_the_server_leaves_the_outcome_unknown(words: str, is_result: bool) -> None:
    """A tool goes on although its server gave up on it: only one that may run twice is called again unasked."""

    async def gives_up(_: Callable[[str], None]) -> Json:
        if not is_result:
            raise AnsweredError(words)
        return {"content": [{"type": "text", "text": words}], "isError": True}

    result = await Box(Wire(gives_up)).calls.call("dig", {})
    assert words in result.content and "Whether it had an effect is not known" in result.content
    assert not is_result or "is not known" in str(result.parts)
    result = await Box(Wire(gives_up), idempotent=frozenset({"dig"})).calls.call("dig", {})
    assert words in result.content and "is not known" not in result.content


async def test_timed_out_idempotent_call_reports_no_unknown_outcome() -> None:
    """Its timeout leaves nothing open."""
    box = Box(Wire(never), idempotent=frozenset({"dig"}), timeout=0.04)
    assert (await box.said()).endswith("was stopped. Say so, and go on without it.")


async def test_cancelled_call_returns_before_the_server_side_stops() -> None:
    """Also when the server's side of it takes its time."""
    released = asyncio.Event()

    async def stubborn(_: Callable[[str], None]) -> Json:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await released.wait()
        return DONE

    wire = Wire(stubborn)
    box = Box(wire)
    call = asyncio.create_task(box.said())
    await wire.began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 120)
    assert not released.is_set() and box.errors == ["cancelled"]
    released.set()
    await asyncio.wait_for(wire.cancelled.wait(), 120)


@pytest.mark.parametrize(("ends", "idempotent"), [(not_run, False), (not_run, True), (lost, True)])
async def test_a_call_is_not_sent_again_once_its_clearance_has_changed(
    ends: Callable[[Callable[[str], None]], Any], *, idempotent: bool
) -> None:
    """Over the next connection, whose tool may be another one; the model is told what is certain."""
    first, second = Wire(ends), Wire(at_once)
    box = Box(first, second, idempotent=frozenset({"dig"} if idempotent else ()))
    said = await box.said(stands=lambda: False)
    assert len(first.calls) == 1 and second.calls == []
    if ends is lost:
        assert "whether it had an effect is not known" in said and box.errors == ["connection_lost"]
    else:
        assert said.startswith("Not run: it waited for the service 'box'") and box.errors == ["not_running"]
    again = Box(Wire(ends), Wire(at_once), idempotent=frozenset({"dig"} if idempotent else ()))
    assert await again.said() == "done"


async def test_call_waiting_for_a_ping_rechecks_its_clearance() -> None:
    """The program lives, and the time until it said so was long enough to deny its tool."""
    alive = asyncio.Event()

    class Busy(Wire):
        async def ping(self) -> None:
            await alive.wait()

    wire, clears = Busy(never), [True]
    box = Box(wire, timeout=0.04)
    assert "did not answer within" in await box.said()
    waiting = asyncio.create_task(box.said(stands=lambda: clears[0]))
    await asyncio.sleep(0)
    clears[0] = False
    alive.set()
    assert (await waiting).startswith("Not run: it waited for the service 'box'")
    assert len(wire.calls) == 1 and box.errors == ["timeout", "not_running"]
