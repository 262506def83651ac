"""One call from its `started` line to its result. Calls run only here.

1. A call runs right behind that line; only its grant, if there is one, is read between them. A call that did not run
   is never reported as run.
2. The known outcome of a stopped call is written down. If the run has another owner by then, it is written as late.
3. A call is reported as not run only if that is certain.
4. A tool that goes on in spite of its cancellation holds up neither its run nor the end of the process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace

import orjson

from gateway.agent.budget import TimeBudget
from gateway.agent.progress import RunProgress
from gateway.aio.clock import wait_until_done
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Counters
from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import StoreError, UnwrittenError
from gateway.runs.lease import LOST
from gateway.runs.live_run import STOPPING
from gateway.runs.recorder import RunRecorder
from gateway.tools.active_config import Equipment
from gateway.tools.catalog import CatalogEntry

#: How long a tool may go on after its client is gone or its gateway stops. It gets no time if the run has a new owner.
TOOL_GRACE_S = 2.0
#: How long a cancelled tool may take to end. Then its outcome is unknown, and nothing waits for it any more.
TOOL_ENDS_S = 12.0

log = logging.getLogger("gateway")
#: Tools that went on in spite of their cancellation: a task without a reference may vanish.
_going_on: "set[asyncio.Task[CallOutcome]]" = set()


@dataclass(slots=True, kw_only=True)
class Effects:
    """The calls of one run."""

    counters: Counters
    exchange: Exchange
    recorder: RunRecorder
    budget: TimeBudget
    progress: RunProgress
    limit_chars: int

    async def run(
        self,
        number: int,
        planned: PlannedCall,
        entry: CatalogEntry,
        *,
        equipment: Equipment,
        approval: Approval | None,
        stands: Callable[[], bool],
        is_granted: Callable[[], Awaitable[bool]],
        begun: Callable[[], None],
    ) -> CallOutcome | None:
        """Run a cleared call and return its result, or None if it did not run.

        None: its clearance had changed by the time that its start was stored. `stands` returns whether the clearance is
        unchanged, and `is_granted` reads from the store whether its grant is, if there is one. `begun` reports the
        effect to the clients. Raises GatewayError: the call did not run, or its outcome is stored. Raises StoreError:
        it did not run.
        """
        if self.budget.left_s <= 0:
            raise self.budget.expiry()
        let_go = equipment.hold()
        try:
            if tainted := equipment.runner.taints(entry, planned.call, self.exchange):
                self.progress.untrusted_steps.add(number)  # from the start: it is unknown how much of a call comes back
            may_run = await self._start(number, approval, tainted=tainted, is_granted=is_granted)
            if not (may_run and stands()):
                self.recorder.withdraw(number)
                return None
            begun()
            outcome = await self._run_call(number, planned, entry, equipment, stands)
            if approval is not None and approval.edited is not None:
                arguments = orjson.dumps(planned.call.arguments).decode()
                outcome = replace(outcome, shown=f"[A person changed the arguments to {arguments}]\n{outcome.shown}")
            await self._record_outcome(number, outcome, is_last=self.exchange.job.is_one_call)
            return outcome
        finally:
            await let_go()

    async def _start(
        self, number: int, approval: Approval | None, *, tainted: bool, is_granted: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Store the start of a call, as the last step before it runs, and return whether its grant is still there then.

        A grant that is revoked later is revoked behind the start. Raises GatewayError, StoreError: the call must not
        run.
        """
        try:
            await self.recorder.start(number, approval=approval, tainted=tainted)
            may_run = await is_granted()
            await self.recorder.confirm()
        except (asyncio.CancelledError, StoreError):
            self.recorder.withdraw(number)
            raise
        except UnwrittenError:
            if self.recorder.steps[number].state == "started":  # behind that line the run may belong to another worker
                self.recorder.withdraw(number)
            raise
        except GatewayError:
            if self.recorder.steps[number].state == "started":  # the run was lost behind that line
                await self.recorder.write_late_report(number, "It did not run.")
            raise
        return may_run

    async def _run_call(
        self,
        number: int,
        planned: PlannedCall,
        entry: CatalogEntry,
        equipment: Equipment,
        stands: Callable[[], bool],
    ) -> CallOutcome:
        """Return the result of a tool within the run's time; stop the tool if the wait ends before."""
        call = replace(planned.call, harmless=planned.is_harmless, stands=stands)
        work = asyncio.get_running_loop().create_task(
            equipment.runner.run(entry, call, self.exchange, limit_chars=self.limit_chars)
        )
        try:
            return await self.budget.run_within(asyncio.shield(work))
        except BaseException as error:
            left = isinstance(error, asyncio.CancelledError) and LOST not in error.args
            grace_s = TOOL_GRACE_S if left else 0.0
            stops = isinstance(error, asyncio.CancelledError) and STOPPING in error.args
            again = entry.spec.idempotent
            await _run_to_completion(self._stop(number, work, grace_s=grace_s, again=again, goes_on=stops))
            raise

    async def _stop(
        self, number: int, work: "asyncio.Task[CallOutcome]", *, grace_s: float, again: bool, goes_on: bool
    ) -> None:
        """End a call, and write down its outcome if that is certain.

        `again`: it may run once more. `goes_on`: its run goes on in the next process, which needs its approval.
        """
        if grace_s:
            await asyncio.wait({work}, timeout=grace_s)
        ended = work.done()
        if not ended:
            work.cancel()
            await asyncio.wait({work}, timeout=TOOL_ENDS_S)
        if not work.done():
            self._abandon_call(number, work)
        outcome = _find_result(work)
        if outcome is not None and (ended or outcome.ok):  # a failure may be what stopping it led to
            await self._record_outcome(number, outcome)
        elif again:
            self.recorder.reset_call(number, self.recorder.steps[number].approval_id if goes_on else None)
        else:
            await self._record_outcome(number, None)

    def _abandon_call(self, number: int, work: "asyncio.Task[CallOutcome]") -> None:
        """Stop waiting for a tool that does not end. The log records that, and its outcome if it ends after all."""
        which = f"the tool {self.recorder.steps[number].tool!r} of the run {self.exchange.id} (step {number})"
        log.error("%s was cancelled %g s ago and goes on: its outcome is unknown", which, TOOL_ENDS_S)

        def report_late_end(ended: "asyncio.Task[CallOutcome]") -> None:
            _going_on.discard(ended)
            outcome = _find_result(ended)
            how = "without a result" if outcome is None else "with a result" if outcome.ok else "with a failure"
            log.error("%s has ended after all, %s", which, how)

        _going_on.add(work)
        work.add_done_callback(report_late_end)

    async def _record_outcome(self, number: int, outcome: CallOutcome | None, *, is_last: bool = False) -> None:
        """Write down the outcome of a call, or leave it to the end of the run; None if it is unknown.

        Raises GatewayError: another owner has the run.
        """
        tool = self.recorder.steps[number].tool
        if outcome is None:
            self.counters.count("unknown_outcomes", tool=tool)
        try:
            ok = outcome is not None and outcome.ok
            await self.recorder.write_outcome(number, outcome, ok=ok, is_last=is_last)
        except GatewayError:
            self.counters.count("late_outcomes", tool=tool)
            raise


def _find_result(work: "asyncio.Task[CallOutcome]") -> CallOutcome | None:
    """Return the result of a call that has one."""
    return None if not work.done() or work.cancelled() or work.exception() is not None else work.result()


async def _run_to_completion(work: Coroutine[object, object, None]) -> None:
    """Wait for `work` through any number of cancellations. The first one is the reason to stop."""
    task = asyncio.get_running_loop().create_task(work)
    await wait_until_done(task)
    task.result()
