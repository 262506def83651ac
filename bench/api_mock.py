"""A model that speaks all three APIs, on threads of this process: it answers by the path of a request.

Its answers have as many events of text as `events` says. They come in one piece; with `paced`, each waits for
`count_seen` to name the one before it.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from bench.model_apis import write_chat, write_messages, write_responses
from gateway.contracts.model_apis import API_PATHS

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_WRITERS: Final = {"chat": write_chat, "messages": write_messages, "responses": write_responses}
#: Stands in each text, so that a client can count them.
WORD: Final = b" word "


class ApiMock:
    """The server under way."""

    def __init__(self) -> None:
        self.events = 8
        self.paced = False
        self.one_chunk = False  # all events in one chunk, as behind a proxy that collects them
        self._seen = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._listener.close()

    def count_seen(self, count: int) -> None:
        """Let as many further events go as have arrived at the client."""
        for _ in range(count):
            self._seen.release()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        while line := reader.readline():
            path, size = line.split(b" ")[1], 0
            while (field := reader.readline().lower()) != b"\r\n":
                if field.startswith(b"content-length:"):
                    size = int(field.partition(b":")[2])
            reader.read(size)
            name = next(name for name, end in API_PATHS.items() if path.endswith(end))
            self._answer(connection.sendall, _WRITERS[name](_build_text, self.events))

    def _answer(self, send: Callable[[bytes], object], frames: list[bytes]) -> None:
        if self.one_chunk:
            frames = [b"".join(frames)]
        chunks = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames]
        if not self.paced:
            send(_HEAD + b"".join(chunks) + b"0\r\n\r\n")
            return
        while self._seen.acquire(blocking=False):
            pass  # of the answer before, whose end may repeat its text
        send(_HEAD)
        for frame, chunk in zip(frames, chunks, strict=True):
            send(chunk)
            if WORD in frame:
                self._seen.acquire(timeout=60)
        send(b"0\r\n\r\n")


def _build_text(number: int) -> str:
    return f"{WORD.decode()}{number:04}"
