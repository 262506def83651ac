"""The signatures and the behaviour of the SDK that `gateway.mcp` depends on. A new SDK that changes one fails here.

Each failure names the changed thing and the file that depends on it.
"""

import ast
import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp.client import ClientSession
from mcp.client.subscriptions import listen
from mcp.shared.dispatcher import Dispatcher, run_notify_intercept
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    jsonrpc_message_adapter,
)
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from gateway.mcp.connection import _CLOSED

ROOM = Path(__file__).parents[2] / "gateway" / "mcp"
SDK = {"mcp", "mcp_types"}

#: Each function of the SDK that we call, or that calls us, with the arguments of that call, and the file it is in.
CALLED: list[tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...], str]] = [
    (ClientSession, (), ("dispatcher", "message_handler", "client_info"), "connection.py"),
    (ClientSession.initialize, ("self",), (), "connection.py"),
    (ClientSession.discover, ("self",), (), "connection.py"),
    (ClientSession.list_tools, ("self",), ("params",), "connection.py"),
    (ClientSession.send_request, ("self", "request", "type"), ("progress_callback",), "connection.py"),
    (Dispatcher.run, ("self", "on_request", "on_notify", "intercept"), ("task_status",), "connection.py"),
    (Dispatcher.send_raw_request, ("self", "method", "params", "opts"), (), "connection.py"),
    (Dispatcher.notify, ("self", "method", "params", "opts"), (), "connection.py"),
    (JSONRPCDispatcher, ("read", "write"), (), "transport"),
    (listen, ("session",), ("tools_list_changed",), "connection.py"),
    (validate_server_result, ("method", "version", "result"), (), "connection.py"),
    (JSONRPCDispatcher.run, ("self", "on_request", "on_notify"), ("task_status",), "transport/http_dispatcher.py"),
    (run_notify_intercept, ("intercept", "method", "params"), (), "transport/http_dispatcher.py"),
]


@pytest.mark.parametrize("called", CALLED, ids=lambda called: called[0].__qualname__)
def test_sdk_signatures_accept_the_gateway_calls(
    called: tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...], str],
) -> None:
    """Every call of ours binds, and needs no further argument."""
    function, positional, named, file = called
    signature, problem = inspect.signature(function), ""
    try:
        signature.bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        problem = str(error)
    assert not problem, f"the SDK's {function.__qualname__}{signature}: {problem}; change gateway/mcp/{file}"


def test_sdk_dispatcher_protocol_has_no_additional_methods() -> None:
    """Else `connection._Wire` lacks it."""
    methods = {name for name in dir(Dispatcher) if not name.startswith("_")}
    assert methods == {"run", "notify", "send_raw_request"}, (
        f"the SDK's Dispatcher has the methods {methods}: give gateway/mcp/connection.py's _Wire the same"
    )


def test_sdk_session_exposes_the_handshake_properties() -> None:
    """`connection.McpConnection` reads them."""
    for name in ("protocol_version", "server_capabilities"):
        assert isinstance(inspect.getattr_static(ClientSession, name), property), f"the SDK's session has no {name}"


@pytest.mark.parametrize("file", sorted(ROOM.rglob("*.py")), ids=lambda file: file.name)
def test_no_private_name_of_the_sdk_is_used(file: Path) -> None:
    """Neither a private module nor a private name of a public one."""
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            assert parts[0] not in SDK or not any(part.startswith("_") for part in parts), (
                f"{file.name}:{node.lineno} imports {name}, which the SDK may rename in any version"
            )


# The dispatcher (`connection._Wire`).


async def _nothing(*_: object) -> dict[str, Any]:
    return {}


async def test_sdk_dispatcher_fails_its_requests_when_the_stream_ends() -> None:
    """`run` returns. A waiting request and a later one fail, with a code and a text that `connection._mapped` knows."""
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](1)
    dispatcher = JSONRPCDispatcher(read, write)
    with read, write, from_session:
        async with anyio.create_task_group() as tasks:
            await tasks.start(dispatcher.run, _nothing, _nothing)
            waiting = asyncio.create_task(dispatcher.send_raw_request("tools/call", {}))
            await from_session.receive()
            to_session.close()
        for request in (waiting, dispatcher.send_raw_request("tools/call", {})):
            with pytest.raises(MCPError) as failure:
                await request
            _check_lost(failure.value)


async def test_sdk_session_keeps_meta_of_results() -> None:
    """A result that `_Wire` replaces keeps its `_meta`, where the raw one is."""

    class Replacing:
        async def run(self, on_request: Any, on_notify: Any, intercept: Any = None, *, task_status: Any) -> None:
            task_status.started()
            await anyio.sleep_forever()

        async def notify(self, method: str, params: Any, opts: Any = None) -> None: ...

        async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
            if method == "initialize":
                server = {"name": "s", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
            return {"content": [], "resultType": "complete", "_meta": {"raw": {"odd": 1}}}

    async with ClientSession(dispatcher=Replacing()) as session:
        await session.initialize()
        request = CallToolRequest(params=CallToolRequestParams(name="look", arguments={}))
        result = await session.send_request(request, CallToolResult)
    assert result.meta == {"raw": {"odd": 1}}, (
        f"the SDK drops `_meta` of a result ({result!r}): gateway/mcp/connection.py needs another way for raw results"
    )


def test_sdk_refuses_a_tool_list_with_one_invalid_tool() -> None:
    """So `_Wire` asks for each tool by itself. If this test fails, `_Wire._is_valid_tool` may no longer be needed."""
    good: dict[str, Any] = {"name": "a", "inputSchema": {"type": "object"}}
    for version in ("2025-11-25", "2026-07-28"):
        page = {"tools": [good], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        validate_server_result("tools/list", version, page)
        with pytest.raises(ValidationError):
            validate_server_result("tools/list", version, {**page, "tools": [good, {"name": "b"}]})


# Standard input and output (`transport.stdio`).


def test_sdk_writes_a_message_unchanged() -> None:
    """One line, with the protocol's names, and without fields that nobody set."""
    line = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}'
    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    assert message.model_dump_json(by_alias=True, exclude_unset=True) == line


def _check_lost(error: Any) -> None:
    is_known = error.code == CONNECTION_CLOSED and error.message.startswith(_CLOSED)
    assert is_known, (
        f"the SDK reports the end of a connection as {error.message!r} ({error.code}): add it to _CLOSED in "
        "gateway/mcp/connection.py, or calls that were lost look like answers of the server"
    )
