"""Tool calls of MCP clients in workers that share one store."""

from dataclasses import dataclass

from gateway.approvals.approvals import Decision
from gateway.auth.keyring import Identity
from gateway.context.call_runs import CallRun, Done, WaitingCall, WantedCall
from gateway.context.tool_calls import ToolCalls
from gateway.contracts.caller import Caller
from gateway.contracts.risk import RiskAssessor
from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import Json
from tests.agent.agent_bench import CALLER, Harmless
from tests.agent.doubles import Clock

from .workers import Worker

CLIENT: Json = {"name": "probe", "version": "1.2"}
#: Assessors with which every call of `look` runs.
HARMLESS: dict[str, RiskAssessor] = {"look": Harmless()}


@dataclass
class Calling:
    """The tool calls of one worker."""

    worker: Worker
    calls: ToolCalls

    async def begin(self, x: object = 1, *, tool: str = "look", caller: Caller = CALLER, **facts: object) -> CallRun:
        given: dict[str, object] = {"client": CLIENT, "arguments": {"x": x}, **facts}
        wanted = WantedCall(tool=tool, identity=Identity(caller, frozenset()), **given)  # type: ignore[arg-type]
        return await self.calls.begin(wanted)

    async def held(self, x: object = 1, **facts: object) -> tuple[CallRun, Approval]:
        """Return the run of a call that is held, and its one approval."""
        run = await self.begin(x, **facts)  # type: ignore[arg-type]
        held = await self.calls.wait_for_outcome(run, wait_s=0.0)
        assert isinstance(held, WaitingCall)
        (approval,) = held.approvals
        return run, approval

    async def done(self, run: CallRun, *, wait_s: float = 30.0) -> Done:
        done = await self.calls.wait_for_outcome(run, wait_s=wait_s)
        assert isinstance(done, Done)
        return done

    async def called(self, x: object = 1, **facts: object) -> Done:
        """Return the result of a call from its beginning to its delivery."""
        run = await self.begin(x, **facts)  # type: ignore[arg-type]
        done = await self.done(run)
        self.calls.mark_delivered(run)
        return done

    async def decide(self, approval: Approval, *, approve: bool = True, comment: str | None = None) -> None:
        wish = Decision(approve=approve, via="mcp", sha256=approval.sha256, comment=comment)
        await self.calls.decide(approval.id, wish, caller=CALLER)


def calling(worker: Worker) -> Calling:
    calls = ToolCalls(
        lane=lambda: worker.lane,
        store=worker.store,
        feed=worker.feed,
        clock=Clock(worker.clock),
        admit=lambda: None,
        check_model=lambda caller: None,
        resume=worker.resumption.resume_if_ready,
    )
    return Calling(worker, calls)
