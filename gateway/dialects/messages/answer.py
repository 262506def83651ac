"""The answer to a request of Messages, as a stream of events or as one message.

The first event has no tokens, as nothing is counted before the model answers. The last event but one has those of the
whole turn.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.messages.content import AnswerContent
from gateway.dialects.messages.errors import ID_HEADER, build_error
from gateway.dialects.messages.events import DELTA_END, PING, STOP, BlockEvents, NoBlockEvents, encode_event
from gateway.dialects.messages.usage import build_usage, find_stop

_ID: Final = "msg_"


class MessagesAnswer:
    """One message. `stops` are the stop sequences of the request."""

    def __init__(self, *, request_id: str, model: str, stops: Sequence[str], shows_calls: bool) -> None:
        self._request_id = request_id
        self._digits = request_id.removeprefix("run_")
        self._model = model
        self._stops = stops
        self._shows_calls = shows_calls
        self._content: AnswerContent | None = None

    @property
    def usage(self) -> Json | None:
        return None if self._content is None else self._content.turn.usage

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the id of the request under the name that Anthropic's clients read."""
        return {ID_HEADER: self._request_id}

    def build_stream_writer(self) -> "MessageStream":
        """Return the writer of a stream."""
        events = BlockEvents()
        self._content = self._build_content(events)
        return MessageStream(self, self._content, events)

    def build_whole(self, chunks: Sequence[Chunk]) -> bytes:
        """Return the message of a run that has ended, as JSON. Raises GatewayError."""
        content = self._content = self._build_content(NoBlockEvents())
        for chunk in chunks:
            content.take(chunk)
        content.end()
        return orjson.dumps(
            {**self.build_message(), "content": content.blocks, **self.build_end()} | self._build_usage()
        )

    def build_message(self) -> Json:
        """Return the message as it begins."""
        return {
            "id": _ID + self._digits,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": build_usage(None),
        }

    def build_end(self) -> Json:
        """Return the fields about the end of the message."""
        assert self._content is not None
        turn = self._content.turn
        reason, sequence = find_stop(turn, refuses=self._content.refuses, stops=self._stops)
        found: Json = {"stop_reason": reason, "stop_sequence": sequence}
        if reason == "refusal" and isinstance(details := turn.about_choice.get("stop_details"), dict):
            found["stop_details"] = details
        if isinstance(container := turn.about.get("container"), dict):
            found["container"] = container
        return found

    def _build_usage(self) -> Json:
        return {"usage": build_usage(self.usage)}

    def _build_content(self, events: BlockEvents) -> AnswerContent:
        return AnswerContent(events, shows_calls=self._shows_calls, message_id=self._digits)

    def finish(self) -> bytes:
        """Return the events behind the last block."""
        return encode_event("message_delta", {"delta": self.build_end(), **self._build_usage()}) + STOP


class MessageStream:
    """The events of one streamed message."""

    def __init__(self, answer: MessagesAnswer, content: AnswerContent, events: BlockEvents) -> None:
        self._answer = answer
        self._content = content
        self._events = events
        self._head: bytes | None = None  # of an event with a piece of the text that is open

    def build_first_frame(self) -> bytes:
        return encode_event("message_start", {"message": self._answer.build_message()}) + PING

    def build_keepalive(self) -> bytes:
        return PING

    def build_frames(self, chunk: Chunk) -> bytes:
        """Return the events of a chunk; b"" for one that has nothing for the client."""
        if (head := self._head) is not None and isinstance(chunk, str) and chunk:
            return head + orjson.dumps(chunk) + DELTA_END
        self._content.take(chunk)
        self._head = self._content.text_head
        return self._events.take_frames()

    def finish(self) -> bytes:
        """Return the last events: the end of the open block, the stop reason with all tokens, and the end."""
        self._content.end()
        return self._events.take_frames() + self._answer.finish()

    def build_error_frames(self, error: GatewayError, *, request_id: str) -> bytes:
        """Return the error as an event, without an end."""
        return encode_event("error", build_error(error, request_id=request_id))
