"""The messages of WebSockets for responses: long ones, and those that are no text."""

import pytest
from aiohttp import WSCloseCode, WSMsgType

from tests.e2e.models import says

from .answering import answering
from .test_socket import PATIENCE_S, talking, user


async def test_long_fragmented_message_is_answered_intact() -> None:
    """Whatever its bytes, over the pieces in which it comes."""
    said = "".join(chr(0x61 + number % 26) + "ä€😀" for number in range(300_000))
    async with answering(says("Yes"), says("Yes")) as client, talking(client) as talk:
        assert (await talk.response(said))["status"] == "completed"
        assert client.sent == [user(said)]
        assert (await talk.response("Short"))["status"] == "completed"


@pytest.mark.parametrize("size", [0, 1, 400_000])
async def test_invalid_utf8_text_message_closes_the_connection(size: int) -> None:
    """RFC 6455 section 8.1, wherever the byte is that is none."""
    async with answering() as client, talking(client) as talk:
        await talk.socket._writer.send_frame(b'"' + b"x" * size + b"\xff", WSMsgType.TEXT)
        message = await talk.socket.receive(PATIENCE_S)
        assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.INVALID_TEXT)
