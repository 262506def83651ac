"""The relay between a client that starts a process and an endpoint over HTTP; the official client, in both eras."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp_types import ElicitResult
from pydantic import BaseModel, Field

from gateway.testing.ports import free_port
from gateway.testing.run import GATEWAY
from tests.mcp.webserver import Site
from tests.support.forkserver import fork_command

RELAY = ("mcp", "serve", "--stdio", "--url")
ERAS = ["legacy", "2026-07-28"]
RED = bytes.fromhex("89504e470d0a1a0a")


class Answer(BaseModel):
    sure: bool


async def ask(name: str) -> Elicit[Answer]:
    return Elicit(f"Delete {name}?", Answer)


class Server:
    """A server of the SDK with one tool for each thing that a relay may lose."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.runs = 0

    def app(self) -> Any:
        server = MCPServer("relayed")

        @server.tool()
        async def echo(text: str, ctx: Context[Any, Any]) -> dict[str, str]:
            self.runs += 1
            for step in range(3):
                await ctx.report_progress(step, 3, f"step {step}")
            return {"text": text}

        @server.tool()
        async def picture() -> Image:
            return Image(data=RED, format="png")

        @server.tool()
        async def delete(name: str, answer: Annotated[Answer, Resolve(ask)]) -> str:
            return f"deleted {name}" if answer.sure else "kept"

        @server.tool()
        async def routed(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
            return region

        @server.tool()
        async def hang() -> str:
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return ""

        @server.tool()
        async def grow(ctx: Context[Any, Any]) -> str:
            server.add_tool(picture, name="grown")
            await ctx.notify_tools_changed()
            await ctx.session.send_tool_list_changed()
            return "grown"

        return server.streamable_http_app()


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def site(server: Server) -> AsyncIterator[Site]:
    site = Site(server.app)
    await site.up()
    yield site
    await site.down()


@asynccontextmanager
async def relayed(site_url: str, era: str, *, key: str | None = None, **options: Any) -> AsyncIterator[Client]:
    command, *arguments = await asyncio.to_thread(fork_command, *RELAY, site_url)
    env = {} if key is None else {"GATEWAY_API_KEY": key}
    program = StdioServerParameters(command=command, args=arguments, env=env)
    async with Client(stdio_client(program), mode=era, **options) as client:
        yield client


@pytest.mark.parametrize("era", ERAS)
async def test_relayed_tool_call_keeps_content_progress_and_errors(site: Site, era: str) -> None:
    """Texts, pictures, structured results, progress; arguments that belong into headers; errors by name."""
    steps: list[str | None] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    async with relayed(site.url, era, key="secret") as client:
        assert {tool.name for tool in (await client.list_tools()).tools} >= {"echo", "picture", "delete"}
        result = await client.call_tool("echo", {"text": 'ä\n"x"'}, progress_callback=progressed)
        assert result.structured_content == {"text": 'ä\n"x"'} and steps == ["step 0", "step 1", "step 2"]
        picture = (await client.call_tool("picture", {})).content[0]
        assert picture.type == "image" and picture.mime_type == "image/png"
        routed = await client.call_tool("routed", {"region": "näh"})
        assert routed.content[0].type == "text" and routed.content[0].text == "näh"
        with pytest.raises(MCPError):
            await client.get_prompt("absent")
    assert {head.get("authorization") for head in site.heads} == {"Bearer secret"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("sure", "text"), [(True, "deleted a"), (False, "kept")])
async def test_relayed_elicitation_returns_the_users_answer(site: Site, era: str, sure: bool, text: str) -> None:
    """By a request of the server, or by a result that asks."""
    asked: list[str] = []

    async def answer(_context: object, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"sure": sure})

    async with relayed(site.url, era, elicitation_callback=answer) as client:
        result = await client.call_tool("delete", {"name": "a"})
    assert asked == ["Delete a?"] and result.content[0].type == "text" and result.content[0].text == text


@pytest.mark.parametrize("era", ERAS)
async def test_cancelled_call_is_relayed_to_the_server(server: Server, site: Site, era: str) -> None:
    """The server hears of it, and the next call works."""
    async with relayed(site.url, era) as client:
        call = asyncio.create_task(client.call_tool("hang", {}))
        await server.started.wait()
        call.cancel()
        async with asyncio.timeout(60):
            await server.cancelled.wait()
        assert (await client.call_tool("echo", {"text": "b"})).structured_content == {"text": "b"}


