"""One call from the line that says that it starts to its result. Only here do calls run.

1. A call runs right behind that line, with nothing to wait for between them; what was not run is never told as run.
2. What is known of a call that was stopped is written down, and told late where the run is somebody else's by then.
3. "Not run" is told only where that is sure.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace

import orjson

from gateway.agent.budget import TimeBudget
from gateway.agent.progress import Progress
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.exchange import Exchange
from gateway.contracts.journal import Approval
from gateway.contracts.plugin import Counters
from gateway.contracts.store import UnwrittenError
from gateway.errors import GatewayError
from gateway.runs.lease import LOST
from gateway.runs.recorder import RunRecorder
from gateway.tools.catalog import CatalogEntry
from gateway.tools.in_use import Equipment

#: How long a tool may go on whose client is gone, or whose gateway stops; none where the run is somebody else's.
TOOL_GRACE_S = 2.0


@dataclass(slots=True, kw_only=True)
class Effects:
    """The calls of one run."""

    counters: Counters
    exchange: Exchange
    recorder: RunRecorder
    budget: TimeBudget
    progress: Progress
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
        begun: Callable[[], None],
    ) -> CallOutcome | None:
        """The result of a call that may run.

        None: what let it run had changed by the time that its start was on record, so it did not. `stands` tells; the
        clients hear of the effect by `begun`. Raises GatewayError: then it did not run, or its outcome is on record.
        """
        if self.budget.left_s <= 0:
            raise self.budget.expiry()
        let_go = equipment.hold()
        try:
            if tainted := equipment.runner.taints(entry, planned.call, self.exchange):
                self.progress.strangers.add(number)  # from the start: nobody knows how much of a call comes back
            await self._start(number, approval, tainted=tainted)
            if not stands():
                self.recorder.withdraw(number)
                return None
            begun()
            outcome = await self._called(number, planned, entry, equipment)
            if approval is not None and approval.edited is not None:
                arguments = orjson.dumps(planned.call.arguments).decode()
                outcome = replace(outcome, shown=f"[A person changed the arguments to {arguments}]\n{outcome.shown}")
            await self._finish(number, outcome)
            return outcome
        finally:
            await let_go()

    async def _start(self, number: int, approval: Approval | None, *, tainted: bool) -> None:
        """The last thing before a call runs. Raises GatewayError: then it must not."""
        try:
            await self.recorder.start(number, approval=approval, tainted=tainted)
            await self.recorder.confirm()
        except asyncio.CancelledError:
            self.recorder.withdraw(number)
            raise
        except UnwrittenError:
            if self.recorder.steps[number].state == "started":  # nobody knows whether the run is ours behind that line
                self.recorder.withdraw(number)
            raise
        except GatewayError:
            if self.recorder.steps[number].state == "started":  # the run was lost behind that line
                await self.recorder.late(number, "It did not run.")
            raise

    async def _called(
        self, number: int, planned: PlannedCall, entry: CatalogEntry, equipment: Equipment
    ) -> CallOutcome:
        call = replace(planned.call, harmless=planned.is_harmless)
        work = asyncio.get_running_loop().create_task(
            equipment.runner.run(entry, call, self.exchange, limit_chars=self.limit_chars)
        )
        try:
            return await self.budget.within(asyncio.shield(work))
        except BaseException as error:
            left = isinstance(error, asyncio.CancelledError) and LOST not in error.args
            grace_s = TOOL_GRACE_S if left else 0.0
            await _to_its_end(self._stop(number, work, grace_s=grace_s, idempotent=entry.spec.idempotent))
            raise

    async def _stop(self, number: int, work: "asyncio.Task[CallOutcome]", *, grace_s: float, idempotent: bool) -> None:
        """Ends a call, and writes down what is known of it."""
        if grace_s:
            await asyncio.wait({work}, timeout=grace_s)
        ended = work.done()
        if not ended:
            work.cancel()
            await asyncio.wait({work})
        outcome = None if work.cancelled() or work.exception() is not None else work.result()
        if outcome is not None and (ended or outcome.ok):  # a failure may be what stopping it led to
            await self._finish(number, outcome)
        elif idempotent:
            self.recorder.again(number, None)
        else:
            await self._finish(number, None)

    async def _finish(self, number: int, outcome: CallOutcome | None) -> None:
        """Writes down what came of a call; None: nobody knows. Raises GatewayError: the run is somebody else's."""
        tool = self.recorder.steps[number].tool
        if outcome is None:
            self.counters.count("unknown_outcomes", tool=tool)
        try:
            await self.recorder.finish(number, outcome, ok=outcome is not None and outcome.ok)
        except GatewayError:
            self.counters.count("late_outcomes", tool=tool)
            raise


async def _to_its_end(work: Coroutine[object, object, None]) -> None:
    """Waits, however often we are cancelled meanwhile: the reason to stop is the first one."""
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()
