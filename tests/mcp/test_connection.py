"""One connection, against a server that says exactly what a test wants."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import anyio
import pytest
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter
from measuring import Effort

from gateway.contracts.exchange import CallProgress
from gateway.contracts.storage.store import Json
from gateway.mcp.calls import AnsweredError, LostError
from gateway.mcp.connection import McpConnection, open_connection
from tests.mcp.mcp_host import Changes, stands

MODERN, OLDER = "2026-07-28", "2025-11-25"
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}}
FRESH: Json = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}


class RefusedError(Exception):
    """The error that the server answers, with this code."""

    def __init__(self, code: int, message: str = "no", data: Any = None) -> None:
        super().__init__(code, message, data)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


Answer = Json | Exception | Callable[[Json], Json]


def discovers(**capabilities: Any) -> Json:
    return {"supportedVersions": [MODERN], "capabilities": {"tools": {}, **capabilities}, **FRESH}


def initializes(**_: Any) -> Json:
    server = {"name": "s", "version": "1"}
    return {"protocolVersion": OLDER, "capabilities": {"tools": {}}, "serverInfo": server}


class Told:
    """`facts.Channel` to a server that answers each method so; one that it does not know, it does not answer."""

    skipped_lines = 0
    stderr = ()
    returncode = None

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.asked: list[Json] = []
        self.heard = Changes()
        self._answers = answers
        self._open = AsyncExitStack()

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.asked if message["method"] != "notifications/initialized"]

    async def __aenter__(self) -> Dispatcher[TransportContext]:
        self._send, read = anyio.create_memory_object_stream[SessionMessage | Exception](10)
        write, self._requests = anyio.create_memory_object_stream[SessionMessage](10)
        serving = asyncio.create_task(self._serve())
        self._open.push_async_callback(asyncio.wait, {serving})
        for stream in (self._send, read, write, self._requests):
            self._open.callback(stream.close)
        return JSONRPCDispatcher(read, write)

    async def __aexit__(self, *failure: Any) -> None:
        await self._open.aclose()

    def end(self) -> None:
        self._send.close()

    async def say(self, message: Json) -> None:
        await self._send.send(SessionMessage(jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})))

    async def _serve(self) -> None:
        try:
            async for outgoing in self._requests:
                message = outgoing.message.model_dump(by_alias=True, exclude_unset=True)
                self.asked.append(message)
                self.heard()
                if isinstance(outgoing.message, JSONRPCRequest) and message["method"] in self._answers:
                    await self._answer(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass

    async def _answer(self, message: Json) -> None:
        answer = self._answers[message["method"]]
        if callable(answer):
            try:
                answer = answer(message.get("params", {}))
            except RefusedError as refused:
                answer = refused
        part = {"error": answer.error} if isinstance(answer, RefusedError) else {"result": answer}
        await self.say({"id": message["id"], **part})


def newer(**answers: Answer) -> Told:
    return Told(
        {"server/discover": discovers(), **{name.replace("_", "/"): answer for name, answer in answers.items()}}
    )


async def called(connection: McpConnection, arguments: Json | None = None) -> Json:
    return await connection.call("dig", arguments or {}, progressed=lambda _: None)


async def test_connection_tries_the_newer_era_first() -> None:
    """One question is enough."""
    told = newer()
    async with open_connection(told, probe_s=1.0) as connection:
        assert (connection.protocol, told.methods) == (MODERN, ["server/discover"])


@pytest.mark.parametrize(
    "answer",
    [
        RefusedError(-32601),
        RefusedError(-32602),
        RefusedError(-32000, "Connection closed?"),
        {"odd": True},
        {**discovers(), "supportedVersions": [OLDER]},
    ],
    ids=["unknown", "refused", "closed", "odd", "older"],
)
async def test_connection_falls_back_to_the_older_era(answer: Answer) -> None:
    """Servers say so in many ways."""
    told = Told({"server/discover": answer, "initialize": initializes()})
    async with open_connection(told, probe_s=1.0) as connection:
        assert (connection.protocol, told.methods) == (OLDER, ["server/discover", "initialize"])


async def test_unanswered_discovery_falls_back_to_the_older_era() -> None:
    """It is asked for the other era after a while, on the same connection."""
    told = Told({"initialize": initializes()})
    async with open_connection(told, probe_s=0.05) as connection:
        assert connection.protocol == OLDER


async def test_known_server_is_initialized_without_a_probe() -> None:
    """Some do not survive the question."""
    told = Told({"initialize": initializes()})
    async with open_connection(told, probe_s=None) as connection:
        assert (connection.protocol, told.methods) == (OLDER, ["initialize"])


async def test_slow_server_of_the_newer_era_is_recognised() -> None:
    """It took the first question for the choice of an era: then that is it."""
    unsupported = RefusedError(-32022, "unsupported", {"supported": [MODERN], "requested": OLDER})
    asked: list[int] = []

    def discover(_: Json) -> Json:
        asked.append(1)
        if len(asked) == 1:
            raise RefusedError(-32001, "too slow")
        return discovers()

    told = Told({"server/discover": discover, "initialize": unsupported})
    async with open_connection(told, probe_s=1.0) as connection:
        assert connection.protocol == MODERN


async def test_server_without_a_common_version_is_refused() -> None:
    """Its operator reads what it said."""
    told = Told({"initialize": {**initializes(), "protocolVersion": "1999-01-01"}})
    with pytest.raises(BaseExceptionGroup) as raised:
        async with open_connection(told, probe_s=None):
            pass
    assert raised.group_contains(AnsweredError, match="1999-01-01")


async def test_client_announces_its_name_and_no_capabilities() -> None:
    """Its name; it samples nothing, asks no user, and has no roots."""
    told = newer()
    async with open_connection(told, probe_s=1.0):
        meta = told.asked[0]["params"]["_meta"]
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "twolane"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_sampling_elicitation_and_roots_are_refused() -> None:
    """A server that asks anyway gets an error, and the connection goes on."""
    told = Told({"initialize": initializes(), "tools/list": {"tools": []}})
    async with open_connection(told, probe_s=None) as connection:
        sampling = {"messages": [], "maxTokens": 5}
        await told.say({"id": "s", "method": "sampling/createMessage", "params": sampling})
        await told.say({"id": "r", "method": "roots/list"})
        assert await connection.list_tools() == ([], [])


async def test_all_pages_of_the_tool_list_are_read() -> None:
    """In their order, as the server wrote them."""
    pages = {None: ("a", "2"), "2": ("b", "3"), "3": ("c", None)}

    def page(params: Json) -> Json:
        name, following = pages[params.get("cursor")]
        tool = {"name": name, "inputSchema": SCHEMA, "extra": "kept"}
        return {"tools": [tool], **FRESH, **({"nextCursor": following} if following else {})}

    async with open_connection(newer(tools_list=page), probe_s=1.0) as connection:
        tools, problems = await connection.list_tools()
    assert [tool["name"] for tool in tools] == ["a", "b", "c"] and not problems
    assert tools[0] == {"name": "a", "inputSchema": SCHEMA, "extra": "kept"}


async def test_invalid_tool_does_not_affect_the_tool_list() -> None:
    """All of them are handed on; what is wrong with one is told elsewhere."""
    good: Json = {"name": "good", "inputSchema": SCHEMA}
    bad: list[Any] = [{"name": "bad", "inputSchema": "none"}, {"inputSchema": SCHEMA}, "odd", None]
    async with open_connection(newer(tools_list={"tools": [*bad, good], **FRESH}), probe_s=1.0) as connection:
        assert await connection.list_tools() == ([*bad, good], [])


async def test_tool_with_invalid_header_names_is_left_out() -> None:
    """As the protocol wants it (2026-07-28, x-mcp-header)."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "not valid\r\n"}}}
    tools = [{"name": "bad", "inputSchema": schema}, {"name": "good", "inputSchema": SCHEMA}]
    async with open_connection(newer(tools_list={"tools": tools, **FRESH}), probe_s=1.0) as connection:
        listed, problems = await connection.list_tools()
    assert [tool["name"] for tool in listed] == ["good"]
    assert problems == ["the tool 'bad' is left out: its x-mcp-header is not valid"]


