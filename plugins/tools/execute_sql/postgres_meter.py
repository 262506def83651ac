"""The meter between a transport and asyncpg, which itself bounds nothing: neither a row of 1 GB nor a list of millions.

asyncpg decodes a row at one go, and the event loop waits: 2 million addresses in a list of 24 MB take 10 seconds. Texts
take no time. So whatever becomes many objects, such as a list, has less room than a text, and is cut off before it is
decoded.
"""

import asyncio
from collections.abc import Collection, Generator, Sequence
from typing import Final, Protocol, cast

from gateway.plugin.word_lists import split_words

MAX_RECEIVED_BYTES: Final = 32 << 20  # in one call
#: In one row, of what becomes many objects; half a second of bits, a tenth of addresses. The operator may allow more.
LISTS_BYTES: Final = 256 << 10
#: Types of the server whose values become one text, or one piece of bytes.
_PLAIN: Final = split_words("text varchar bpchar name bytea json jsonb xml tsvector pg_node_tree unknown refcursor")
_ROW: Final = b"D"


class _Type(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def schema(self) -> str: ...


class Column(Protocol):
    """The part of asyncpg's description of a column that is used here."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> _Type: ...


class ConnectionMeter(asyncio.Protocol):
    """The meter of one connection, which it ends where too much comes. It is set between two messages."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._protocol = cast(asyncio.Protocol, transport.get_protocol())
        self._room_bytes = MAX_RECEIVED_BYTES
        self._columns: Collection[int] = ()
        self._lists_bytes = LISTS_BYTES
        self._reader = self._read()
        self._wanted, self._kept = next(self._reader)
        self._held = b""
        self.problem: str | None = None
        transport.set_protocol(self)

    def set_columns(self, columns: Sequence[Column], *, lists_bytes: int) -> None:
        """Bound what becomes many objects in the rows that come, which have these columns."""
        self._columns = frozenset(index for index, column in enumerate(columns) if not _is_plain(column.type))
        self._lists_bytes = max(lists_bytes, LISTS_BYTES)

    def data_received(self, data: bytes) -> None:
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            self.problem = "its rows are too large"
        else:
            self._feed(data)
        if self.problem is not None:
            self._transport.abort()
        else:
            self._protocol.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            piece = data[at : at + self._wanted] if self._kept else b""
            taken = min(self._wanted, len(data) - at)
            at, self._wanted, self._held = at + taken, self._wanted - taken, self._held + piece
            if not self._wanted:
                number, self._held = self._held, b""
                self._wanted, self._kept = self._reader.send(number)

    def _read(self) -> Generator[tuple[int, bool], bytes, None]:
        """Read messages: yield the bytes that come next, at least one, and whether they are of interest."""
        while True:
            head = yield 5, True
            left = int.from_bytes(head[1:]) - 4
            if head[:1] == _ROW and self._columns:
                yield from self._read_row(int.from_bytes((yield 2, True)))
            elif left > 0:
                yield left, False

    def _read_row(self, count: int) -> Generator[tuple[int, bool], bytes, None]:
        room = self._lists_bytes
        for index in range(count):
            size = int.from_bytes((yield 4, True), signed=True)  # -1 is NULL
            room -= size if index in self._columns else 0
            if room < 0:
                self.problem = (
                    f"a list, a record or the bits in one of its rows are larger than {self._lists_bytes} bytes:"
                    " read less of it, or cast it to text"
                )
            if size > 0:
                yield size, False


def _is_plain(kind: _Type) -> bool:
    """Return whether a value is one object, however long: asyncpg takes what it does not know for a text."""
    return kind.kind == "scalar" and (kind.name in _PLAIN or kind.schema != "pg_catalog")
