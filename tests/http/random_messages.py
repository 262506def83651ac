"""Wild messages: heads and bodies from a grammar that reaches beyond ours, some damaged; each seed makes its own."""

from random import Random

TAIL = b"GET /smug HTTP/1.1\r\nHost: h\r\n\r\n"

_METHODS = (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"QUERY", b"PROPFIND", b"M-SEARCH")
_ODD_METHODS = (b"FOO-BAR", b"get", b"CONNECT", b"TRACE", b"PRI", b"DESCRIBE", b"!#$%&'*+.^_`|~", b"G(T", b"")
_TARGETS = (
    b"/",
    b"/v1/chat/completions",
    b"/v1//a/../b/%2e%2E/%7E%41;p=1?q=a%20b+c&&x=%zz&e=",
    b"/a?",
    b'/a|b{c}\\d^e`f"<g>',
    b"*",
    b"http://example.org/v1/x?y",
    b"HTTPS://[::1]:8443?q",
    b"http://h",
)
_ODD_TARGETS = (
    b"/a#b",
    b"x:443",
    b"ftp://h/",
    b"http://u:p@h/",
    b"http:///x",
    b"/\xc3\xa9",
    b"/\xff",
    b"a/b",
    b"",
    b"/a b",
)
_HOSTS = (b"h", b"api.example.org:8080", b"127.0.0.1", b"[::1]:80", b"h:", b"a_b~c")
_ODD_HOSTS = (b"", b"a b", b"a/b", b"u:p@h", b"[::1", b"h:99999", b"h,h", b"[x]", b"h\t", b"%41")
_LENGTHS = (b"0", b"3", b"17", b"003", b"40")
_ODD_LENGTHS = (b"+3", b"-3", b"0x3", b"1_0", b"3 3", b"", b"3, 3", b"9" * 20, "٣".encode(), b"3\t", b"3.0", b'"3"')
_CODINGS = (b"chunked", b"Chunked", b"CHUNKED")
_ODD_CODINGS = (b"gzip, chunked", b"chunked, chunked", b"chunked,", b",chunked", b"identity", b"xchunked", b"chunked\t")
_ODD_CODINGS += (
    b"chunked;q=1",
    b"chunked ",
    b"",
    b"\x0bchunked",
    b'"chunked"',
    b"chunked, identity",
    b"chunke\xc4\x91",
)
_CONNECTIONS = (
    b"close",
    b"keep-alive",
    b"Close",
    b"keep-alive, close",
    b"x,\tclose",
    b"close\t, x",
    b"closed",
    b"upgrade",
)
_CONNECTIONS += (
    b"Upgrade, HTTP2-Settings",
    b"",
    b",",
    b" , close ,",
    b"clo se",
    b'"close"',
    b"x-a, Host, Content-Length",
)
_NAMES = (b"Accept", b"X-Mixed-Case", b"x-low", b"ETag", b"Set-Cookie", b"Authorization", b"X-Context-Mode", b"TE")
_NAMES += (
    b"Keep-Alive",
    b"Proxy-Connection",
    b"Content-Type",
    b"!#$%&'*+-.^_`|~",
    b"Content-Length-X",
    b"X",
    b"Trailer",
)
_VALUES = (
    b"",
    b"a",
    b"text/event-stream",
    b"a b\tc",
    b'q="x, y"',
    b"\xe9\xff\x80",
    b"timeout=5",
    b"chunked",
    b"5",
    b"a:b",
)
_BITS = (
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b"\x0b",
    b"\x7f",
    b"\x85",
    b"\xa0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"\r\n ",
    b"0",
    b"\r\n\t",
)
_BITS += (
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\r\nHost: e",
    b"HTTP/1.1",
    b"#",
    b"chunked",
    b"\r\n\r\n",
)
_EXTENSIONS = (b"", b"", b";a", b";a=b", b';a="x y"', b';a="\\""', b";a;b=c")
_ODD_EXTENSIONS = (
    b" ;a=b",
    b"; a=b",
    b";a = b",
    b";",
    b";\xe9",
    b';a="x',
    b" ",
    b"\t",
    b";a=",
    b';a="\x01"',
    b";a\0",
    b",a",
)
_TRAILERS = (b"X-Sum: 1\r\n", b"x-a:\r\n", b"ETag: \t\xe9 \r\n", b"Server-Timing: a;dur=1\r\n")
_ODD_TRAILERS = (
    b"Content-Length: 5\r\n",
    b"Host: evil\r\n",
    b"Authorization: x\r\n",
    b" X: y\r\n",
    b"X : y\r\n",
    b"X\r\n",
    b"X: y\n",
)
_ODD_TRAILERS += (
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Trailer: x\r\n",
    b"X-Context-Mode: context\r\n",
)


def pick(rng: Random, usual: tuple[bytes, ...], odd: tuple[bytes, ...] = (), *, oddity: float = 0.04) -> bytes:
    """One of the usual, or rarely one of the odd."""
    return rng.choice(odd if odd and rng.random() < oddity else usual)


def field_line(rng: Random, name: bytes, value: bytes) -> bytes:
    """A field line, its name in some case and white space around its value now and then."""
    name = rng.choice((name, name, name.lower(), name.upper()))
    space = rng.choice((b" ", b" ", b" ", b"", b"  ", b"\t", b" \t "))
    return name + b":" + space + value + rng.choice((b"", b"", b"", b"", b" ", b"\t")) + b"\r\n"