async def test_size_of_schemas_with_headers_is_bounded() -> None:
    """The SDK reads those of a page in one go. The others count for nothing."""

    def wide(name: str, **first: Any) -> Json:
        properties = {"a": {"type": "string", **first}} | {f"{n}": {} for n in range(5500)}
        return {"name": name, "inputSchema": {"type": "object", "properties": properties}}

    tools = [*(wide(f"h{n}", **{"x-mcp-header": "A"}) for n in range(6)), *(wide(f"t{n}") for n in range(9))]
    async with open_connection(newer(tools_list={"tools": tools, **FRESH}), probe_s=1.0) as connection:
        listed, problems = await connection.list_tools()
    names = [tool["name"] for tool in listed]
    assert names == ["h0", "h1", "h2", "h3", *(f"t{n}" for n in range(9))]
    reason = "the schemas with x-mcp-header have more than 262,144 bytes together"
    assert sorted(problems) == [f"the tool 'h{n}' is left out: {reason}" for n in (4, 5)]


@pytest.mark.parametrize("pages", ["the same", "new"])
async def test_endless_tool_list_is_truncated_and_reported(pages: str) -> None:
    """M12: it is read so far, and named."""
    count = iter(range(10_000))

    def page(_: Json) -> Json:
        number = next(count)
        cursor = "again" if pages == "the same" else str(number)
        return {"tools": [{"name": f"t{number}", "inputSchema": SCHEMA}], "nextCursor": cursor, **FRESH}

    async with open_connection(newer(tools_list=page), probe_s=1.0) as connection:
        tools, problems = await connection.list_tools()
    assert (len(tools), problems) == (
        (2, ["its list of tools has no end: the pages come again"])
        if pages == "the same"
        else (100, ["its list of tools is longer than 500 tools or 100 pages: the rest is left out"])
    )


