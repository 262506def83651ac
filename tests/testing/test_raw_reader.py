"""Bytes are counted as they come and cut where the caller says, whatever pieces they come in."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.testing.raw_reader import ReceiveBuffer
from gateway.testing.streams import PlainStream

Pair = tuple[PlainStream, ReceiveBuffer]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _address = listener.accept()
    sender, receiver = PlainStream(near), PlainStream(far)
    yield sender, ReceiveBuffer(receiver, keep_bytes=4)
    sender.close()
    receiver.close()


async def test_a_token_is_found_across_pieces(pair: Pair) -> None:
    """Cut in the middle of the token, byte by byte."""
    sender, incoming = pair
    taking = asyncio.create_task(incoming.take_until(b"\r\n\r\n"))
    for byte in b"a\r\n\r\nb":
        await sender.send(bytes([byte]))
        await asyncio.sleep(0)
    assert await taking == b"a\r\n\r\n"
    assert await incoming.take(1) == b"b"


async def test_kept_bytes_are_capped_and_the_byte_count_is_not(pair: Pair) -> None:
    """The first `keep_bytes` stay for the record."""
    sender, incoming = pair
    await sender.send(b"0123456789")
    await incoming.take(10)
    assert bytes(incoming.received) == b"0123" and incoming.n_received == 10
    assert str(incoming) == "10 bytes received so far, 0 of them not yet taken, ending in b''"


async def test_bytes_can_be_dropped(pair: Pair) -> None:
    """A count, and then all up to the FIN."""
    sender, incoming = pair
    await sender.send(b"0123456789")
    await incoming.drop(4)
    assert await incoming.take(2) == b"45"
    await sender.half_close()
    await incoming.drop_rest()
    assert incoming.at_eof and incoming.n_received == 10 and await incoming.take_rest() == b""


async def test_connection_end_before_expected_bytes_raises_eof_error(pair: Pair) -> None:
    """It names what was due and what there was."""
    sender, incoming = pair
    await sender.send(b"012")
    await sender.half_close()
    with pytest.raises(EOFError, match=r"before 4 bytes came: 3 bytes received so far, 3 .* ending in b'012'"):
        await incoming.take(4)


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"]
)
async def test_a_request_without_framing_has_no_body(pair: Pair, head: bytes) -> None:
    """It does not wait for the end, as an answer would."""
    _sender, incoming = pair
    assert await incoming.take_body(head, method="GET") == b""
