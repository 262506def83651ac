"""The connection to a server on standard input and output, with the SDK's own client on top."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import move_on_after
from mcp import MCPError
from mcp.client.client import Client
from mcp_types import CallToolResult, TextContent

from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT
from gateway.mcp.transport.junk_limit import LINES
from gateway.mcp.transport.messages import MAY_HAVE_RUN
from gateway.mcp.transport.pending_requests import ID_CHARS
from gateway.mcp.transport.process import Program, StartError
from gateway.mcp.transport.stdio import StdioTransport
from gateway.testing.processes import find_living_process
from tests.mcp.transport.test_process import program


@asynccontextmanager
async def streams(transport: StdioTransport) -> AsyncIterator[tuple[Any, Any]]:
    """The transport as the SDK's client takes one."""
    read, write = await transport.open()
    try:
        yield read, write
    finally:
        await transport.__aexit__(None, None, None)


class Connection:
    """A client and its transport."""

    def __init__(self, client: Client, transport: StdioTransport) -> None:
        self.client, self.transport = client, transport

    async def call(self, tool: str, **arguments: Any) -> str:
        """Return the text of the tool; MCPError for an error."""
        async with asyncio.timeout(120):
            result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        (block,) = result.content
        assert isinstance(block, TextContent)
        return block.text

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """The text of the error that the call ends with, within a second."""
        async with asyncio.timeout(120):
            with pytest.raises(MCPError) as raised:
                await self.client.call_tool(tool, arguments)
        return raised.value.message


@asynccontextmanager
async def connected(behaviour: str, *arguments: object, **settings: Any) -> AsyncIterator[Connection]:
    transport = StdioTransport(program(behaviour, *arguments), **settings)
    async with Client(streams(transport), mode="auto") as client:
        yield Connection(client, transport)
    assert transport.pid is not None
    assert find_living_process(transport.pid) is None


@pytest.mark.parametrize(("behaviour", "version"), [("ok", "2025-11-25"), ("modern", "2026-07-28")])
async def test_both_protocol_eras_work_over_stdio(behaviour: str, version: str) -> None:
    """Are spoken over it; afterwards the server has ended by itself."""
    async with connected(behaviour) as server:
        assert server.client.protocol_version == version
        assert await server.call("echo", text="hi\n\u2028 ü") == "hi\n\u2028 ü"
    assert (server.transport.returncode, server.transport.skipped_lines) == (0, 0)


@pytest.mark.parametrize("behaviour", ["result-last", "duplicate"])
async def test_response_with_late_or_duplicate_id_reaches_its_call(behaviour: str) -> None:
    """M8: an id at the end, or twice: each call gets its own answer, the first one."""
    async with connected(behaviour) as server:
        for word in ("one", "two", "three"):
            assert await server.call("echo", text=word) == word


async def test_garbage_between_messages_is_skipped_and_counted() -> None:
    """M6: a banner, blank lines, a traceback, colours, invalid UTF-8, NUL; valid answers still work."""
    async with connected("garbage") as server:
        assert await server.call("echo", text="hi") == "hi"
    assert server.transport.skipped_lines > 20


@pytest.mark.parametrize(
    ("behaviour", "what"),
    [("wrong-shape", "no JSON-RPC message"), ("bad-utf8", "no JSON with one reading: it is not UTF-8")],
)
async def test_malformed_response_fails_only_its_own_call_at_once(behaviour: str, what: str) -> None:
    """M8: and only that one; it counts as skipped."""
    async with connected(behaviour) as server:
        assert await server.refusal("echo", text="hi") == f"the answer is {what}; {MAY_HAVE_RUN}"
        assert server.transport.skipped_lines == 1
        assert (await server.client.list_tools()).tools


@pytest.mark.parametrize("behaviour", ["wrong-id", "null-id"])
async def test_response_with_unmatched_id_completes_no_call(behaviour: str) -> None:
    """M8: no other call gets it, and the connection goes on."""
    async with connected(behaviour) as server:
        calls = [asyncio.create_task(server.client.call_tool("echo", {"text": "hi"})) for _ in range(3)]
        assert (await server.client.list_tools()).tools
        done, _ = await asyncio.wait(calls, timeout=0.2)
        assert not done
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"jsonrpc":"2.0","id":"ID","result":{"content":[]}}', 'has the id "'),
        ('[{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}]', "is no JSON-RPC message"),
        ('\0{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}', "is no JSON with one reading"),
        ('{"jsonrpc":"2.0","result":%s,"id":ID}' % ('{"a":' * 100_000 + "1" + "}" * 100_000), "is no JSON with one"),
    ],
)
async def test_response_without_an_id_ends_the_only_call(line: str, what: str) -> None:
    """At once; a line that only quotes an answer does not."""
    async with connected("as-it-is") as server:
        assert (await server.refusal("echo", text=line)).startswith(f"the answer {what}")
        quoted = f'{{"log": {json.dumps(line)}}}\n[x] {line}\n'
        answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hi"}]}}'
        assert await server.call("echo", text=quoted + answer) == "hi"


