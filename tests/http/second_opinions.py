"""Second opinions: llhttp (as httptools) and h11 read the same bytes, and say what they saw."""

from dataclasses import dataclass, field
from functools import cache

import h11
import httptools

#: h11's own bound of a head is lower than ours.
H11_LIMIT_BYTES = 1 << 20


class RefusedError(Exception):
    """A parser does not accept these bytes."""


@dataclass
class Reading:
    """A parser's reading of one message. `end`: the offset behind it, or None if it goes on behind the bytes given.

    `line`: method, target, minor version of a request; status, minor version of a response. Names are in lower case.
    """

    line: tuple[bytes, ...] = ()
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    payload: bytes = b""
    keep_alive: bool = False
    upgrade: bool = False
    expects_continue: bool = False
    end: int | None = None


class _Listener:
    """The collected callbacks of httptools."""

    parser: httptools.HttpRequestParser | httptools.HttpResponseParser

    def __init__(self) -> None:
        self.reading = Reading()
        self.url = b""
        self.whole = False
        self._list = self.reading.fields

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self._list.append((name.lower(), (value or b"").strip(b" \t")))

    def on_headers_complete(self) -> None:
        self._list = self.reading.trailers
        self.reading.keep_alive = self.parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self.reading.payload += body

    def on_message_complete(self) -> None:
        self.whole = True
        self.reading.upgrade = self.parser.should_upgrade()


def llhttp_request(data: bytes, *, guess: int) -> Reading:
    """llhttp's reading of a request. `guess`: where it is thought to end, which saves feeding it byte by byte."""
    listener = _llhttp(httptools.HttpRequestParser, data, guess)
    parser = listener.parser
    assert isinstance(parser, httptools.HttpRequestParser)
    listener.reading.line = (parser.get_method(), listener.url, parser.get_http_version()[2:].encode())
    return listener.reading


def llhttp_response(data: bytes, *, guess: int) -> Reading:
    """llhttp's reading of a response to a request that was not HEAD."""
    listener = _llhttp(httptools.HttpResponseParser, data, guess)
    parser = listener.parser
    assert isinstance(parser, httptools.HttpResponseParser)
    listener.reading.line = (b"%d" % parser.get_status_code(), parser.get_http_version()[2:].encode())
    return listener.reading


def _llhttp(kind: type, data: bytes, guess: int) -> _Listener:
    return _fed(kind, data, max(guess - 1, 0)) or _fed(kind, data, 0) or _Listener()


def _fed(kind: type, data: bytes, first: int) -> _Listener | None:
    """Feeds `first` bytes at once and then single ones until the message is whole; None if it ended in the first."""
    listener = _Listener()
    listener.parser = kind(listener)
    at = 0
    for piece in (data[:first], *(data[i : i + 1] for i in range(first, len(data)))):
        at += len(piece)
        try:
            listener.parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # Behind a message that asks for an upgrade llhttp stops with an error; the message is whole all the same.
            if not listener.whole:
                raise RefusedError(f"llhttp: {error}") from None
        if listener.whole:
            listener.reading.end = at
            return None if len(piece) > 1 else listener
    return listener


@cache
def known_to_llhttp(method: bytes) -> bool:
    """Whether llhttp takes this method in an ordinary request: it has a fixed list, and CONNECT has no body."""
    if method == b"CONNECT":
        return False
    try:
        httptools.HttpRequestParser(_Listener()).feed_data(method + b" / HTTP/1.1\r\nHost: h\r\n")
    except httptools.HttpParserError:
        return False
    return True


def h11_request(data: bytes) -> Reading:
    """h11's reading of a request, as a server."""
    return _h11(h11.Connection(h11.SERVER, max_incomplete_event_size=H11_LIMIT_BYTES), data)


def h11_response(data: bytes, *, method: bytes) -> Reading:
    """h11's reading of the answer to a `method` request that offers an upgrade, as a client."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=H11_LIMIT_BYTES)
    offer = [("Host", "h"), ("Connection", "upgrade"), ("Upgrade", "websocket")]
    connection.send(h11.Request(method=method, target="/", headers=offer))
    connection.send(h11.EndOfMessage())
    return _h11(connection, data)


def _h11(connection: h11.Connection, data: bytes) -> Reading:
    reading = Reading()
    connection.receive_data(data)
    try:
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                reading.line = (event.method, event.target, event.http_version[2:])
                reading.expects_continue = connection.they_are_waiting_for_100_continue
            elif isinstance(event, h11.Response | h11.InformationalResponse):
                reading.line = (b"%d" % event.status_code, event.http_version[2:])
            if isinstance(event, h11.Data):
                reading.payload += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                reading.trailers = [(bytes(name), bytes(value)) for name, value in event.headers]
                reading.end = len(data) - len(connection.trailing_data[0])
                break
            else:
                reading.fields = [(bytes(name), bytes(value)) for name, value in event.headers]
                if isinstance(event, h11.InformationalResponse):
                    reading.end = len(data) - len(connection.trailing_data[0])
                    break
    except h11.RemoteProtocolError as error:
        raise RefusedError(f"h11: {error}") from None
    reading.keep_alive = connection.their_state is not h11.MUST_CLOSE
    reading.upgrade = connection.their_state is h11.MIGHT_SWITCH_PROTOCOL
    return reading