async def test_large_tool_list_is_truncated_at_the_size_limit() -> None:
    """Pages of 900 KB, 90 MB in all, were kept. Now it is those that the limit has room for."""
    count = iter(range(10_000))

    def page(_: Json) -> Json:
        number = next(count)
        tool = {"name": f"t{number}", "inputSchema": SCHEMA, "description": "x" * 900_000}
        return {"tools": [tool], "nextCursor": str(number), **FRESH}

    async with open_connection(newer(tools_list=page), probe_s=1.0) as connection:
        tools, problems = await connection.list_tools()
    assert [tool["name"] for tool in tools] == [f"t{n}" for n in range(18)]
    assert problems == ["its list of tools has more than 16,777,216 bytes: the rest is left out"]
    assert next(count) == 19


async def test_cursors_count_towards_the_list_size_limit() -> None:
    """They are kept, to notice that they come again."""
    count = iter(range(10_000))

    def page(_: Json) -> Json:
        return {"tools": [], "nextCursor": f"{next(count)}" + "x" * 4_000_000, **FRESH}

    async with open_connection(newer(tools_list=page), probe_s=1.0) as connection:
        tools, problems = await connection.list_tools()
    assert (tools, problems) == ([], ["its list of tools has more than 16,777,216 bytes: the rest is left out"])