async def test_response_with_error_and_result_is_an_error() -> None:
    """M8: for that call only."""
    async with connected("error-and-result") as server:
        assert await server.refusal("echo", text="hi") == "both"
        assert (await server.client.list_tools()).tools


@pytest.mark.parametrize("order", ["huge", "result-last"])
async def test_a_line_that_is_too_long_fails_its_call(order: str) -> None:
    """Wherever its id stands; what comes behind it is read."""
    async with connected(order, 1, line_limit_bytes=100_000) as server:
        assert await server.refusal("big", bytes=200_000) == f"the answer is longer than 100,000 bytes; {MAY_HAVE_RUN}"
        assert (await server.client.list_tools()).tools
        assert server.transport.skipped_lines == 1


async def test_an_answer_of_too_many_values_fails_its_call() -> None:
    """Others would wait while it is parsed."""
    async with connected("many-values") as server:
        expected = f"the answer holds more than {SERVICE_VALUES_LIMIT:,} values; {MAY_HAVE_RUN}"
        assert await server.refusal("echo", text="hi") == expected
        assert (await server.client.list_tools()).tools
    async with connected("many-values", 1000) as server:
        assert await server.call("echo", text="hi") == "hi"


async def test_a_result_of_30_mb_arrives() -> None:
    """It is shorter than the longest line."""
    async with connected("huge") as server:
        assert len(await server.call("echo", text="hi")) == 30 << 20


async def test_flooding_line_uses_bounded_memory() -> None:
    """A line of 100 MB before the answer is thrown away as it comes."""
    async with connected("flood", 100, line_limit_bytes=1 << 20) as server:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before_kib = peak_kib()
        assert await server.call("echo", text="hi") == "hi"
        assert server.transport.skipped_lines == 1
        assert peak_kib() - before_kib < 16 << 10


@pytest.mark.parametrize("line", ["", "a", "{}", '{"id":1}', '{"jsonrpc":"2.0"}', '"id"'])
async def test_a_flood_of_lines_ends_the_server(line: str) -> None:
    """With the reason; as many as are allowed are counted, and the answer behind them arrives."""
    told: list[str] = []
    async with connected("lines", line, LINES, lost=told.append) as server:
        assert await server.call("echo", text="hi") == "hi"
        assert (server.transport.skipped_lines, told) == (LINES, [])
        assert await server.refusal("echo", text="hi") == "Connection closed"
    assert told == ["it wrote more than 100,000 lines within a minute that are no messages"]


async def test_a_flood_of_bytes_ends_the_server() -> None:
    """Messages do not count."""
    told: list[str] = []
    async with connected("flood-open", 300, lost=told.append) as server:
        assert await server.refusal("echo", text="hi") == "Connection closed"
    assert told == ["it wrote more than 256 MiB within a minute that are no messages"]
    told.clear()
    async with connected("huge", 30, lost=told.append) as server:
        for _ in range(9):
            await server.call("echo", text="hi")
    assert told == []


def peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def test_endless_flood_does_not_block_other_servers() -> None:
    """Of leaving, and of the loop: the server is gone, and others went on meanwhile."""
    async with connected("ok") as other, connected("flood-open", 1000) as server:
        call = asyncio.create_task(server.client.call_tool("echo", {"text": "hi"}))
        for _ in range(20):
            assert await other.call("echo", text="hi") == "hi"
        call.cancel()
        await asyncio.wait((call,))


async def test_crash_fails_all_pending_calls_at_once() -> None:
    """M3: all pending calls fail within a second, and it is known how the server ended."""
    async with connected("ok") as server:
        waiting = [asyncio.create_task(server.refusal("sleep", seconds=60)) for _ in range(3)]
        assert await server.refusal("crash") == "Connection closed"
        assert await asyncio.gather(*waiting) == ["Connection closed"] * 3
    assert server.transport.returncode == 9


async def test_killed_server_fails_its_pending_call_at_once() -> None:
    """M3: from outside, too."""
    async with connected("ok") as server:
        waiting = asyncio.create_task(server.refusal("sleep", seconds=60))
        os.kill(int(await server.call("pid")), signal.SIGKILL)
        assert await waiting == "Connection closed"
    assert server.transport.returncode == 128 + signal.SIGKILL


