"""The events of one message as server-sent events, in Anthropic's order.

A piece of a text costs its JSON, between bytes that its block has once.
"""

from typing import Final

import orjson

from gateway.contracts.storage.store import Json

PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
#: The field of a delta that has its piece, by the type of the delta.
_PIECES: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
DELTA_END: Final = b"}}\n\n"


def encode_delta_head(index: int, kind: str) -> bytes:
    """Return the part of a delta event that stands in front of its piece; DELTA_END stands behind."""
    return b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":' % (
        index,
        kind.encode(),
        _PIECES[kind].encode(),
    )


def encode_event(kind: str, fields: Json) -> bytes:
    """Return an event of a type."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


class BlockEvents:
    """The events of the blocks of one message, since they were last taken."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: list[bytes] = []

    def start(self, index: int, block: Json) -> None:
        """Add the event that a block begins."""
        self._frames.append(encode_event("content_block_start", {"index": index, "content_block": block}))

    def add_piece(self, head: bytes, piece: str) -> None:
        """Add a piece of a block, behind what `encode_delta_head` returned."""
        self._frames.append(b"%b%b%b" % (head, orjson.dumps(piece), DELTA_END))

    def add_citation(self, index: int, citation: Json) -> None:
        """Add a citation of a text."""
        delta = {"type": "citations_delta", "citation": citation}
        self._frames.append(encode_event("content_block_delta", {"index": index, "delta": delta}))

    def stop(self, index: int) -> None:
        """Add the event that a block is whole."""
        self._frames.append(b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index)

    def take_frames(self) -> bytes:
        """Return the events since the last time."""
        frames = b"".join(self._frames)
        self._frames.clear()
        return frames


class NoBlockEvents(BlockEvents):
    """The events of a message that is not streamed: none."""

    __slots__ = ()

    def start(self, index: int, block: Json) -> None:
        del index, block

    def add_piece(self, head: bytes, piece: str) -> None:
        del head, piece

    def add_citation(self, index: int, citation: Json) -> None:
        del index, citation

    def stop(self, index: int) -> None:
        del index
