"""A gateway with one more page, a WebSocket, and the words to talk to it in raw frames; run as a program it echoes.

The pages are added where the application adds its own.
"""

import argparse
import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import WSMsgType, web
from gateways import until

from gateway.api.ops_pages import Handler, Route
from gateway.config import LoadedConfig, Settings, load
from gateway.lanes.listener import Listener
from gateway.lanes.router import Router
from gateway.lanes.websocket import accept_websocket
from gateway.server.app import DATA, Gateway
from gateway.server.pages.lazy_pages import LaterPages
from gateway.server.sockets import listen
from gateway.server.worker import HANDLED, run_worker
from gateway.telemetry.logs import LogSink
from gateway.telemetry.metrics import Metrics
from gateway.testing.raw_connection import Peer, PendingConnection, connect

HOST = "127.0.0.1"
PAGE = "/context/talk"
TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
#: What belongs to that key (RFC 6455 section 1.3).
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


async def echo(request: web.Request) -> web.StreamResponse:
    """Says what it hears."""
    async with accept_websocket(request) as talk:
        async for message in talk:
            if message.type is WSMsgType.TEXT:
                await talk.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await talk.send_bytes(message.data)
    return talk


class TalkingGateway(Gateway):
    """The whole gateway, and `page` at PAGE."""

    def __init__(self, loaded: LoadedConfig, *, page: Handler, sink: LogSink, metrics: Metrics) -> None:
        super().__init__(loaded, load=lambda: loaded, sink=sink, metrics=metrics)
        self.page = page

    async def _build_listener(self, router: Router, further: Sequence[Route], later: LaterPages) -> Listener:
        return await super()._build_listener(router, [("*", PAGE, self.page), *further], later)


@dataclass(frozen=True, kw_only=True)
class Talking:
    """A gateway in this process."""

    gateway: TalkingGateway
    metrics: Metrics
    log: io.StringIO
    sink: LogSink
    port: int
    host: str = HOST

    @property
    def url(self) -> str:
        return f"ws://{self.host}:{self.port}{PAGE}"

    @property
    def listener(self) -> Listener:
        return self.gateway._listeners[DATA]

    def client(self, *, rcvbuf: int | None = None) -> PendingConnection:
        return connect(self.host, self.port, rcvbuf=rcvbuf, keep_bytes=1 << 16)

    def logged(self) -> str:
        self.sink.flush()
        return self.log.getvalue()

    async def until_empty(self, *, timeout_s: float = 120.0) -> None:
        """Returns as soon as nothing is open, held or counted."""
        listener = self.listener
        await until(lambda: not (listener.connections or listener.websockets or listener.paused or listener.inflight))


@asynccontextmanager
async def talking(page: Handler = echo, *, config: Mapping[str, object] | None = None) -> AsyncIterator[Talking]:
    """Serves until the end of the block; then nothing may be left."""
    folder, log, metrics = Path.cwd(), io.StringIO(), Metrics()
    upstream = {"name": "up", "base_url": "http://127.0.0.1:9"}
    content = {"upstreams": [upstream], "store": "sqlite:///:memory:", **(config or {})}
    settings = Settings.model_validate(content, context={"folder": folder})
    loaded = LoadedConfig(settings=settings, warnings=(), file=None, folder=folder)
    sink = LogSink(log, as_json=True, secrets=(), dropped=metrics.log_line_dropped)
    gateway = TalkingGateway(loaded, page=page, sink=sink, metrics=metrics)
    await gateway.start()
    server = await asyncio.get_running_loop().create_server(gateway.get_connection_factory(DATA), HOST, 0)
    served = Talking(gateway=gateway, metrics=metrics, log=log, sink=sink, port=server.sockets[0].getsockname()[1])
    try:
        yield served
    finally:
        server.close()
        await gateway.close()
        await served.until_empty()
        sink.close()


def handshake(*lines: bytes, method: bytes = b"GET", key: bytes = KEY, version: bytes = b"13") -> bytes:
    """A client's opening; `lines` are further header lines without their CRLF."""
    return b"\r\n".join(
        [
            method + b" " + PAGE.encode() + b" HTTP/1.1",
            b"Host: localhost",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: " + version,
            b"Sec-WebSocket-Key: " + key,
            *lines,
            b"",
            b"",
        ]
    )


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes | None = b"mask") -> bytes:
    """One frame of a client; `mask` None: unmasked, as only a server may send it."""
    length = len(payload)
    marked = 0x80 if mask is not None else 0
    head = bytes([0x80 * fin | opcode])
    if length < 126:
        head += bytes([marked | length])
    elif length < 1 << 16:
        head += bytes([marked | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([marked | 127]) + length.to_bytes(8, "big")
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


async def joined(client: Peer, *lines: bytes) -> None:
    """Opens a WebSocket."""
    await client.send(handshake(*lines))
    assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")


async def heard(client: Peer, *, timeout_s: float = 120.0) -> tuple[int, bytes]:
    """The next frame of the gateway: whole, unmasked, its opcode and payload."""
    first, length = await client.read_exactly(2, timeout_s=timeout_s)
    assert first & 0xF0 == 0x80 and length < 0x80
    if length >= 126:
        length = int.from_bytes(await client.read_exactly(2 if length == 126 else 8), "big")
    return first & 0x0F, await client.read_exactly(length, timeout_s=timeout_s) if length else b""


def close_frame(code: int) -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big"))


async def closed_with(client: Peer, *, timeout_s: float = 120.0) -> int:
    """The code of the Close frame that comes, past whatever comes before it."""
    while True:
        opcode, payload = await heard(client, timeout_s=timeout_s)
        if opcode == CLOSE:
            return int.from_bytes(payload[:2], "big")


def main() -> None:
    """`run -c FILE --listen HOST:PORT`: one worker process, as `gateway run` has them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("-c", dest="config", type=Path)
    parser.add_argument("--listen")
    arguments = parser.parse_args()
    loaded = load(arguments.config, environ=os.environ, flags={"listen": arguments.listen})
    metrics = Metrics()
    sink = LogSink(sys.stderr, as_json=True, secrets=(), dropped=metrics.log_line_dropped)
    address = loaded.settings.listen
    (sock,) = listen(address.host, address.port, workers=1, join=False).sockets
    run_worker(
        lambda: TalkingGateway(loaded, page=echo, sink=sink, metrics=metrics),
        {DATA: sock},
        shared=0,
        on_ready=lambda: print("ready", flush=True),
        flush=sink.flush,
    )
    sink.close()


if __name__ == "__main__":
    main()