async def test_a_large_tool_is_left_out() -> None:
    """The others are not; what is beside the tools of a page is not looked at."""
    large, good = (
        {"name": "large", "inputSchema": SCHEMA, "title": "x" * 2_000_000},
        {"name": "good", "inputSchema": SCHEMA},
    )
    listed = {"tools": [large, good], "_meta": {"x": "y" * 20_000_000}, **FRESH}
    async with open_connection(newer(tools_list=listed), probe_s=1.0) as connection:
        tools, problems = await connection.list_tools()
    assert tools == [good]
    reason = "its definition has 2,000,096 bytes, which is more than 1,048,576"
    assert problems == [f"the tool 'large' is left out: {reason}"]


async def test_large_tool_page_is_read_in_linear_time() -> None:
    """Each tool was validated with all that stands beside it, and with all of its own texts."""
    many = [{"name": f"t{n}", "inputSchema": SCHEMA, "description": "x" * 20_000} for n in range(500)]
    listed = {"tools": many, "_meta": {f"k{n}": [n] for n in range(50_000)}, **FRESH}
    async with open_connection(newer(tools_list=listed), probe_s=1.0) as connection:
        effort = Effort()
        tools, problems = await connection.list_tools()
        assert effort.cpu_s < 5
    assert (tools, problems) == (many, [])


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "x"}], "structuredContent": {"sum": "no number"}, "isError": False},
        {"content": [{"type": "hologram", "data": 1}]},
        {"content": "just text"},
        {"structuredContent": [1, 2]},
        {},
    ],
)
async def test_tool_result_is_passed_on_unchanged(result: Json) -> None:
    """It may fit neither its own output schema nor the protocol: its text is worth keeping all the same."""
    schema = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
    tool = {"name": "dig", "inputSchema": SCHEMA, "outputSchema": schema}
    told = newer(tools_list={"tools": [tool], **FRESH}, tools_call=result)
    async with open_connection(told, probe_s=1.0) as connection:
        await connection.list_tools()
        assert await called(connection) == result


async def test_input_required_result_is_reported_as_an_error() -> None:
    """There is nobody here who could give it."""
    async with open_connection(
        newer(tools_call={"resultType": "input_required", "inputRequests": {}}), probe_s=1.0
    ) as connection:
        with pytest.raises(AnsweredError, match="asks for more input"):
            await called(connection)


async def test_server_error_message_is_raised_unchanged() -> None:
    """Whatever its code: this one is also that of a closed connection."""
    async with open_connection(newer(tools_call=RefusedError(-32000, "out of order")), probe_s=1.0) as connection:
        with pytest.raises(AnsweredError, match=r"^out of order$"):
            await called(connection)


async def test_call_refused_for_missing_headers_is_not_repeated() -> None:
    """The server may have run it, and use the code for an error of its own. Its list is read again."""
    refused = RefusedError(-32020, "payment sent, receipt printer failed")

    def call(_: Json) -> Json:
        raise refused

    told = newer(tools_list={"tools": [], **FRESH}, tools_call=call)
    async with open_connection(told, probe_s=1.0) as connection:
        with pytest.raises(AnsweredError, match="receipt printer"):
            await called(connection)
        assert connection.stirred.is_set()
    assert told.methods == ["server/discover", "tools/call"]


async def test_closed_connection_ends_its_pending_calls() -> None:
    """It is told, and ends what waits for an answer."""
    told = newer()
    async with open_connection(told, probe_s=1.0) as connection:
        call = asyncio.create_task(called(connection))
        await told.heard.until(lambda: "tools/call" in told.methods)
        assert not connection.closed_future.done() and not connection.stirred.is_set()
        told.end()
        with pytest.raises(LostError):
            await call
        await asyncio.wait_for(connection.closed_future, 120)
        assert connection.stirred.is_set()
        with pytest.raises(LostError):
            await called(connection)


