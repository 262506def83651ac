"""The requirement mcp-tools with real servers: their tools are called, over pipes and over HTTP, well and badly."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from gateways import Stopwatch

from gateway.testing import processes
from tests.e2e.models import Json, native, says
from tests.e2e.serving import asked_of, asks, called, result, seen, serving, started, told, until
from tests.mcp_servers import servers
from tests.mcp_servers.conftest import NOTE
from tests.mcp_servers.servers import Program

pytestmark = pytest.mark.mcp_servers

NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
LONG = "box.trigger-long-running-operation"
STDIO_AND_HTTP = pytest.mark.parametrize("entry", ["stdio", "http"], indirect=True)


@pytest.fixture
def entry(request: pytest.FixtureRequest) -> Json:
    """The server `everything`, reached one way or the other."""
    if request.param == "http":
        return {"url": request.getfixturevalue("everything_url")}
    program: Program = request.getfixturevalue("everything_server")
    return program.entry


# 成功执行工具调用: what each server is for.


async def test_a_tool_call_runs(time_server: Program) -> None:
    """成功执行工具调用: the service is asked, and its answer is in the conversation."""
    async with serving(servers={"time": time_server.entry}) as world:
        world.model.then(asks("time.convert_time", **NOON), says("It is nine in the evening there."))
        answer = await world.chat("用 time 工具: Tokyo?")
        assert (answer.status, answer.text) == (200, "It is nine in the evening there.")
        assert json.loads(result(world))["target"]["datetime"].endswith("T21:00:00+09:00")
        assert (await seen(world, "time"))["transport"] == "stdio"


async def test_git_server_tools_work_in_the_given_repository_only(git_server: Program, repository: Path) -> None:
    """It tells what was committed; what it refuses is told to the model."""
    async with serving(servers={"git": git_server.entry}) as world:
        assert "First lane" in await called(world, "git.git_log", repo_path=str(repository))
        assert "nothing to commit" in await called(world, "git.git_status", repo_path=str(repository))
        refused = await called(world, "git.git_log", repo_path="/")
        assert "is outside the allowed repository" in refused or "Error" in refused


async def test_filesystem_server_tools_work_in_the_given_folder_only(filesystem_server: Program, notes: Path) -> None:
    """It writes and reads in its folder, and nowhere else."""
    async with serving(servers={"files": filesystem_server.entry}) as world:
        file = notes / "new.txt"
        assert "Successfully wrote" in await called(world, "files.write_file", path=str(file), content="Two lanes.")
        assert file.read_text() == "Two lanes."
        assert await called(world, "files.read_text_file", path=str(notes / "note.txt")) == NOTE
        assert "new.txt" in await called(world, "files.list_directory", path=str(notes))
        assert "Access denied" in await called(world, "files.read_text_file", path="/etc/passwd")


async def test_sqlite_server_tools_create_fill_and_query_a_table(sqlite_server: Program) -> None:
    """It makes a table, fills and reads it; it is of before the SDK's version 2."""
    async with serving(servers={"shop": sqlite_server.entry}) as world:
        assert "created successfully" in await called(
            world, "shop.create_table", query="CREATE TABLE goods (name TEXT, price INTEGER)"
        )
        written = await called(world, "shop.write_query", query="INSERT INTO goods VALUES ('lamp', 30), ('mat', 5)")
        assert "2" in written
        asked = "SELECT name FROM goods WHERE price > 10"
        assert await called(world, "shop.read_query", query=asked) == "[{'name': 'lamp'}]"
        assert "no such table" in await called(world, "shop.read_query", query="SELECT * FROM missing")


@STDIO_AND_HTTP
async def test_everything_server_tools_work_over_stdio_and_http(entry: Json) -> None:
    """Texts, sums, pictures, structured content and links, over pipes and over streamable HTTP."""
    async with serving(servers={"box": entry}) as world:
        assert await called(world, "box.echo", message="hello") == "Echo: hello"
        assert "is 5" in await called(world, "box.get-sum", a=2, b=3)
        assert "[image image/png, " in await called(world, "box.get-tiny-image")
        assert json.loads(await called(world, "box.get-structured-content", location="Chicago"))["humidity"] == 82
        assert "demo://resource/" in await called(world, "box.get-resource-links", count=2)
        assert await called(world, LONG, duration=0.6, steps=3) == (
            "Long running operation completed. Duration: 0.6 seconds, Steps: 3."
        )
        found = await seen(world, "box")
        assert found["transport"] == ("http" if "url" in entry else "stdio") and found["error"] is None


@STDIO_AND_HTTP
async def test_concurrent_calls_get_their_own_results(entry: Json) -> None:
    """A hundred conversations with one real server: each has its own answer."""
    async with serving(servers={"box": entry}, upstreams=[]) as world:
        texts = [f"text {number}" for number in range(100)]
        answers = await asyncio.gather(*(told(world, "box.echo", message=text) for text in texts))
        assert answers == [f"Echo: {text}" for text in texts]


# 工具调用请求格式, 工具调用结果注入格式.


