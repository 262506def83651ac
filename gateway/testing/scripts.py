"""The words of a scripted origin: whole answers, event streams, and the loop that serves them."""

import http.client
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from gateway.testing.messages import Request, is_chunked, list_values, read_content_length, read_status, split_head
from gateway.testing.raw_connection import Peer

Text = str | bytes
Headers = Iterable[tuple[Text, Text]]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"


def build_head(code: int, headers: Headers = (), *, reason: str | None = None) -> bytes:
    """Return a head with exactly these headers; nothing is added."""
    if reason is None:
        reason = http.client.responses.get(code, "")
    lines = [
        f"HTTP/1.1 {code} {reason}".encode(),
        *(_encode_text(name) + b": " + _encode_text(value) for name, value in headers),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def build_answer(status: int = 200, body: bytes = b"", headers: Headers = (), *, chunked: bool = False) -> bytes:
    """Return a response: these headers, then Content-Length or, `chunked`, one chunk; 1xx, 204, 304: no framing.

    A Content-Length or Transfer-Encoding among the headers is believed, and the body is sent as it is.
    """
    given = list(headers)
    names = {_encode_text(name).lower() for name, _ in given}
    if status < 200 or status in (204, 304) or names & {b"content-length", b"transfer-encoding"}:
        return build_head(status, given) + body
    if chunked:
        return build_head(status, [*given, ("Transfer-Encoding", "chunked")]) + build_chunk(body) + LAST_CHUNK
    return build_head(status, [*given, ("Content-Length", str(len(body)))]) + body


def build_ok_answer(body: bytes = b'{"ok":true}') -> bytes:
    """Return a 200 answer with a JSON body."""
    return build_answer(200, body, [("Content-Type", "application/json")])


def build_chunk(data: bytes) -> bytes:
    """Return `data` as one chunk; empty data gives no bytes, since an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def build_event(data: Text) -> bytes:
    """Return one server-sent event of one line of data."""
    return b"data: " + _encode_text(data) + b"\n\n"


def build_event_stream(events: Iterable[bytes]) -> bytes:
    """Return the chunked body of an event stream: a chunk per event and the last chunk. Events end in a blank line."""
    body = bytearray()
    for one in events:
        if not one.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
            raise ValueError(f"an event ends in a blank line, not so {one!r}: use event(data) to make one")
        body += build_chunk(one)
    return bytes(body) + LAST_CHUNK


def build_event_stream_answer(events: Iterable[bytes], headers: Headers = ()) -> bytes:
    """Return a whole 200 response with `build_event_stream(events)` as its body."""
    framing = (("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
    return build_head(200, [*headers, *framing]) + build_event_stream(events)


def serve(response: bytes | Callable[[Request], bytes]) -> Callable[[Peer], Awaitable[None]]:
    """Serve as a keep-alive origin: answer every request until the client leaves.

    It does what an honest origin does: 100 Continue where requested, and no body for HEAD. It closes after an answer
    that announces it, that only a close can end, or to a request that demands it.
    """

    async def run_script(peer: Peer) -> None:
        persistent = True
        while persistent:
            request_head = await peer.read_head(timeout_s=None)
            if list_values(split_head(request_head)[1], b"expect") == [b"100-continue"]:
                await peer.send(CONTINUE)
            request = await peer.finish_request(request_head, timeout_s=None)
            reply = response if isinstance(response, bytes) else response(request)
            reply_head = reply[: reply.index(b"\r\n\r\n") + 4]
            await peer.send(reply_head if request.method == b"HEAD" else reply, timeout_s=None)
            persistent = _keeps_alive(request, reply_head)

    return run_script


def _keeps_alive(request: Request, reply_head: bytes) -> bool:
    _start_line, headers = split_head(reply_head)
    options = b",".join(request.list_values(b"connection") + list_values(headers, b"connection")).lower()
    if b"close" in options or request.version != b"HTTP/1.1":
        return False
    if request.method == b"HEAD" or (code := read_status(reply_head)) in (204, 304):
        return True
    return code != 101 and (is_chunked(headers) or read_content_length(headers) is not None)


def _encode_text(text: Text) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")
