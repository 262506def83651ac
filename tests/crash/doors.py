"""The doors of a gateway, by which calls are asked for and decided on: each returns what its client was told.

A client keeps to one connection for one case, so that one process answers it; which one that is, the kernel says.
"""

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import aiohttp
from aiohappyeyeballs import AddrInfoType
from gateways import workers_of

from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, Json
from .reading import RESPONSES
from .talk import CHAT, asking

GATEWAY: Final[Json] = {"type": "mcp", "server_label": "gateway"}
#: How long a client waits for one answer: longer than anything in the gateway waits for its store.
ANSWER_S: Final = 60.0
_MCP: Final = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "ledger",
}
_META: Final[Json] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


@dataclass(frozen=True, slots=True)
class Told:
    """An answer as its client read it. `status` None: it got none. `settled`: another try is of no use."""

    status: int | None
    text: str = ""
    code: str = ""
    settled: bool = False
    pid: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was told of a success."""
        return self.status is not None and self.status < 400 and not self.code

    @property
    def is_refused(self) -> bool:
        """Whether it was told that nothing was done."""
        return self.code == "store_full" and not self.settled


NOTHING: Final = Told(None)


@dataclass(slots=True)
class Client:
    """One client on one connection."""

    gateway: GatewayProcess
    session: aiohttp.ClientSession
    sockets: list[socket.socket]
    pid: int | None = None

    async def post(self, path: str, body: Json, **headers: str) -> Told:
        """The answer to JSON: as such, or as events."""
        return await self.send(
            "POST", path, json.dumps(body).encode(), **{"Content-Type": "application/json"} | headers
        )

    async def send(self, method: str, path: str, data: bytes | None = None, **headers: str) -> Told:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.request(
                method, path, data=data, headers=headers, allow_redirects=False
            ) as response:
                self._note_process()
                return _told(response, (await response.read()).decode(), self.pid)
        return NOTHING

    async def get(self, path: str) -> Json:
        """An answer that must come."""
        async with self.session.get(path) as response:
            assert response.status == 200, await response.text()
            found: Json = await response.json()
            return found

    def _note_process(self) -> None:
        """Ask the kernel which process has the other end of the connection, and check that it stays that one."""
        pid = process_of(self.gateway, self.sockets[-1].getsockname()[1])
        assert pid is not None and self.pid in (None, pid), "one process answers one client"
        self.pid = pid


@asynccontextmanager
async def client_of(gateway: GatewayProcess) -> AsyncIterator[Client]:
    timeout, jar = aiohttp.ClientTimeout(total=ANSWER_S), aiohttp.CookieJar(unsafe=True)
    sockets: list[socket.socket] = []

    def made(address: AddrInfoType) -> socket.socket:
        sockets.append(socket.socket(*address[:3]))
        return sockets[-1]

    connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=ANSWER_S, socket_factory=made)
    async with aiohttp.ClientSession(gateway.base_url, connector=connector, timeout=timeout, cookie_jar=jar) as session:
        yield Client(gateway, session, sockets)


def process_of(gateway: GatewayProcess, client_port: int) -> int | None:
    """The process that has the other end of a connection; None: it is closed by now."""
    wanted = (f"{gateway.port:04X}", f"{client_port:04X}")
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1].partition(":")[2], fields[2].partition(":")[2]) == wanted:
            return next((pid for pid in processes(gateway) if _has_socket(pid, fields[9])), None)
    return None


def processes(gateway: GatewayProcess) -> list[int]:
    """Those of a gateway that may answer."""
    return [gateway.pid, *(worker.pid for worker in workers_of(gateway))]


def _has_socket(pid: int, inode: str) -> bool:
    with suppress(FileNotFoundError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if str(file.readlink()) == f"socket:[{inode}]":
                    return True
    return False


def _told(response: aiohttp.ClientResponse, text: str, pid: int | None) -> Told:
    settled = response.headers.get("x-should-retry") == "false"
    error: Json | None = None
    if response.content_type == "text/event-stream":
        error = next(filter(None, map(_error_in, re.findall(r"^data: (\{.*)$", text, re.MULTILINE))), None)
    elif response.content_type == "application/json":
        error = _error_in(text)
    if error is None:
        return Told(response.status, text, pid=pid)
    settled = settled or error.get("type") == "invalid_request_error" or "may have run tools" in error["message"]
    code = error.get("code")
    if isinstance(code, int):  # of JSON-RPC
        code = (error.get("data") or {}).get("code", "")
    return Told(response.status, text, str(code), settled, pid)


def _error_in(text: str) -> Json | None:
    found = json.loads(text)
    if found.get("type") == "error" and "error" not in found:
        return found  # type: ignore[no-any-return]
    error = found.get("error")
    return error if isinstance(error, dict) and "message" in error else None


# Doors by which a call is asked for that runs without a question.


def words(name: str, n: int = 1) -> str:
    return f'tool ledger {{"run": "{name}", "n": {n}}}'


def _response(said: object, **fields: object) -> Json:
    return {"model": "demo", "input": said, "tools": [GATEWAY], **fields}


async def chat(client: Client, name: str) -> Told:
    return await client.post(CHAT, asking(words(name)))


async def chat_stream(client: Client, name: str) -> Told:
    return await client.post(CHAT, asking(words(name), stream=True))


async def response(client: Client, name: str) -> Told:
    return await client.post(RESPONSES, _response(words(name)))


async def response_stream(client: Client, name: str) -> Told:
    return await client.post(RESPONSES, _response(words(name), stream=True))


async def response_background(client: Client, name: str) -> Told:
    return await client.post(RESPONSES, _response(words(name), background=True))


async def response_socket(client: Client, name: str) -> Told:
    return await _over_socket(client, {"type": "response.create", **_response(words(name))})


async def mcp(client: Client, name: str) -> Told:
    return await _tool_call(client, name, 1)


async def workflow(client: Client, name: str) -> Told:
    return await client.post("/workflows/line/runs", {"parameters": {"run": name}})


async def workflow_async(client: Client, name: str) -> Told:
    return await client.post("/workflows/line/runs", {"parameters": {"run": name}}, Prefer="respond-async")


async def workflow_chat(client: Client, name: str) -> Told:
    return await client.post(CHAT, asking(f"/line run={name}"))


Door = Callable[[Client, str], Coroutine[object, object, Told]]
ASKING: Final[Mapping[str, Door]] = {
    "chat": chat,
    "chat, streamed": chat_stream,
    "response": response,
    "response, streamed": response_stream,
    "response, background": response_background,
    "response, WebSocket": response_socket,
    "MCP": mcp,
    "workflow": workflow,
    "workflow, async": workflow_async,
    "workflow, chat": workflow_chat,
}


# Doors by which a person decides on a call that waits.


@dataclass(frozen=True, slots=True)
class Question:
    """One call that waits, and what its client has of it."""

    approval: Json
    response_id: str = ""
    state: str = ""  # the sealed one of an MCP client

    @property
    def id(self) -> str:
        return str(self.approval["id"])

    @property
    def name(self) -> str:
        return str(self.approval["arguments"]["run"])


async def asked(client: Client, name: str, *, door: str) -> Question:
    """A question that fits the door."""
    response_id = state = ""
    if door == "MCP":
        found = json.loads((await _tool_call(client, name, ASKS)).text)
        state = found["result"]["requestState"]
    elif door.startswith("response"):
        found = json.loads((await client.post(RESPONSES, _response(words(name, ASKS)))).text)
        response_id = found["id"]
    else:
        assert (await client.post(CHAT, asking(words(name, ASKS)))).is_done
    pending = (await client.get("/context/approvals?status=pending&limit=200"))["data"]
    (approval,) = [one for one in pending if one["arguments"]["run"] == name]
    return Question(approval, response_id, state)


async def by_rest(client: Client, question: Question, decision: str) -> Told:
    return await client.post(f"/context/approvals/{question.id}", {"decision": decision})


async def by_batch(client: Client, question: Question, decision: str) -> Told:
    told = await client.post("/context/approvals/batch", {"decision": decision, "approvals": [{"id": question.id}]})
    if not told.is_done:
        return told
    (one,) = json.loads(told.text)["data"]
    return Told(one["status"], told.text, one.get("error", {}).get("code", ""), pid=told.pid)


async def by_chat(client: Client, question: Question, decision: str) -> Told:
    return await client.post(CHAT, asking(f"{decision} {question.id} {question.approval['check_word']}"))


async def by_chat_stream(client: Client, question: Question, decision: str) -> Told:
    return await client.post(CHAT, asking(f"{decision} {question.id} {question.approval['check_word']}", stream=True))


def _answer(question: Question, decision: str) -> Json:
    answer = {"approval_request_id": question.id, "approve": decision == "approve"}
    return _response([{"type": "mcp_approval_response", **answer}], previous_response_id=question.response_id)


async def by_response(client: Client, question: Question, decision: str) -> Told:
    return await client.post(RESPONSES, _answer(question, decision))


async def by_response_stream(client: Client, question: Question, decision: str) -> Told:
    return await client.post(RESPONSES, {**_answer(question, decision), "stream": True})


async def by_response_background(client: Client, question: Question, decision: str) -> Told:
    return await client.post(RESPONSES, {**_answer(question, decision), "background": True})


async def by_response_socket(client: Client, question: Question, decision: str) -> Told:
    return await _over_socket(client, {"type": "response.create", **_answer(question, decision)})


async def by_event_socket(client: Client, question: Question, decision: str) -> Told:
    return await _over_socket(client, {"type": "decide", "id": question.id, "decision": decision}, path="/context/ws")


async def by_mcp(client: Client, question: Question, decision: str) -> Told:
    answer = {"action": "accept", "content": {"decision": decision}}
    more = {"inputResponses": {"approval": answer}, "requestState": question.state}
    return await _tool_call(client, question.name, ASKS, **more)


async def by_console(client: Client, question: Question, decision: str) -> Told:
    path = f"/console/approvals/{question.id}"
    page = await client.send("GET", path)
    token = re.search(r'name="token" value="([^"]+)"', page.text)
    assert token is not None, page
    form = urlencode({"token": token[1], "decision": decision, "sha256": question.approval["sha256"]}).encode()
    kind = "application/x-www-form-urlencoded"
    told = await client.send("POST", path, form, **{"Content-Type": kind, "Origin": client.gateway.base_url})
    return Told(told.status, told.text, "store_full" if told.status in (503, 507) else "", pid=told.pid)


async def by_command(client: Client, question: Question, decision: str) -> Told:
    arguments = ("approvals", decision, question.id, "--url", client.gateway.base_url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        stdin=asyncio.subprocess.DEVNULL,
    )
    text = (await process.communicate())[0].decode()
    if process.returncode == 0:
        return Told(200, text)
    return Told(507, text, "store_full" if "so nothing has changed" in text else "other")


Deciding = Callable[[Client, Question, str], Coroutine[object, object, Told]]
DECIDING: Final[Mapping[str, Deciding]] = {
    "REST": by_rest,
    "batch": by_batch,
    "chat": by_chat,
    "chat, streamed": by_chat_stream,
    "response": by_response,
    "response, streamed": by_response_stream,
    "response, background": by_response_background,
    "response, WebSocket": by_response_socket,
    "WebSocket of events": by_event_socket,
    "MCP": by_mcp,
    "console": by_console,
    "command": by_command,
}


async def _tool_call(client: Client, name: str, n: int, **more: object) -> Told:
    params = {"name": "ledger", "arguments": {"run": name, "n": n}, "_meta": _META, **more}
    return await client.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, **_MCP)


async def _over_socket(client: Client, message: Json, *, path: str = RESPONSES) -> Told:
    """The end of what a WebSocket answers to one message. It takes its connection along."""
    client.pid = None
    messages: list[Json] = []
    with suppress(aiohttp.ClientError, TimeoutError):
        async with client.session.ws_connect(path) as opened:
            pid = process_of(client.gateway, opened.get_extra_info("sockname")[1])
            await opened.send_json(message)
            while True:
                received = await opened.receive(timeout=ANSWER_S)
                if received.type is not aiohttp.WSMsgType.TEXT:
                    return NOTHING
                if received.data == "[DONE]":
                    continue
                messages.append(json.loads(received.data))
                if (told := _end_of(messages[-1])) is not None:
                    return Told(told.status, json.dumps(messages), told.code, told.settled, pid)
    return NOTHING


def _end_of(message: Json) -> Told | None:
    """What the last message of an answer says; None: others follow."""
    kind, error = message.get("type"), message.get("error")
    if kind == "error" or (kind == "decision" and error):
        assert isinstance(error, dict)
        settled = error.get("type") == "invalid_request_error" or message.get("status") == 422
        return Told(message.get("status", 500), code=str(error["code"]), settled=settled)
    if kind in ("response.completed", "response.incomplete", "response.failed") or message.get("status") == 200:
        return Told(200, code="failed" if kind == "response.failed" else "")
    return None