async def test_cancelled_call_notifies_the_server() -> None:
    """So that it can stop."""
    told = newer()
    async with open_connection(told, probe_s=1.0) as connection:
        call = asyncio.create_task(called(connection))
        await told.heard.until(lambda: "tools/call" in told.methods)
        call.cancel()
        await asyncio.wait({call})
        await told.heard.until(lambda: told.methods[-1] == "notifications/cancelled")
        ids = {message["method"]: message for message in told.asked}
        assert ids["notifications/cancelled"]["params"]["requestId"] == ids["tools/call"]["id"]


async def test_progress_is_reported_to_its_own_call() -> None:
    """Of that call only."""
    heard: list[str] = []
    progressed = Changes()

    def hears(name: str, progress: CallProgress) -> None:
        heard.append(name)
        assert progress == CallProgress(None, 1.0, 4.0)
        progressed()

    told = newer()
    async with open_connection(told, probe_s=1.0) as connection:
        calls = {asyncio.create_task(connection.call(name, {}, progressed=partial(hears, name))) for name in "ab"}
        await told.heard.until(lambda: told.methods.count("tools/call") == 2)
        token = told.asked[-1]["params"]["_meta"]["progressToken"]
        await told.say(
            {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 4}}
        )
        await progressed.until(lambda: bool(heard))
        assert heard == [told.asked[-1]["params"]["name"]]
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


async def test_ended_change_subscription_is_renewed() -> None:
    """And once more when the subscription ends."""
    told = Told({"server/discover": discovers(tools={"listChanged": True})})
    async with open_connection(told, probe_s=1.0) as connection:
        await told.heard.until(lambda: "subscriptions/listen" in told.methods)
        subscription = told.asked[-1]["id"]
        meta = {"io.modelcontextprotocol/subscriptionId": subscription}
        await told.say(
            {
                "method": "notifications/subscriptions/acknowledged",
                "params": {"_meta": meta, "notifications": {"toolsListChanged": True}},
            }
        )
        await told.say({"method": "notifications/tools/list_changed", "params": {"_meta": meta}})
        await asyncio.wait_for(connection.stirred.wait(), 120)
        connection.stirred.clear()
        await told.say({"id": subscription, "result": {"_meta": meta, "resultType": "complete"}})
        await asyncio.wait_for(connection.stirred.wait(), 120)
        await told.heard.until(lambda: told.methods.count("subscriptions/listen") == 2)


async def test_unsupported_subscription_is_not_retried() -> None:
    """One refusal is enough."""
    told = Told(
        {"server/discover": discovers(tools={"listChanged": True}), "subscriptions/listen": RefusedError(-32601)}
    )
    async with open_connection(told, probe_s=1.0) as connection:
        await told.heard.until(lambda: "subscriptions/listen" in told.methods)
        await connection.listen()  # refused, it ends without another try
        assert not connection.stirred.is_set() and told.methods.count("subscriptions/listen") == 2


async def test_trace_context_joins_the_protocol_entries_in_call_meta() -> None:
    """Where a call has it; the SDK's own entries stay."""
    told = newer(tools_call={"content": [], "resultType": "complete"})
    context = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b"}
    async with open_connection(told, probe_s=1.0) as connection:
        await called(connection)
        await connection.call("dig", {}, progressed=lambda _: None, meta=context)
        without, with_it = (message["params"]["_meta"] for message in told.asked if message["method"] == "tools/call")
    assert not context.keys() & without.keys()
    assert {name: with_it[name] for name in context} == context and with_it.keys() - context.keys() == without.keys()


@pytest.mark.parametrize("result", ["{}", '{"task": {"taskId": "1"}}', '{"content": null, "isError": false}'])
async def test_result_without_content_is_an_error(result: str) -> None:
    """It is not taken for a success without words."""
    async with stands("as-it-is") as stand:
        await stand.running()
        said = await stand.session.call("echo", {"text": f'{{"jsonrpc": "2.0", "id": ID, "result": {result}}}'})
        assert not said.ok
        assert said.content == (
            "the service 'box' answered the call of 'echo' with an error: "
            "its answer is no result of a call: it has no content"
        )
