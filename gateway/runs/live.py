"""Live runs and runs that have just finished, apart from the clients that read them.

A client that repeats its request after a broken connection joins its run instead of starting another: no tool is run
twice. A run without effects ends with its client. A run with effects waits a little for its client to come back, but no
model streams without a client meanwhile.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gateway.contracts.exchange import Exchange, Handler
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Json
from gateway.runs.idempotency_key import RequestKey, build_mismatch_error
from gateway.runs.lease import build_stopping_error
from gateway.runs.live_run import STOPPING, LiveRun
from gateway.runs.pending_questions import PendingQuestions
from gateway.runs.undelivered_answers import JOINABLE_S, OwedAnswers

#: How long a run with effects waits for its client to come back (the AI SDK repeats its request after 2 s).
GRACE_S = 3.0
#: Limits for runs without a client: their number, and the memory of their requests and answers. One may be larger.
KEPT, KEPT_BYTES = 1000, 64 << 20


class LiveRuns:
    """The runs of one worker. `later` calls a function after so many seconds; None: the event loop does.

    `owed` are the answers that the workers of this gateway owe; None: there is one worker.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        owed: OwedAnswers | None = None,
    ) -> None:
        self._clock = clock
        self._owed = owed
        self._later = later
        self._runs: dict[str, LiveRun] = {}
        self._alike: dict[str, list[LiveRun]] = {}  # by fingerprint, oldest first
        self._by_key: dict[tuple[str, str, str], LiveRun] = {}
        self._alone: dict[str, LiveRun] = {}  # runs without a client, in the order in which they lost it
        self._going_on: dict[str, LiveRun] = {}  # of these, the detached ones that have not ended
        self._alone_bytes = 0
        self._closed = False
        self.waiting = PendingQuestions()

    def mark_as_repeat(self, request_key: RequestKey) -> RequestKey:
        """Return the key as one that repeats a run if the latest run of this request exists only in the store.

        That run went on without its client and could not come to an end, or another worker owes its answer. The client
        need not mark its request as a repeat. If it never marks one, the store may have the run of a gateway that is
        gone; but an answer that this gateway's workers give or gave to a client is that client's.
        """
        self._forget_old()
        if alike := self._alike.get(request_key.fingerprint):
            is_there = _is_on_record(alike[-1])
        elif self._owed is None:
            is_there = request_key.may_repeat
        else:
            same = request_key.fingerprint
            is_there = self._owed.has(same) or (request_key.may_repeat and not self._owed.is_clients(same))
        return replace(request_key, repeats=True) if is_there else request_key

    def find(self, request_key: RequestKey) -> LiveRun | None:
        """Return the run that this request repeats, if it may join it. Raises GatewayError (idempotency_mismatch)."""
        self._forget_old()
        if request_key.idempotency_key is not None:
            run = self._by_key.get(request_key.idempotency_key)
            if run is not None and run.request_key.fingerprint != request_key.fingerprint:
                raise build_mismatch_error()
            return run if run is not None and _is_worth_joining(run) else None
        for run in reversed(self._alike.get(request_key.fingerprint, ())):
            if _is_on_record(run) or run.marks.parked or run.answer.is_deleted:
                return None
            if run.attendance.clients:
                continue
            is_late = (
                run.attendance.failure_told and run.attendance.alone_since_s < self._clock.monotonic() - JOINABLE_S
            )
            if not is_late and _is_worth_joining(run):
                # Some clients repeat a 422, too, and do not say so: an error after an effect is told again.
                return run if request_key.repeats or run.attendance.cut or run.error is not None else None
        return None

    def begin(
        self,
        exchange: Exchange,
        request_key: RequestKey,
        handler: Handler,
        *,
        detached: bool = False,
        body: Json | None = None,
        request_id: str | None = None,
    ) -> LiveRun:
        """Start a new run, or continue a stored one."""
        run = LiveRun(
            exchange, request_key, now_s=self._clock.time(), detached=detached, body=body, request_id=request_id
        )
        self._runs[run.request_id] = run
        self._alike.setdefault(request_key.fingerprint, []).append(run)
        self._mark_unattended(run)
        if request_key.idempotency_key is not None:
            self._by_key[request_key.idempotency_key] = run
        if self._owed is not None and not detached:
            run.marks.acted = partial(self._owed.begin, request_key.fingerprint)
        run.start(handler, over=self._update_ended_run)
        if self._closed:  # it waits in the store for the next process
            run.cancel(STOPPING)
        return run

    def join(self, run: LiveRun) -> None:
        """Count a client that reads the answer of the run from now on."""
        run.attendance.clients, run.attendance.cut, run.attendance.untold = run.attendance.clients + 1, False, False
        self._remove_unattended(run)
        run.mark_attended()

    def remove_client(self, run: LiveRun, *, whole: bool) -> None:
        """Remove a client from the run; `whole`: it has the answer to its end."""
        run.attendance.clients -= 1
        if run.attendance.clients:
            return
        whole = whole and not run.attendance.untold
        run.attendance.cut = not whole
        self._record_delivery(run)
        if run.answer.asks is not None:
            self.waiting.note_question(run.request_key.fingerprint, run.answer.asks)
        parks = run.marks.waits and not run.done
        if not run.detached and (parks or (not run.marks.effects and (whole or not run.done))):
            run.cancel()
            self._remove_run(run)
            if parks:
                self.waiting.note_question(run.request_key.fingerprint, run.exchange.id)
            return
        self._mark_unattended(run)
        if not run.detached and not run.done:
            run.drop_model_call()
            (self._later or asyncio.get_running_loop().call_later)(GRACE_S, lambda: self._cancel_if_unread(run))
        self._forget_old()

    def list_by_id(self, run_id: str) -> list[LiveRun]:
        """Return the live runs here whose answer is that of this stored run, its driver's among them."""
        return [run for run in self._runs.values() if run.exchange.id == run_id]

    def count_clients(self, run_id: str) -> int | None:
        """Return how many clients of this worker read the answer of a run. None: it is not of this worker."""
        clients = [run.attendance.clients for run in self.list_by_id(run_id)]
        return sum(clients) if clients else None

    @property
    def unattended_count(self) -> int:
        """Return the number of runs here that run on without a client."""
        return sum(not run.done for run in self._going_on.values())

    async def end_answers(self) -> bool:
        """Cancel the runs that have clients and no stored record, with an error. Return whether there were any.

        A run on record goes on in the next process.
        """
        runs = [
            run for run in self._runs.values() if run.attendance.clients and not run.marks.recorded and not run.done
        ]
        for run in runs:
            run.cancel(STOPPING, error=build_stopping_error())
        await asyncio.gather(*(run.end_cancelled() for run in runs))
        return bool(runs)

    async def close(self) -> None:
        """Stop all runs, and all that begin later. Idempotent."""
        self._closed = True
        runs = list(self._runs.values())
        for run in runs:
            run.cancel(STOPPING)
        await asyncio.gather(*(run.end_cancelled() for run in runs))
        for known in (self._runs, self._alike, self._by_key, self._alone, self._going_on):
            known.clear()
        self._alone_bytes = 0

    def _record_delivery(self, run: LiveRun) -> None:
        """Record for the other workers whether the last client of a run has its whole answer."""
        if self._owed is None:
            return
        if not run.attendance.cut and run.error is None:
            self._owed.mark_delivered(run.request_key.fingerprint)
        elif run.marks.effects:
            self._owed.note_lost_client(run.request_key.fingerprint)

    def _cancel_if_unread(self, run: LiveRun) -> None:
        if not run.attendance.clients:
            run.cancel()

    def _mark_unattended(self, run: LiveRun) -> None:
        """Keep a run without clients, as running on or as a finished answer, from now on."""
        if self._runs.get(run.request_id) is run:
            if not run.attendance.failure_told:
                run.attendance.alone_since_s = self._clock.monotonic()
            run.attendance.failure_told = run.error is not None
            self._remove_unattended(run)
            self._alone[run.request_id] = run
            if run.detached and not run.done:
                self._going_on[run.request_id] = run
            self._update_kept_bytes(run)

    def _update_kept_bytes(self, run: LiveRun) -> None:
        """Count the memory of a run without clients once it has ended; a live run counts nothing."""
        size_bytes = run.request_key.size_bytes + run.transcript.size_bytes
        before, run.attendance.kept_bytes = run.attendance.kept_bytes, size_bytes if run.done else 0
        self._alone_bytes += run.attendance.kept_bytes - before

    def _update_ended_run(self, run: LiveRun) -> None:
        """Count the memory of a run that has ended without a client."""
        if self._alone.get(run.request_id) is run:
            self._going_on.pop(run.request_id, None)
            self._update_kept_bytes(run)
            self._forget_old()

    def _remove_unattended(self, run: LiveRun) -> None:
        """Remove a run from the runs without clients, and its size from their sum."""
        self._going_on.pop(run.request_id, None)
        if self._alone.pop(run.request_id, None) is not None:
            self._alone_bytes -= run.attendance.kept_bytes
            run.attendance.kept_bytes = 0

    def _remove_run(self, run: LiveRun) -> None:
        """Remove a run from all indexes; its answer can be joined no more."""
        request_key = run.request_key
        self._remove_unattended(run)
        if self._runs.pop(run.request_id, None) is None:
            return
        alike = self._alike[request_key.fingerprint]
        alike.remove(run)
        if not alike:
            del self._alike[request_key.fingerprint]
        if request_key.idempotency_key is not None and self._by_key.get(request_key.idempotency_key) is run:
            del self._by_key[request_key.idempotency_key]

    def _forget_old(self) -> None:
        """Drop ended runs without a client after a while, or when there are too many."""
        oldest_s = self._clock.monotonic() - JOINABLE_S
        for _ in range(len(self._alone)):
            run = next(iter(self._alone.values()))
            are_few = len(self._alone) <= KEPT and (self._alone_bytes <= KEPT_BYTES or len(self._alone) == 1)
            if run.attendance.alone_since_s >= oldest_s and are_few:
                break
            if run.done:
                self._remove_run(run)
            else:
                self._remove_unattended(run)
                self._mark_unattended(run)  # behind all others


def _is_worth_joining(run: LiveRun) -> bool:
    """Return whether a repeated request may join the run, and not begin a new one."""
    return (run.marks.effects or run.error is None) and not (
        _is_on_record(run) or run.marks.parked or run.answer.is_deleted
    )


def _is_on_record(run: LiveRun) -> bool:
    """Return whether the live run ended here, so that its state is in the store only."""
    return run.detached and run.error is not None
