"""A model server for `make bench-growth`: for a prompt that begins with `rounds N` it reads N files, then ends.

For `writes N` it writes them, which waits for a person.

It holds what comes after the first round for as long as it `holds`.
"""

import asyncio
import json
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self

_CHUNK: Final = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LIST: Final = b'{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"bench"}]}'
_MODELS: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_LIST) + _LIST
#: What a prompt begins with that asks for rounds of calls.
ROUNDS: Final = "rounds "
#: The same of calls that write.
WRITES: Final = "writes "


class Model:
    """Serves on a loopback port, in a thread of its own, between `with` and its end."""

    def __init__(self) -> None:
        self.port = 0
        self.asked = b""  #: the last request's body
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model", daemon=True)
        self._free = asyncio.Event()
        self._free.set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._call(self._cancel_connections())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold_answers(self, *, holds: bool) -> None:
        """Hold all answers from now on, or release them, also those that are held already."""
        self._loop.call_soon_threadsafe(self._free.clear if holds else self._free.set)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]

    async def _cancel_connections(self) -> None:
        """Cancel all connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if head.startswith(b"get "):
                    writer.write(_MODELS)
                    continue
                size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                self.asked = await reader.readexactly(size)
                text = await self._build_text(json.loads(self.asked)["messages"])
                writer.write(_HEAD)
                writer.write(_format_frame({"role": "assistant", "content": text}, None) + _format_frame({}, "stop"))
                writer.write(_build_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
                await writer.drain()
        except (EOFError, ConnectionError):
            writer.close()

    async def _build_text(self, messages: list[dict[str, Any]]) -> str:
        begins = (ROUNDS, WRITES)
        asked = max(at for at, message in enumerate(messages) if str(message["content"]).startswith(begins))
        words = str(messages[asked]["content"])
        wanted = int(words.split(maxsplit=2)[1])
        done = sum(message["role"] == "assistant" for message in messages[asked:])
        if done:
            await self._free.wait()
        return _call(done, words) if done < wanted else "Done."


def _call(number: int, words: str) -> str:
    parameters = {"operation": "read", "path": f"note{number}.txt"}
    if words.startswith(WRITES):
        parameters |= {"operation": "write", "content": f"A note.\n{words}\n"}
    return json.dumps({"tool": "file_operations", "parameters": parameters, "terminate": False})


def _format_frame(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _build_chunk(b"data: " + json.dumps({**_CHUNK, "choices": [choice]}).encode() + b"\n\n")


def _build_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
