"""The answer to a request of the Responses API, as a stream of events or as one object.

Everything in it follows from the chunks of the run and the id of the response. The same chunks therefore give the same
events with the same numbers, and a stream can go on behind any of them, also in another process.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.responses import ResponseState
from gateway.contracts.storage.store import Json, UntoldError
from gateway.dialects.responses.events import DONE, KEEPALIVE, NoEvents, ResponseEvents
from gateway.dialects.responses.output.assembly import Output, find_thought
from gateway.dialects.responses.output.items import REFUSAL, THOUGHT
from gateway.dialects.responses.output.resource import Resource, build_error, build_usage
from gateway.dialects.responses.output.retelling import retell
from gateway.dialects.responses.output.summary import SummaryOutput
from gateway.dialects.responses.response_metadata import ResponseFacts

#: Why an answer ends early, in the words of chat completions and of responses.
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class ResponseAnswer:
    """One response. Call `build_stream_writer` or `build_whole`, once; or `read`, and look at `build_resource`."""

    def __init__(
        self,
        facts: ResponseFacts,
        *,
        response_id: str,
        created_s: float,
        now_s: Callable[[], float],
        background: bool = False,
        seal: Callable[[str], str] | None = None,
    ) -> None:
        """`seal` returns the sealed form of a summary; a response that compacts ends with it."""
        self._resource = Resource(facts, response_id=response_id, created_s=created_s, background=background)
        self._output: Output | SummaryOutput = (
            SummaryOutput(response_id=response_id, events=NoEvents(), seal=seal)
            if facts.compacts
            else Output(facts, response_id=response_id, events=NoEvents())
        )
        self._now_s = now_s
        self._told = b""

    @property
    def status(self) -> ResponseState:
        """Return the status of the response as it stands."""
        return self._resource.status

    @property
    def json(self) -> bytes:
        """Return the Response object as JSON, once the response has ended."""
        return self._told

    @property
    def usage(self) -> Json | None:
        """Return the tokens of the turn in the names of chat completions."""
        return self._output.turn.usage

    @property
    def headers(self) -> Mapping[str, str]:
        return _NO_HEADERS

    @property
    def output(self) -> list[Json]:
        """Return the output items as they stand."""
        return [item.build_view() for item in self._output.items]

    def build_resource(self) -> Json:
        """Return the Response object in its present state."""
        self._resource.output = self.output
        return self._resource.build_view()

    def build_stream_writer(self, after: int = -1) -> "ResponseStream":
        """Return the writer of a stream that begins behind event number `after`."""
        self._output.events = ResponseEvents(after=after)
        return ResponseStream(self, self._output)

    def build_whole(self, chunks: Sequence[Chunk]) -> bytes:
        """Return the Response object of a run that has ended, as JSON."""
        self.read(chunks)
        self.end()
        return self.json

    def read(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks of the run, which are not streamed."""
        self.begin()
        take, pieces = self._output.add_chunk, list[str]()
        for chunk in chunks:
            if isinstance(chunk, str):
                pieces.append(chunk)
                continue
            if pieces:
                take("".join(pieces))
                pieces.clear()
            take(chunk)
        if pieces:
            take("".join(pieces))

    def open(self) -> None:
        """Begin the response. In the background its run may begin later."""
        response = self._resource.dump()
        self._output.events.add_response("response.created", response)
        self._output.events.add_response(f"response.{self._resource.status}", response)
        if self._resource.status == "in_progress":
            self._output.begin()

    def begin(self) -> None:
        """Note that the run has begun."""
        if self._resource.status == "queued":
            self._resource.status = "in_progress"
            self._add_lifecycle_event("response.in_progress")
        self._output.begin()

    def end(self) -> None:
        """End the response with its run: complete, or incomplete if the model was stopped.

        Raises GatewayError (upstream_error): it was to be a compaction, and the model wrote no whole summary.
        """
        self.begin()
        resource, turn = self._resource, self._output.turn
        reason = _INCOMPLETE.get(turn.finish or "")
        self._output.end("completed" if reason is None else "incomplete")
        resource.incomplete = reason
        if reason is None:
            resource.completed_at = int(self._now_s())
        self._complete_response("completed" if reason is None else "incomplete")

    def end_without_model(self) -> None:
        """End a response without a model call: its output is empty."""
        self._resource.completed_at = int(self._now_s())
        self._complete_response("completed")

    def fail(self, error: GatewayError, *, request_id: str) -> None:
        """End the response with an error of its run. A run that was cancelled on request did not fail.

        If the store failed behind the run, the client gets the error, and the response stays as it is: its end is on
        record.
        """
        resource = self._resource
        if isinstance(error, UntoldError):
            self._add_error_event(error, request_id=request_id)
            return
        self.begin()
        self._output.fail()
        cancelled = error.code == "run_cancelled"
        resource.status = "cancelled" if cancelled else "failed"
        if not cancelled:
            resource.error = build_error(error, self._add_error_event(error, request_id=request_id))
        self._set_final_fields(None if self.usage is None else build_usage(self.usage))
        self._add_lifecycle_event("response.failed")

    def _add_error_event(self, error: GatewayError, *, request_id: str) -> str:
        """Add the event of an error, and return its message with the id of the request."""
        message = f"{error.message} (request id: {request_id})" if request_id else error.message
        told = {"code": error.shown_code, "message": message, "param": error.param}
        # The SDKs read these fields at the top, the Open Responses schemas within `error`.
        self._output.events.add("error", {**told, "error": {"type": error.facts.type, **told}})
        return message

    def _complete_response(self, status: Literal["completed", "incomplete"]) -> None:
        self._resource.status = status
        self._set_final_fields(build_usage(self.usage))
        self._add_lifecycle_event(f"response.{status}")

    def _set_final_fields(self, usage: Json | None) -> None:
        """Set the output and the usage in the Response object, once they are final."""
        resource = self._resource
        resource.output, resource.usage = self.output, usage
        if self._output.turn.context.get("usage_estimated"):
            resource.add_metadata("usage_estimated", "true")

    def _add_lifecycle_event(self, kind: str) -> None:
        self._told = self._resource.dump()
        self._output.events.add_response(kind, self._told)


