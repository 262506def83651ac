"""The seam between the API that a client speaks and the run that answers it.

A dialect parses a request to `ParsedRequest`, whose body is the chat completion request that stages and models get. It
writes the answer from the chunks that a run emits (gateway/dialects/run_chunk_reader.py reads them). Nothing else in
the gateway knows how a client's request or answer looks. A dialect is a package beside this file
(gateway/dialects/registry.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidBeside:
    """The messages of the user in a request that decides in fields, as models read them.

    The last ones, `behind` of them, follow the last answer in the request, so they may be new. `is_whole`: the request
    contains its whole conversation, so they may also be some with which the run began.
    """

    messages: tuple[Json, ...]
    behind: int
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTools:
    """Tools of the gateway that a request names: a service's tools, or the gateway's own under the label `gateway`.

    `names`: the tools that the model may call, by the service's names; None: all. `asks`: each call of these needs a
    person's approval; None: none does for this reason, `()`: all do. `url`: the address that the client expects behind
    the label. `excluded`: tools that it may not call although `names` is None. `place` is where the request names them,
    such as `tools[2]`, with the label and the address in these fields.
    """

    label: str
    place: str
    names: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()
    asks: tuple[str, ...] | None = None
    url: str | None = None
    label_field: str = "server_label"
    url_field: str = "server_url"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The wishes that a request carries in fields of its API: they narrow tools, tighten the gate, and loosen nothing.

    `offers`: tools that it names; their calls are shown to the client, and it has no others; None: it names none.
    `no_tools`: the model calls none of the gateway's. `must_call`: it must call a tool, and its body does not state
    that. `tainted`: a part of the conversation may come from an untrusted source. `thoughts`: the models' thoughts in
    it, each by itself; its body may have them joined, or leave some out. `exact_tools`: schemas of tools of the
    client's, by name: its API cannot show a call whose arguments are others. `background`: the run has no client.
    `asks_in_text`: a question about a call is text of the answer, also where calls are shown. `shown`: approvals that
    the conversation shows last, as `list_last_questions` finds them. `known_as`: the names of
    conversations that the answer is added to; None: no later request refers to the answer by an id. `answer_ids`: of
    the assistant messages of its body, in their order, the ids of the requests that they are the answers to, "" for an
    unknown one. `results`: label and name of each call of a gateway's tool whose result the conversation contains.
    """

    offers: tuple[RequestedTools, ...] | None = None
    no_tools: bool = False
    must_call: bool = False
    max_tool_calls: int | None = None
    exact_tools: Mapping[str, Json] = field(default_factory=dict)
    tainted: bool = False
    thoughts: tuple[str, ...] = ()
    known_as: tuple[str, ...] | None = None
    answer_ids: tuple[str, ...] = ()
    background: bool = False
    notes: tuple[str, ...] = ()
    asks_in_text: bool = False
    shown: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class ParsedRequest:
    """A request of a client, parsed. It is not changed after it is made.

    `text` is the last message if it is a person's and nothing but text: it may decide approvals or start a workflow.
    `decisions` are the decisions in the dialect's own fields; they count instead of `text`. `beside` are the messages
    of the user that come with them.
    """

    body: Json
    text: str
    streams: bool
    decisions: tuple[ChatDecision, ...] = ()
    beside: SaidBeside | None = None
    wishes: Wishes = Wishes()


class AnswerStream(Protocol):
    """The frames of one streamed answer."""

    def build_first_frame(self) -> bytes:
        """Return the frame that follows the head at once; b"": the API has none."""
        ...

    def build_frames(self, chunk: Chunk) -> bytes:
        """Return the frames of a chunk; b"" for one that has nothing for the client."""
        ...

    def build_keepalive(self) -> bytes:
        """Return a frame for a silent time, such as a comment; b"": the API has none."""
        ...

    def finish(self) -> bytes:
        """Return the frames that end a whole answer."""
        ...

    def build_error_frames(self, error: GatewayError, *, request_id: str) -> bytes:
        """Return the frames that end an answer which failed after its head was sent."""
        ...


class DialectAnswer(Protocol):
    """The answer to one request: either `build_stream_writer` is called, or `build_whole`, once."""

    @property
    def usage(self) -> Json | None:
        """Return the tokens of the turn in the names of chat completions, once the answer is written."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the header fields of the answer that its API has beside those of every answer."""
        ...

    def build_stream_writer(self) -> AnswerStream:
        """Return the writer of a stream."""
        ...

    def build_whole(self, chunks: Sequence[Chunk]) -> bytes:
        """Return the JSON body of an answer that is not streamed."""
        ...


class WriteError(Protocol):
    """A writer of error answers."""

    def __call__(self, error: GatewayError, *, request_id: str) -> bytes:
        """Return the JSON body."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectDescription:
    """A dialect in the description of the API: the id of its operation, and the names of its schemas.

    `stream` describes the parts of a stream. `schemas` are the schemas that the description does not have yet.
    """

    operation: str
    request: str
    answer: str
    stream: str
    schemas: Mapping[str, Json] = field(default_factory=dict)


class Dialect(Protocol):
    """An API that clients speak. `endpoint` is its path behind the base URL, such as `chat/completions`."""

    @property
    def endpoint(self) -> str:
        """Return the endpoint."""
        ...

    @property
    def description(self) -> DialectDescription:
        """Return the facts for `GET /openapi.json`."""
        ...

    def parse(self, content: bytes, *, needs_model: bool) -> ParsedRequest:
        """Return the request. `needs_model`: the configuration names no model for one that names none.

        Raises GatewayError.
        """
        ...

    def build_writer(self, asked: ParsedRequest, *, run_id: str, created_s: float) -> DialectAnswer:
        """Return the writer of the answer. `run_id` is the id of the request, which ids of the answer are made of."""
        ...
