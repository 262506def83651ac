"""Chat completions as a dialect: the request is what models get anyway, and each chunk of the run is one frame."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.chat import ENDPOINT
from gateway.dialects.chat.body import read_chat_request
from gateway.dialects.chat.reply import Completion, CompletionFacts, Frames
from gateway.dialects.chat_request import brings_tool_results, get_whole_text, lets_server_search
from gateway.dialects.dialect import Dialect, DialectDescription, ParsedRequest, Wishes

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class ChatAnswer:
    """One chat completion."""

    def __init__(self, body: Json, *, run_id: str, created_s: float) -> None:
        self._turn = CompletionFacts.from_request(run_id, body, created_s=created_s)
        self._body = body

    @property
    def usage(self) -> Json | None:
        return self._turn.usage

    @property
    def headers(self) -> Mapping[str, str]:
        return _NO_HEADERS

    def build_stream_writer(self) -> Frames:
        """Return the writer of a stream, with usage if the client requests it."""
        options = self._body.get("stream_options")
        usage = isinstance(options, dict) and options.get("include_usage") is True
        return Frames(self._turn, include_usage=usage)

    def build_whole(self, chunks: Sequence[Chunk]) -> bytes:
        """Return the chat completion."""
        completion = Completion(self._turn)
        for chunk in chunks:
            completion.add(chunk)
        return completion.build_body()


class ChatDialect:
    """See `Dialect`."""

    endpoint = ENDPOINT
    description = DialectDescription(
        operation="createChat",
        request="ChatRequest",
        answer="Chat",
        stream="The answer, or a stream of `chat.completion.chunk` events.",
    )

    def parse(self, content: bytes, *, needs_model: bool) -> ParsedRequest:
        """Return the request, checked. Raises GatewayError."""
        return parse_request(read_chat_request(content, needs_model=needs_model))

    def build_writer(self, asked: ParsedRequest, *, run_id: str, created_s: float) -> ChatAnswer:
        """Return the writer of the chat completion."""
        return ChatAnswer(asked.body, run_id=run_id, created_s=created_s)


def parse_request(body: Json) -> ParsedRequest:
    """Return a chat completion request as `ParsedRequest`."""
    wishes = Wishes(tainted=brings_tool_results(body["messages"]) or lets_server_search(body))
    return ParsedRequest(body=body, text=get_whole_text(body), streams=body.get("stream") is True, wishes=wishes)


DIALECT: Dialect = ChatDialect()
