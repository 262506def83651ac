"""The connection of the SDK's session to an MCP server on standard input and output: one JSON-RPC message a line.

1. A line that is not a message is skipped and counted, and disturbs nothing. If the line shows which call it was to
   answer, that call fails at once; no other one does. An answer that shows no id ends the call if only one request is
   open. A flood of such lines ends the server, and so do its own requests whose answers it does not read.
2. The session sees the end of the stream as soon as the server has ended, closed its output, or reads no input.
3. Nothing of the server is left once the transport is closed (see `process`).
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Final, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from gateway.aio.cooperative import TimeSlice, run_cooperatively
from gateway.jsontext.strict_json import StrictJsonError
from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT, has_more_values
from gateway.mcp.transport.junk_limit import Noise
from gateway.mcp.transport.lines import ENDS_BYTES, Line, Lines
from gateway.mcp.transport.messages import MAY_HAVE_RUN, REFUSED, read_message
from gateway.mcp.transport.pending_requests import CANCELLED, ID_TOO_LONG, AnswerCountingStream, Requests, has_long_id
from gateway.mcp.transport.process import Program, ServerProcess

#: The longest line that is read as a message.
LINE_BYTES: Final = 32 << 20
#: How long a server may leave a message unread in its input before it is given up.
WRITE_S: Final = 30.0

_READ_BYTES: Final = 1 << 15
#: Between two reads of an output that no session reads any more.
_UNHEARD_S: Final = 0.001
#: How long reading what a server that is gone left in its output may take.
_END_S: Final = 1.0
_ID_DIGITS: Final = 18
#: The longest line that is looked through for the id of a call, wherever it stands.
_NAMED_BYTES: Final = 1 << 20
#: No other line is a message, or shows which call it was to answer.
_MARK: Final = re.compile(rb'"(?:jsonrpc|id)"')
_CLOSED: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError)
# An answer as any serializer writes it: its id stands at its beginning, or at its end.
_VERSION = rb'"jsonrpc"\s*+:\s*+"2\.0"\s*+'
_ID = rb'"id"\s*+:\s*+(?:([0-9]{1,18})|"([0-9]{1,18})")\s*+'
_ID_FIRST = re.compile(rb"\s*+\{\s*+(?:%s,\s*+)?%s,\s*+(?:%s,\s*+)?\"(?:result|error)\"" % (_VERSION, _ID, _VERSION))
_ID_LAST = re.compile(rb"%s(?:,\s*+%s)?\}\s*+\Z" % (_ID, _VERSION))
# An answer within a list, or behind what is no JSON; a log that only quotes one begins otherwise.
_LIKE_ANSWER = re.compile(rb'[\x00-\x20\xef\xbb\xbf]*+\[?\s*+\{\s*+"(?:jsonrpc|id|result|error)"\s*+:')
_LISTEN: Final = "subscriptions/listen"
_RESULT_FIRST = re.compile(rb"\s*+\{\s*+(?:%s,\s*+)?\"(?:result|error)\"" % _VERSION)

_Read: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]


class StdioTransport:
    """The transport over a server's standard input and output. Entering it starts the server, leaving it ends it.

    Use it once.
    """

    def __init__(
        self,
        program: Program,
        *,
        lost: Callable[[str], None] | None = None,
        line_limit_bytes: int = LINE_BYTES,
        write_limit_s: float = WRITE_S,
    ) -> None:
        """Prepare the transport. `lost` gets the reason, as text, if the stream ends before the transport is left."""
        self._program = program
        self._line_limit_bytes, self._write_limit_s = line_limit_bytes, write_limit_s
        self._lines, self._noise = Lines(limit_bytes=line_limit_bytes, mark=_MARK), Noise()
        self._requests = Requests()
        self._open: set[RequestId] = set()  # requests without an answer
        self._process: ServerProcess | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._lost = lost
        self._streams = AsyncExitStack()

    @property
    def skipped_lines(self) -> int:
        """Return the number of lines on standard output that were not messages."""
        return self._lines.skipped

    @property
    def stderr(self) -> Sequence[str]:
        """Return the server's last lines on standard error."""
        return () if self._process is None else self._process.stderr

    @property
    def returncode(self) -> int | None:
        """Return the exit code of a server that ended by itself, as shells count; None: it did not, or unknown."""
        return None if self._process is None or self._process.forced else self._process.returncode

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Dispatcher[TransportContext]:
        """Start the server. Raises StartError."""
        read, write = await self.open()
        return JSONRPCDispatcher(read, write)

    async def open(self) -> tuple[_Read, AnswerCountingStream]:
        """Start the server, and return the streams of messages from it and to it. Raises StartError."""
        process = self._process = await ServerProcess.start(self._program)
        to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        for stream in (to_session, read, write, from_session):
            self._streams.push_async_callback(stream.aclose)
        self._tasks = (
            asyncio.create_task(self._read_output(process, to_session)),
            asyncio.create_task(self._write_input(process, from_session, to_session)),
        )
        return read, AnswerCountingStream(write, self._requests)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lost = None
        # The shield is for a cancel of anyio, which comes again and again until it takes effect.
        with anyio.CancelScope(shield=True):
            # Without a session the reader only empties the server's output, so that nothing keeps it from ending.
            await self._streams.aclose()
            try:
                if self._process is not None:
                    await self._process.stop()
                    await asyncio.wait(self._tasks[:1], timeout=_END_S)  # a pipe is closed once its end is read
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.wait(self._tasks)
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                task.result()

    async def _read_output(
        self, process: ServerProcess, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        """Deliver the server's output to the session; end the connection at a flood or at its end."""
        heard = True
        with to_session, suppress(OSError):
            while data := await process.stdout.read(_READ_BYTES):
                if heard:
                    heard = await self._deliver_lines(data, to_session)
                    if (excess := self._noise.excess or self._requests.excess) is not None:
                        self._report_lost(excess)
                        to_session.close()
                        heard = False
                await asyncio.sleep(0 if heard else _UNHEARD_S)  # a flood must not keep the loop for itself
            if heard:
                self._report_lost("it closed its standard output")

    async def _deliver_lines(self, data: bytes, to_session: MemoryObjectSendStream[SessionMessage | Exception]) -> bool:
        """Deliver the lines that end in this piece; return whether there is still a session.

        Without one the output is only emptied.
        """
        turn, skipped = TimeSlice(), self._lines.skipped
        self._noise.add(size_bytes=len(data))
        for line in self._lines.feed(data):
            message = await self._parse_line(line)
            try:
                if message is not None:
                    await to_session.send(message)
            except _CLOSED:
                return False
            await turn.pause()
        self._noise.add(lines=self._lines.skipped - skipped)
        return True

    async def _write_input(
        self,
        process: ServerProcess,
        from_session: MemoryObjectReceiveStream[SessionMessage],
        to_session: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        """Write the session's messages to the server; end the connection if it stops reading."""
        # The session always gets the end of the stream: else calls would wait for their own limits.
        with to_session, from_session, suppress(*_CLOSED, OSError):
            async for outgoing in from_session:
                try:
                    text = outgoing.message.model_dump_json(by_alias=True, exclude_unset=True)
                except ValueError:  # half of a surrogate pair, say
                    if isinstance(outgoing.message, JSONRPCRequest):
                        await to_session.send(
                            _build_error_answer(outgoing.message.id, "the call cannot be written as JSON")
                        )
                    continue
                if process.stdin.is_closing():  # where asyncio ignores a write, uvloop raises
                    return
                self._note_sent(outgoing.message)
                process.stdin.write(text.encode() + b"\n")
                try:
                    async with asyncio.timeout(self._write_limit_s):
                        await process.stdin.drain()
                except TimeoutError:
                    self._report_lost(f"it read nothing of its input for {self._write_limit_s:g} s")
                    return

    def _report_lost(self, why: str) -> None:
        lost, self._lost = self._lost, None  # what comes of the first reason is none
        if lost is not None:
            lost(why)

    async def _parse_line(self, line: Line) -> SessionMessage | None:
        """Return the session's message for a line; None: it gets none."""
        problem = "is no JSON-RPC message" if line.whole else f"is longer than {self._line_limit_bytes:,} bytes"
        too_many = line.whole and await run_cooperatively(has_more_values(line.head, SERVICE_VALUES_LIMIT))
        if too_many:
            problem = f"holds more than {SERVICE_VALUES_LIMIT:,} values"
        elif line.whole and b'"jsonrpc"' in line.head:
            try:
                message = jsonrpc_message_adapter.validate_python(await read_message(line.head), by_name=False)
                if isinstance(message, JSONRPCRequest) and has_long_id(message.id):
                    problem = ID_TOO_LONG
                else:
                    self._noise.add(size_bytes=-len(line.head))
                    if isinstance(message, JSONRPCRequest):
                        self._requests.add(message.id, len(line.head))
                    elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
                        self._requests.cancel(message.params)
                    return SessionMessage(self._check_answer_id(message))
            except StrictJsonError as error:
                problem = f"is {REFUSED}: {error}"
            except ValidationError:
                pass
        self._lines.skipped += 1
        answered: RequestId | None = _find_call_id(line, anywhere=not too_many)
        if answered is None and len(self._open) == 1 and _is_like_answer(line):
            (answered,) = self._open
        if answered is None:
            return None
        self._open.discard(answered)
        return _build_error_answer(answered, f"the answer {problem}; {MAY_HAVE_RUN}")

    def _note_sent(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest) and message.method != _LISTEN:
            self._open.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            self._open.discard((message.params or {}).get("requestId", 0))

    def _check_answer_id(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """Return a message, or an error in the place of an answer whose id is that of a request but for its type."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id is None:
            return message
        if message.id in self._open:
            self._open.discard(message.id)
            return message
        meant = next((known for known in self._open if str(known) == str(message.id)), None)
        if meant is None:
            return message
        self._open.discard(meant)
        return _build_error_answer(
            meant, f"the answer has the id {json.dumps(message.id)}, and not {json.dumps(meant)}"
        ).message


def _find_call_id(line: Line, *, anywhere: bool) -> int | None:
    """Return the id of the call that a line was to answer, as far as it shows; else None.

    It shows in the beginning and the end of a line; `anywhere`: or wherever it stands in one that is whole and short.
    """
    found = _ID_FIRST.match(line.head[:ENDS_BYTES])
    if found is None and _RESULT_FIRST.match(line.head[:ENDS_BYTES]):
        found = _ID_LAST.search((line.head if line.whole else line.tail)[-ENDS_BYTES:])
    if found is not None:
        return int(found[1] or found[2])
    is_readable = anywhere and line.whole and len(line.head) <= _NAMED_BYTES and b'"id"' in line.head
    return _find_loose_id(line.head) if is_readable else None


def _is_like_answer(line: Line) -> bool:
    """Return whether a line that is not a message seems to be an answer, of whichever request."""
    ends = line.head[:ENDS_BYTES] + (line.head if line.whole else line.tail)[-ENDS_BYTES:]
    return _LIKE_ANSWER.match(ends) is not None and b'"id"' in ends and (b'"result"' in ends or b'"error"' in ends)


def _find_loose_id(content: bytes) -> int | None:
    """Return the id of an answer that is loose JSON: the first one that is a number, or digits."""
    try:
        fields = json.loads(content, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    pairs = [pair for pair in fields if isinstance(pair, tuple)] if isinstance(fields, list) else []
    if not any(name in ("result", "error") for name, _ in pairs):
        return None
    ids = (value for name, value in pairs if name == "id" and isinstance(value, str) and value.isdecimal())
    return next((int(value) for value in ids if len(value) <= _ID_DIGITS), None)


def _build_error_answer(request_id: RequestId, text: str) -> SessionMessage:
    """Return an error that the session takes for the server's answer."""
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=text)))
