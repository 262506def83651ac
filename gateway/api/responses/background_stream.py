"""A background response as a stream of events, read from its log: from any event on, any number of times."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiohttp import HttpVersion11, web

from gateway.api.events.pages import STREAM_HEADERS
from gateway.api.responses.idempotency import find_repeated_response
from gateway.api.responses.response_store import KeptResponses
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.responses import StoredResponse
from gateway.contracts.storage.store import StoreError
from gateway.runs.answer_log import parse_end_entry
from gateway.runs.lease import build_interrupted_error

log = logging.getLogger("gateway")

Read = TypeVar("Read")

#: A reader that has waited so long looks whether the run has ended in a process that died before it reported so.
LOOK_S: Final = 2.0


@dataclass(slots=True)
class ResponseStreams:
    """The open streams of one worker."""

    kept: KeptResponses
    keepalive_s: Callable[[], float]
    _open: set[asyncio.Task[Any]] = field(default_factory=set)
    _closing: bool = False

    async def close(self) -> None:
        """End all streams, now and from now on. A client continues from its last event elsewhere. Idempotent."""
        self._closing = True
        for task in list(self._open):
            task.cancel()

    async def wait_until_ended(self, row: StoredResponse) -> StoredResponse:
        """Return the response of an earlier request, which another worker may answer, once it has ended.

        Raises GatewayError (idempotency_in_use), StoreError.
        """
        while row.output is None:
            await asyncio.sleep(LOOK_S / 4)
            row = await find_repeated_response(self.kept.find(row.id, tenant=row.tenant))
        return row

    async def retell(self, request: web.Request, row: StoredResponse, *, headers: dict[str, str]) -> web.StreamResponse:
        """Write the events of a response that has its own client: the first ones now, the rest at its end."""
        response = await _open_event_stream(request, headers)
        stream = self.kept.build_answer(row).build_stream_writer()
        await response.write(stream.build_first_frame())
        ending = self._open_streams(self._read_output(row))
        try:
            while not (await asyncio.wait({ending}, timeout=self.keepalive_s()))[0]:
                await response.write(stream.build_keepalive())
            frames = stream.render_ended_response(ending.result())
        except GatewayError as error:  # it was deleted
            frames = stream.build_error_frames(error, request_id=row.id)
        finally:
            ending.cancel()
            self._open.discard(ending)
        await response.write_eof(frames)
        return response

    def _open_streams(self, work: Coroutine[Any, Any, Read]) -> asyncio.Task[Read]:
        """Return a task that ends with all streams."""
        task = asyncio.get_running_loop().create_task(work)
        self._open.add(task)
        if self._closing:
            task.cancel()
        return task

    async def _read_output(self, row: StoredResponse) -> bytes:
        return (await self.wait_until_ended(row)).output or b""

    async def write_events(
        self, request: web.Request, row: StoredResponse, *, after: int, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Write the events behind number `after` as they come, up to the end."""
        response = await _open_event_stream(request, headers)
        task = self._open_streams(self._follow_log(response, row, after=after))
        try:
            await asyncio.wait({task})
            task.result()
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
        except StoreError as error:
            # The head is out: the client comes back for what it lacks.
            log.error("the stream of response %s ends early: the store failed: %s", row.id, error)
        finally:
            task.cancel()
            self._open.discard(task)
        await response.write_eof()
        return response

    async def _follow_log(self, response: web.StreamResponse, row: StoredResponse, *, after: int) -> None:
        loop, at_s = asyncio.get_running_loop(), row.created_s
        stream = self.kept.build_answer(row, now_s=lambda: at_s).build_stream_writer(after)
        frames = stream.build_first_frame()
        written_s, looked_s, is_over = loop.time(), loop.time(), False
        async for chunks in self.kept.logs.read(row.id, tenant=row.tenant):
            frames += b"".join(stream.build_frames(chunk) for chunk in chunks if parse_end_entry(chunk) is None)
            if chunks and (end := parse_end_entry(chunks[-1])) is not None:
                at_s, failure = end
                frames += stream.finish() if failure is None else stream.build_error_frames(failure, request_id=row.id)
            if not frames and loop.time() - written_s >= self.keepalive_s():
                frames = stream.build_keepalive()
            if frames:
                await response.write(frames)
                frames, written_s = b"", loop.time()
            if not chunks and loop.time() - looked_s >= LOOK_S:
                looked_s = loop.time()
                try:
                    if is_over:  # and its log has no end still: its run is gone
                        raise build_interrupted_error(row.run_id)
                    is_over = (await self.kept.find(row.id, tenant=row.tenant)).output is not None
                except GatewayError as error:  # or it was deleted, and its log with it
                    await response.write(stream.build_error_frames(error, request_id=row.id))
                    return


async def _open_event_stream(request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
    """Return a stream of events whose head is sent, with these headers, too."""
    response = web.StreamResponse(headers=STREAM_HEADERS)
    response.headers.update(headers)
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    await response.prepare(request)
    return response