async def test_closed_stdout_ends_the_connection() -> None:
    """Though the server lives on: nothing can come of it any more."""
    told: list[str] = []
    async with connected("closes-stdout", lost=told.append) as server:
        assert await server.refusal("echo", text="hi") == "Connection closed"
        assert told == ["it closed its standard output"]


async def test_server_that_stops_reading_is_disconnected() -> None:
    """No call waits for ever to be written, and none that was written for an answer."""
    told: list[str] = []
    async with connected("deaf", write_limit_s=0.3, lost=told.append) as server:
        calls = [server.client.call_tool("echo", {"text": "x" * 300_000}) for _ in range(3)]
        async with asyncio.timeout(120):
            failures = await asyncio.gather(*calls, return_exceptions=True)
        assert {str(failure) for failure in failures} == {"Connection closed"}
    assert told == ["it read nothing of its input for 0.3 s"]
    assert server.transport.returncode is None


@pytest.mark.parametrize(("size_bytes", "why"), [(1, "1,000 answers to them waiting"), (1 << 20, "32 MiB of requests")])
async def test_server_that_leaves_responses_unread_loses_its_connection(size_bytes: int, why: str) -> None:
    """Nothing of it fills the memory."""
    told: list[str] = []
    async with connected("asks-deaf", 1_000_000, size_bytes, ID_CHARS, lost=told.append) as server:
        assert await server.refusal("echo", text="hi") == "Connection closed"
    assert len(told) == 1 and told[0].startswith("it sent ") and why in told[0]


async def test_server_may_send_requests_while_reading_the_responses() -> None:
    """Thousands at once; and what is too long to be answered is skipped."""
    async with connected("asks", 5000, 1, ID_CHARS) as server:
        assert await server.call("echo", text="hi") == "hi"
        assert server.transport.skipped_lines == 0
    async with connected("asks", 50, 1, ID_CHARS + 1) as server:
        assert await server.call("echo", text="hi") == "hi"
        assert server.transport.skipped_lines == 50


async def test_call_that_cannot_be_encoded_as_json_fails_alone() -> None:
    """Half of a surrogate pair has no UTF-8."""
    async with connected("ok") as server:
        assert await server.refusal("echo", text="\ud800") == "the call cannot be written as JSON"
        assert await server.call("echo", text="hi") == "hi"


async def test_hundred_concurrent_calls_get_their_own_answers() -> None:
    """Each gets its own answer."""
    async with connected("ok") as server:
        words = [f"word {number}" for number in range(100)]
        assert await asyncio.gather(*(server.call("echo", text=word) for word in words)) == words


async def test_cancelled_call_sends_a_cancellation_to_the_server() -> None:
    """And the connection goes on."""
    async with connected("ok") as server:
        call = asyncio.create_task(server.client.call_tool("sleep", {"seconds": 60}))
        while await server.call("calls") == "1":
            continue  # the sleeping one has not arrived yet
        call.cancel()
        await asyncio.wait((call,))
        assert await server.call("cancelled") == "1"


async def test_progress_notifications_reach_the_callback() -> None:
    """In its order, before the answer."""
    told: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with connected("ok") as server:
        await server.client.call_tool("progress", {"steps": 3, "pause": 0.01}, progress_callback=progressed)
    assert sorted(told) == [1, 2, 3]


async def test_stderr_of_an_ended_server_is_kept() -> None:
    """For whoever wants to know why it ended at once."""
    transport = StdioTransport(program("exits", 3))
    async with streams(transport) as (read, _):
        with pytest.raises(StopAsyncIteration):
            await read.__anext__()
    assert (transport.returncode, transport.stderr) == (3, ("misbehaving: cannot go on",))


async def test_missing_program_is_named_in_the_start_error() -> None:
    """On entering; there is nothing to leave."""
    transport = StdioTransport(Program("no-such-server"))
    with pytest.raises(StartError, match="'no-such-server' is not in PATH"):
        await transport.__aenter__()
    assert (transport.pid, transport.returncode, transport.stderr) == (None, None, ())


async def test_closing_kills_a_server_that_ignores_sigterm() -> None:
    """Also under a cancel that comes again and again, and with a call that is waiting."""
    told: list[str] = []
    began, transport = time.monotonic(), StdioTransport(program("ignores-term"), lost=told.append)
    with move_on_after(2):
        async with Client(streams(transport)) as client:
            await client.call_tool("sleep", {"seconds": 60})
    assert time.monotonic() - began > 4
    assert transport.pid is not None
    assert find_living_process(transport.pid) is None
    assert (transport.returncode, told) == (None, [])
