"""The messages that a server sends of itself over HTTP: requests, which get answers, notifications, and progress."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import ObjectSendStream, TaskStatus
from mcp.shared.dispatcher import (
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    ProgressFnT,
    as_request_id,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, RequestId, jsonrpc_message_adapter
from pydantic import ValidationError

from gateway.mcp.transport.messages import UnreadError
from gateway.mcp.transport.pending_requests import AnswerCountingStream, Requests

#: Sends a message that has no answer, with these headers.
Send: TypeAlias = Callable[[bytes, Mapping[str, str]], Coroutine[Any, Any, None]]

_PROGRESS: Final = "notifications/progress"
_GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class ServerMessages:
    """The messages of one server. `requests` counts its requests.

    `progress_of` returns the callback for the progress of a request, or None. The SDK's `JSONRPCDispatcher` runs the
    session's handlers, and `send` sends their answers, one after the other.
    """

    def __init__(self, *, send: Send, progress_of: Callable[[RequestId], ProgressFnT | None]) -> None:
        self.requests = Requests()
        self._progress_of = progress_of
        self._to_session, self._heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._handling = JSONRPCDispatcher(self._heard, AnswerCountingStream(_Replies(send), self.requests))
        self._intercept: OnNotifyIntercept | None = None

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        """Handle the messages that were taken, until `close`."""
        self._intercept = on_notify_intercept
        await self._handling.run(on_request, on_notify, task_status=task_status)

    async def take(self, message: object) -> None:
        """Take a message other than an answer. Raises UnreadError for one that is not JSON-RPC.

        The session's intercept sees notifications before this returns, so in their order.
        """
        try:
            read = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            raise UnreadError("it is no message of JSON-RPC") from None
        if isinstance(read, JSONRPCNotification):
            if read.method == _PROGRESS:
                await self._handle_progress(read.params or {})
            if run_notify_intercept(self._intercept, read.method, read.params) or read.method == _PROGRESS:
                return
        elif not isinstance(read, JSONRPCRequest):
            return
        try:
            await self._to_session.send(SessionMessage(read))
        except _GONE:
            self.close()

    def close(self) -> None:
        """End the handling. What is taken later is dropped."""
        self._to_session.close()
        self._heard.close()

    async def _handle_progress(self, params: Mapping[str, Any]) -> None:
        token, progress, message = (
            params.get("progressToken"),
            _parse_number(params.get("progress")),
            params.get("message"),
        )
        if (request_id := as_request_id(token)) is None or progress is None:
            return
        if (told := self._progress_of(coerce_request_id(request_id))) is not None:
            await told(progress, _parse_number(params.get("total")), message if isinstance(message, str) else None)


class _Replies(ObjectSendStream[SessionMessage]):
    """The stream of answers to the server's requests. `send` sends one after the other."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._turn = asyncio.Lock()

    async def send(self, item: SessionMessage, /) -> None:
        content = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        async with self._turn:
            await self._send(content, {})

    async def aclose(self) -> None:
        """Do nothing: each answer is a separate request."""


def _parse_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
