"""Clients that leave in the middle, in every way, seen in the log of a process: nothing of ours has failed."""

import asyncio
import json
import signal
import socket
import struct
from pathlib import Path

import aiohttp
import pytest

from tests.support.gateway_process import GatewayProcess

CHAT = "/context/chat/completions"
SLEEPS = 'risk_level low tool execute_command {"command": "sleep 0.2"}'
AT_ONCE = 8


def posted(path: str, text: str, *lines: str) -> bytes:
    body = json.dumps({"model": "demo", "stream": True, "messages": [{"role": "user", "content": text}]}).encode()
    head = "\r\n".join((f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *lines))
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


UPGRADE = (
    b"GET /context/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
REQUESTS = {
    "passthrough": posted("/v1/chat/completions", "Tell me a story. " * 50),
    "a stream": posted(CHAT, "Tell me a story. " * 50),
    "a tool": posted(CHAT, SLEEPS),
    "events": posted(CHAT, SLEEPS, "X-Context-Events: 1"),
    "a held call": posted(CHAT, 'tool execute_command {"command": "rm -f x"}', "X-Context-Approvals: hold"),
    "a body that is awaited": posted(CHAT, "hi", "Expect: 100-continue").partition(b"{")[0],
    "half a body": posted(CHAT, "hi" * 10_000)[:5000],
    "metrics": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a page": b"GET /context/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a WebSocket": UPGRADE,
    "garbage in a WebSocket": UPGRADE + bytes(range(256)),
    "garbage": bytes(range(256)),
}


async def leave(port: int, request: bytes, *, ending: str, reads: bool) -> None:
    """Sends the request, reads a byte of the answer if `reads`, and leaves."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    if reads:
        await reader.read(1)
    if ending == "reset":
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif ending == "half-close":
        writer.write_eof()
        await reader.read(1)
    writer.close()


@pytest.mark.parametrize("ending", ["close", "reset", "half-close"])
async def test_leaving_client_causes_no_logged_error(tmp_path: Path, ending: str) -> None:
    """N18: whatever it had asked for, before the answer and within it, no traceback says that a request failed."""
    work = tmp_path / "work"
    work.mkdir()
    tools = {"execute_command": {"cwd": str(work), "sandbox": "none"}}
    config = {"store": f"sqlite:///{tmp_path}/gateway.db", "tools": tools, "limits": {"drain": "1s"}}
    async with GatewayProcess(json.dumps(config)) as gateway:
        for name, request in REQUESTS.items():
            whole = name not in ("a body that is awaited", "half a body")
            for reads in {False, whole and ending != "half-close"}:
                leaving = [leave(gateway.port, request, ending=ending, reads=reads) for _ in range(AT_ONCE)]
                await asyncio.gather(*leaving, return_exceptions=True)
        async with aiohttp.ClientSession(gateway.base_url) as session:  # it goes on
            body = {"model": "demo", "messages": [{"role": "user", "content": SLEEPS}]}
            async with session.post(CHAT, json=body) as response:
                assert response.status == 200
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
        told = gateway.read_stderr()
        assert "Error handling" not in told and "Traceback" not in told, told