@pytest.mark.parametrize("name", ["time.convert_time", "time__convert_time"])
async def test_tool_call_json_in_model_text_is_executed(time_server: Program, name: str) -> None:
    """工具调用请求格式: `tool_call` with `name` and `arguments` in the JSON of an answer."""
    async with serving(servers={"time": time_server.entry}) as world:
        call = {"tool_call": {"name": name, "arguments": {**NOON, "risk_level": "low"}}}
        world.model.then(says(json.dumps(call)), says("21:00"))
        assert (await world.chat("use the time service")).text == "21:00"
        assert "T21:00:00+09:00" in result(world)


@pytest.mark.parametrize("prompted", [True, False])
async def test_tool_result_is_injected_as_a_tool_message(time_server: Program, *, prompted: bool) -> None:
    """工具调用结果注入格式: a message of role `tool` with name and content in the model's next request."""
    asked = asks("time.convert_time", **NOON)
    if not prompted:
        asked = native(("time__convert_time", {**NOON, "risk_level": "low"}))
    loop = {} if prompted else {"tool_format": "native"}
    async with serving(asked, says("21:00"), servers={"time": time_server.entry}, loop=loop) as world:
        assert (await world.chat("use the time service")).text == "21:00"
        said, answered = world.model.behind()
        assert (answered["role"], answered["name"]) == ("tool", "time__convert_time")
        assert "T21:00:00+09:00" in answered["content"]
        assert answered["tool_call_id"] == said["tool_calls"][0]["id"]


async def test_wrong_arguments_return_the_schema_of_the_called_tool(time_server: Program) -> None:
    """Level 1 names no parameters: the model learns those of the tool that it calls wrongly, and of no other."""
    async with serving(servers={"time": time_server.entry}) as world:
        text = await called(world, "time.convert_time", time="12:00")
        assert "the parameters do not fit" in text and "source_timezone" in text and "24-hour" in text
        assert "get_current_time" not in text
        assert "T21:00:00+09:00" in await called(world, "time.convert_time", **NOON)


# 服务不可用时的友好提示, 工具调用超时处理, and a server that dies.


async def test_stopped_service_returns_a_friendly_error(time_server: Program) -> None:
    """服务不可用时的友好提示: the model is told, and the conversation goes on."""
    async with serving(servers={"time": time_server.entry}) as world:
        await asked_of(world, "/time/stop")
        text = await called(world, "time.convert_time", **NOON)
        assert text == "Error: the service 'time' is not running just now. Say so, and go on without it."


@STDIO_AND_HTTP
async def test_tool_call_over_its_timeout_is_stopped_and_reported(entry: Json) -> None:
    """工具调用超时处理: it is ended, the model is told so, and the conversation goes on; so does the server."""
    entry = entry | {"timeouts": {"trigger-long-running-operation": 0.5}}
    async with serving(servers={"box": entry}) as world:
        text = await called(world, LONG, duration=20, steps=1)
        assert text == (
            "Error: the tool 'trigger-long-running-operation' of the service 'box' did not answer within 0.5 s and was "
            "stopped. Whether it had an effect is not known: say so, and call it again only if its user wants that."
        )
        assert await called(world, "box.echo", message="hello") == "Echo: hello"


@STDIO_AND_HTTP
async def test_progress_extends_the_timeout_up_to_max_timeout(entry: Json) -> None:
    """What tells its progress is not dead; it ends at its longest time all the same."""
    entry = entry | {"timeout": 0.5, "max_timeout": 2}
    async with serving(servers={"box": entry}) as world:
        assert "completed" in await called(world, LONG, duration=1.2, steps=6)
        watch = Stopwatch()
        assert "did not answer within 2 s" in await called(world, LONG, duration=20, steps=100)
        assert watch.s >= 2


async def test_server_killed_during_a_call_is_reported_and_restarted(everything_server: Program) -> None:
    """The model is told before the call could have ended, the conversation goes on, and the server comes back."""
    async with serving(servers={"box": everything_server.entry}) as world:
        world.model.then(asks(LONG, duration=20, steps=1), says("I see."))
        async with world.streaming(f"use {LONG}") as stream:
            await started(world, stream)
            (pid,) = pids_of("stdio")
            os.kill(pid, signal.SIGKILL)
            assert (await stream.rest()).text == "I see."
        assert "the service 'box' ended while it ran the tool" in result(world)
        await until(world, "box", restarts=1)
        assert await called(world, "box.echo", message="hello") == "Echo: hello"


async def test_http_server_lost_during_a_call_is_reported() -> None:
    """Its call fails once its stream could not be taken up again, which is tried after a second."""
    others = set(pids_of("streamableHttp"))
    with servers.everything_over_http() as url:
        async with serving(servers={"box": {"url": url}}) as world:
            world.model.then(asks(LONG, duration=20, steps=1), says("I see."))
            async with world.streaming(f"use {LONG}") as stream:
                await started(world, stream)
                await asyncio.sleep(0.2)  # the server has read the call: a process of others, which says no word of it
                (pid,) = set(pids_of("streamableHttp")) - others
                os.kill(pid, signal.SIGKILL)
                assert (await stream.rest()).text == "I see."
            assert "the service 'box' ended while it ran the tool" in result(world)
            await until(world, "box", "error")
            assert "'box' is not running just now" in await called(world, "box.echo", message="hello")


def pids_of(word: str) -> list[int]:
    """The processes below this one that have `word` among their arguments."""
    ours = processes.find_living_process(os.getpid())
    assert ours is not None
    family = (process.pid for process in processes.list_family(ours))
    return [pid for pid in family if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
