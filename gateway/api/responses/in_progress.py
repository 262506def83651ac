"""The responses that this worker answers for clients, from their first event on and until they are stored.

1. A response with a client has no row before its end: these are found here, and in no other worker.
2. The end is stored once: by the task that writes the answer for the client. If that client has left or reads slowly,
   it is stored from the run's output.
3. An end that the store does not take is stored once the store works, if the run may have run tools, or may be in the
   store. A response that its client saw fail is shown so until then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.aio.clock import wait_until_set
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.responses import StoredResponse
from gateway.contracts.storage.store import UnwrittenError
from gateway.runs.answer_log import STORE_PAUSE_S
from gateway.runs.live_run import LiveRun

log = logging.getLogger("gateway")

#: An answer whose run has ended is stored after one or two of these periods, however slowly its client reads.
LOOK_S: Final = 5.0


@dataclass(slots=True)
class OpenResponse:
    """One response under way. `streams`: its client has its id before its end."""

    row: StoredResponse
    run: LiveRun
    streams: bool
    clients: int = 0
    is_stored: bool = False
    is_due: bool = False  # its run had ended at the last look
    told: StoredResponse | None = None  # as its client saw it fail, which the store did not take
    is_doubtful: bool = False  # whether the store may have its end though it failed

    @contextmanager
    def track_storing(self, end: StoredResponse) -> Iterator[None]:
        """Note whether the store takes this end."""
        try:
            yield
        except UnwrittenError as error:
            self.told = None if end.state in ("completed", "incomplete") else end
            self.is_doubtful |= error.code == "store_uncertain"
            raise
        self.is_stored = True

    @property
    def may_be_found(self) -> bool:
        """Return whether the store may have the run or its response, which then is found there without its end."""
        error = self.run.error
        is_doubtful = self.is_doubtful or (isinstance(error, GatewayError) and error.code == "store_uncertain")
        return is_doubtful or self.run.may_act


#: Stores a response whose run has ended. Raises UnwrittenError.
End: TypeAlias = Callable[[OpenResponse], Awaitable[None]]


@dataclass(slots=True)
class OpenResponses:
    """The responses under way in one worker."""

    _open: dict[str, OpenResponse] = field(default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    _timer: asyncio.TimerHandle | None = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    def find(self, response_id: str, *, tenant: str) -> OpenResponse | None:
        """Return a response under way. None: it is none of this worker, or of another tenant."""
        one = self._open.get(response_id)
        return one if one is not None and one.row.tenant == tenant else None

    @contextmanager
    def hold_response(self, row: StoredResponse, run: LiveRun, *, streams: bool, end: End) -> Iterator[None]:
        """Hold a response while a client reads it. `end` stores it if the client leaves before that is done."""
        one = self._open.get(row.id)
        if one is None or one.run is not run:
            one = self._open[row.id] = OpenResponse(row, run, streams)
        one.streams |= streams
        one.clients += 1
        if self._timer is None:
            self._schedule_storing(end)
        try:
            yield
        except GatewayError:
            self._close_answered(one, end)
            raise
        except BaseException:
            if one.is_stored or one.clients > 1:
                self._leave_response(one)
            else:
                self._end_later(one, end, then=self._leave_response)
            raise
        self._close_answered(one, end)

    async def close(self) -> None:
        """Wait until the ends of responses whose clients have left are stored, or the store has taken them for once.

        Call it once the runs have ended.
        """
        self._closing.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ending:
            await asyncio.wait(self._ending)

    def _close_answered(self, one: OpenResponse, end: End) -> None:
        """Leave a response whose client was answered. One whose answer the store did not take stays open until then."""
        is_owed = (one.run.attendance.untold and one.run.done) or (one.told is not None and one.may_be_found)
        if is_owed and not one.is_stored and one.clients == 1:
            self._end_later(one, end, then=self._leave_response)
        else:
            self._leave_response(one)

    def _leave_response(self, one: OpenResponse) -> None:
        one.clients -= 1
        if one.clients <= 0 and self._open.get(one.row.id) is one:
            del self._open[one.row.id]

    def _end_later(self, one: OpenResponse, end: End, *, then: Callable[[OpenResponse], None] | None = None) -> None:
        async def store_once_ended() -> None:
            await one.run.wait_until_ended()
            is_told = False
            while not one.is_stored:
                try:
                    return await end(one)
                except UnwrittenError as error:
                    if not is_told:
                        log.error("the response %s is not stored: %s", one.row.id, error)
                        is_told = True
                    if not one.may_be_found or self._closing.is_set():
                        return None
                    await wait_until_set(self._closing, STORE_PAUSE_S)
            return None

        task = asyncio.get_running_loop().create_task(store_once_ended())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        if then is not None:
            task.add_done_callback(lambda _: then(one))

    def _schedule_storing(self, end: End) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._store_ended_answers, end)

    def _store_ended_answers(self, end: End) -> None:
        """Store the answers whose runs have ended since the look before this one, and which no client has read yet."""
        self._timer = None
        for one in list(self._open.values()):
            if one.is_due and not one.is_stored:
                self._end_later(one, end)
            one.is_due = one.run.done and one.run.error is None
        if self._open:
            self._schedule_storing(end)


def get_run_error(run: LiveRun) -> GatewayError:
    """Return the error that a run without a record ended with. One whose client left was cancelled by that."""
    if run.interrupted:
        return GatewayError("run_cancelled", "The client left, and the response was cancelled.")
    if isinstance(run.error, GatewayError):
        return run.error
    return GatewayError("internal_error", "The gateway failed; its log has the id of the response.")