class ResponseStream:
    """The frames of one response. Behind `finish` or `build_error_frames` nothing comes."""

    def __init__(self, answer: ResponseAnswer, output: Output | SummaryOutput) -> None:
        self._answer = answer
        self._output = output
        self._writing = self._write()
        next(self._writing)

    @property
    def build_frames(self) -> Callable[[Chunk], bytes]:
        """Return the function that returns the frames of a chunk; b"" for one that has nothing for the client."""
        return self._writing.send

    def build_first_frame(self) -> bytes:
        """Return the events that begin a response."""
        self._answer.open()
        return self._output.events.take_frames()

    def build_keepalive(self) -> bytes:
        """Return a comment, which has no number."""
        return KEEPALIVE

    def finish(self) -> bytes:
        """Return the events that end the response."""
        self._writing.close()
        self._answer.end()
        return self._output.events.take_frames() + DONE

    def render_ended_response(self, response: bytes) -> bytes:
        """Return the events behind the first ones of a response that has ended: its items, each text in one piece."""
        self._writing.close()
        events, ended = self._output.events, orjson.loads(response)
        status = "failed" if ended["status"] == "cancelled" else ended["status"]
        retell(ended["output"], events, failed=status == "failed")
        events.add_response(f"response.{status}", response)
        return events.take_frames() + DONE

    def render_without_model(self) -> bytes:
        """Return all events of a response without a model call."""
        self._writing.close()
        self._answer.open()
        self._answer.end_without_model()
        return self._output.events.take_frames() + DONE

    def build_error_frames(self, error: GatewayError, *, request_id: str) -> bytes:
        """Return the events that end a response which failed."""
        self._writing.close()
        self._answer.fail(error, request_id=request_id)
        return self._output.events.take_frames() + DONE

    def _write(self) -> Generator[bytes, Chunk, None]:
        """Yield the frames of each chunk that is sent.

        Nearly all chunks are pieces of a text or of thoughts that have begun. A separate loop makes them as cheap as
        chunks of chat completions, which have no numbers and are not assembled.
        """
        answer, output, dumps = self._answer, self._output, orjson.dumps
        events = output.events
        chunk = yield b""
        answer.begin()
        while True:
            output.add_chunk(chunk)
            frames, part = events.take_frames(), output.part
            if part is None or not events.are_read or part.kind is REFUSAL:
                chunk = yield frames
                continue
            thinks, pieces, head = part.kind is THOUGHT, part.pieces, part.head
            add, before = pieces.append, len(pieces)
            try:
                for end in events.iterate_ends():
                    chunk = yield frames
                    piece = find_thought(chunk) if thinks else chunk
                    if not isinstance(piece, str) or not piece:
                        break
                    frames = head + dumps(piece) + end
                    add(piece)
                else:
                    chunk = yield frames
            finally:
                events.number += len(pieces) - before