def _common_fields(rng: Random) -> list[bytes]:
    """Framing, connection and other fields that requests and responses share."""
    lines = [field_line(rng, rng.choice(_NAMES), rng.choice(_VALUES)) for _ in range(rng.randrange(5))]
    framing = rng.random()
    if framing < 0.4 or framing > 0.98:
        lines.append(field_line(rng, b"Content-Length", pick(rng, _LENGTHS, _ODD_LENGTHS)))
    if framing > 0.7 or framing < 0.01:
        lines.append(field_line(rng, b"Transfer-Encoding", pick(rng, _CODINGS, _ODD_CODINGS)))
    if rng.random() < 0.3:
        lines.append(field_line(rng, b"Connection", rng.choice(_CONNECTIONS)))
    return lines


def request(rng: Random) -> bytes:
    """A request with a body that may fit its head, and the beginning of another one."""
    method = pick(rng, _METHODS, _ODD_METHODS, oddity=0.15)
    target = pick(rng, _TARGETS, _ODD_TARGETS) if rng.random() < 0.8 else b"/" + visible(rng)
    version = b"1.1" if rng.random() < 0.9 else rng.choice((b"1.0", b"1.0", b"1.0", b"1.2", b"2.0", b"0.9", b"1"))
    lines = _common_fields(rng)
    if rng.random() < 0.97:
        lines.append(field_line(rng, b"Host", pick(rng, _HOSTS, _ODD_HOSTS)))
    if rng.random() < 0.08:
        lines.append(field_line(rng, b"Expect", pick(rng, (b"100-continue", b"100-Continue"), (b"foo",), oddity=0.2)))
    if rng.random() < 0.08:
        lines.append(field_line(rng, b"Upgrade", pick(rng, (b"websocket", b"WebSocket", b"h2c"))))
        lines.append(b"Connection: Upgrade\r\n")
    rng.shuffle(lines)
    head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version, b"".join(lines))
    return damaged(rng, head) + body_for(rng, head)


def response(rng: Random) -> bytes:
    """A response head with a body that may fit it."""
    status = rng.choice(
        (b"200", b"200", b"200", b"201", b"204", b"304", b"400", b"404", b"500", b"100", b"103", b"101", b"205")
    )
    status = pick(rng, (status,), (b"099", b"20", b"2000", b"999", b"20x", b"-20"))
    reason = rng.choice((b" OK", b" OK", b" OK", b" Many Words", b" ", b"", b" \xe9t\xe9", b" \tx"))
    version = pick(
        rng, (b"HTTP/1.1",) * 9 + (b"HTTP/1.0",), (b"HTTP/2.0", b"http/1.1", b"HTTP/1.2", b"ICY", b"HTTP/11")
    )
    lines = _common_fields(rng)
    rng.shuffle(lines)
    head = b"%b %b%b\r\n%b\r\n" % (version, status, reason, b"".join(lines))
    return damaged(rng, head) + body_for(rng, head)


def body_for(rng: Random, head: bytes) -> bytes:
    """A body such as the head may announce: chunks or bytes, and more behind them."""
    if b"chunked" in head.lower():
        return chunks(rng) + TAIL
    return rng.randbytes(rng.choice((0, 3, 17, 40))) + TAIL


def chunks(rng: Random) -> bytes:
    """A chunked body: sizes, extensions and trailers of all kinds."""
    parts = []
    for _ in range(rng.randrange(4)):
        data = rng.choice(
            (b"hello", b"\r\n", b"0\r\n\r\n", b"x" * rng.randrange(1, 40), rng.randbytes(rng.randrange(1, 20)))
        )
        parts.append(_size(rng, len(data)) + pick(rng, _EXTENSIONS, _ODD_EXTENSIONS) + b"\r\n" + data + b"\r\n")
    parts.append(
        pick(rng, (b"0", b"0", b"000"), (b"-0", b"0x0", b"")) + pick(rng, _EXTENSIONS, _ODD_EXTENSIONS) + b"\r\n"
    )
    parts += [pick(rng, _TRAILERS, _ODD_TRAILERS) for _ in range(rng.choice((0, 0, 1, 2)))]
    return b"".join(parts) + b"\r\n"


def _size(rng: Random, size: int) -> bytes:
    if rng.random() < 0.02:
        return rng.choice((b"-%x", b"+%x", b"0x%x", b" %x", b"%x ", b"%xg", b"1" * 17 + b"%x")) % size
    return rng.choice((b"%x", b"%x", b"%X", b"0%x", b"000000000%x")) % size


def visible(rng: Random) -> bytes:
    """A few characters that a target may have."""
    return bytes(rng.choice(range(0x21, 0x7F)) for _ in range(rng.randrange(12)))


def damaged(rng: Random, data: bytes) -> bytes:
    """The same bytes in half of the cases; else with one to three wounds."""
    if rng.random() < 0.5:
        return data
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        wound = rng.randrange(6)
        if wound == 0:
            data = data[:at] + rng.choice(_BITS) + data[at:]
        elif wound == 1:
            data = data[:at] + data[at + rng.choice((1, 1, 2, 5)) :]
        elif wound == 2:
            data = data[:at] + rng.randbytes(1) + data[at + 1 :]
        elif wound == 3:
            lines = data.split(b"\r\n")
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            data = b"\r\n".join(lines)
        elif wound == 4:
            data = data[:at] + data[at : at + 8].swapcase() + data[at + 8 :]
        else:
            data = data[:at] + bytes((rng.choice(range(0x21, 0x7F)),)) + data[at:]
    return data


def pieces(rng: Random, data: bytes) -> list[bytes]:
    """The same bytes as the network may deliver them: whole, byte by byte, or in a few pieces."""
    if (way := rng.random()) < 0.15:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(0 if way < 0.3 else rng.randrange(1, 6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]