async def test_tool_list_change_is_relayed_to_the_client(site: Site) -> None:
    """A session hears of it."""
    changed = asyncio.Event()

    async def heard(message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            changed.set()

    async with relayed(site.url, "legacy", message_handler=heard) as client:
        async with asyncio.timeout(60):
            while not changed.is_set():  # the first time may come before the session listens
                await client.call_tool("grow", {})
        assert "grown" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("era", ERAS)
async def test_relay_recovers_after_a_gateway_restart(server: Server, site: Site, era: str) -> None:
    """Calls fail while it is away, and the client goes on as before when it is back; each call ran once."""
    async with relayed(site.url, era) as client:
        await client.call_tool("echo", {"text": "a"})
        await site.down()
        with pytest.raises(MCPError, match=r"does not answer.*Is it running"):
            await client.call_tool("echo", {"text": "b"})
        await site.up()
        results = await asyncio.gather(*(client.call_tool("echo", {"text": str(i)}) for i in range(5)))
        assert [result.structured_content for result in results] == [{"text": str(i)} for i in range(5)]
    assert server.runs == 6


async def spoken(
    lines: list[str], *, url: str, until: Callable[[list[Any]], bool], program: Sequence[str] | None = None
) -> tuple[list[Any], int]:
    """Returns what the relay answers to these lines, and its exit code when its input ends."""
    program = program or await asyncio.to_thread(fork_command)
    process = await asyncio.create_subprocess_exec(
        *(*program, *RELAY, url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("".join(f"{line}\n" for line in lines).encode())
    answers: list[Any] = []
    async with asyncio.timeout(60):
        while not until(answers):
            answers.append(json.loads(await process.stdout.readline()))
        process.stdin.close()
        assert await process.stdout.read() == b""
        return answers, await process.wait()


async def test_bridge_answers_invalid_messages_with_errors_and_continues(site: Site) -> None:
    """Such a line is answered, and the relay goes on; the relay ends with its input."""
    ping = '{"jsonrpc": "2.0", "id": 7, "method": "absent"}'
    answers, code = await spoken(["rubbish", "[1]", ping], url=site.url, until=lambda found: len(found) == 3)
    assert [answer["id"] for answer in answers] == [None, None, 7] and code == 0
    assert [answer["error"]["code"] for answer in answers[:2]] == [-32700, -32600]


async def test_ambiguous_json_line_is_refused_by_the_relay(server: Server, site: Site) -> None:
    """As over HTTP, before anything is sent: nothing runs, and each line has its answer."""
    call = '{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "echo", "arguments": %s}}'
    echoes = ['{"text": "a"}, "arguments": {"text": "b"}', '{"text": "a", "text": "b"}']
    echoes += [f'{{"text": "a", "n": {number}}}' for number in ("NaN", "Infinity", "1e400")]
    lines = [call % (1, echo) for echo in echoes] + [call % ('1, "id": 2', '{"text": "a"}')]
    ids = ["1.0", "1.5", "null", "true", "[1]"]
    lines += [call % (odd, '{"text": "a"}') for odd in ids]
    answers, code = await spoken(lines, url=site.url, until=lambda found: len(found) == len(lines))
    codes = [answer["error"]["code"] for answer in answers]
    assert codes == [-32700] * (len(echoes) + 1) + [-32600] * len(ids) and code == 0
    assert {answer["id"] for answer in answers} == {None} and server.runs == 0
    assert "'arguments' twice" in answers[0]["error"]["message"]


async def test_relay_reports_an_unreachable_gateway_to_the_client() -> None:
    """The client reads why, in the answer to its request."""
    url = f"http://127.0.0.1:{free_port()}"
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize})
    [answer], code = await spoken([line], url=url, until=lambda found: len(found) == 1, program=GATEWAY)
    assert answer["error"]["message"].startswith(f"The gateway at {url}/mcp does not answer: ") and code == 0
    assert answer["error"]["message"].endswith(" Is it running?")
