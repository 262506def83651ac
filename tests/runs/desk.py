"""A recorder on a real store that can be made to fail."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Delivery, Exchange, Origin, ToolSteering
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.journal import Approval, Change, StoredRun, StoredStep
from gateway.contracts.storage.store import StoreError
from gateway.contracts.tools import ToolCall
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.recorder import RunRecorder
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.plugins.stores.records import approval
from tests.tools.doubles import spec

ANN = Caller("ann", "acme", frozenset(("approve", "context")))
EXCHANGE = Exchange(
    id="run_1",
    body={"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    caller=ANN,
    chain="main",
    conversation="c1",
    prompt="pirate",
    steering=ToolSteering(only_tools=("look",), approvals="hold"),
    origin=Origin(
        fingerprint="f" * 64,
        idempotency_key="k",
        header=b"User-Agent: x\r\n",
        credential=b"Authorization: Bearer sk-secret\r\n",
    ),
    delivery=Delivery(events=True),
)
DONE = CallOutcome("done", "done")


class Fragile(SqliteStore):
    """A store whose next writes fail, or wait, as a test says; `changes` are all that it was given."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.failing = 0
        self.changes: list[Change] = []
        self.hold: asyncio.Event | None = None

    async def write(self, change: Change) -> None:
        self.changes.append(change)
        if self.hold is not None:
            await self.hold.wait()
        if self.failing:
            self.failing -= 1
            raise StoreError("database or disk is full")
        await super().write(change)


def planned(
    tool: str = "look", *, decision: str = "auto", refusal: str | None = None, terminate: bool = False, **x: object
) -> PlannedCall:
    call = ToolCall(id="call_1", tool=tool, arguments=x, terminate=terminate)
    return PlannedCall(call, spec(tool), Verdict(decision, "llm", "risk_level_low", "why"), refusal)  # type: ignore[arg-type]


@dataclass
class Holding:
    """Keeps no leases: notes what it is told."""

    owner: str
    outcome: list[str]
    owed: list[Change]

    def hold(self, run_id: str, task: "asyncio.Task[None]") -> None:
        assert (run_id, task) == (EXCHANGE.id, asyncio.current_task())
        self.outcome.append("hold")

    def drop(self, run_id: str, task: "asyncio.Task[None] | None") -> None:
        assert run_id == EXCHANGE.id
        self.outcome.append("drop")

    def queue_end(self, change: Change) -> None:
        self.owed.append(change)


@dataclass
class Desk:
    """A record, and what it told."""

    store: Fragile = field(default_factory=Fragile)
    clock: ManualClock = field(default_factory=ManualClock)
    owner: str = "worker_1"
    outcome: list[str] = field(default_factory=list)
    owed: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recorder = self.another(self.owner)

    def another(self, owner: str) -> RunRecorder:
        return RunRecorder(
            store=self.store,
            exchange=EXCHANGE,
            leases=Holding(owner, self.outcome, self.owed),
            clock=Clock(self.clock),
            progress=lambda: {"said": "so far"},
            wrote=lambda: self.outcome.append("wrote"),
        )

    async def run(self) -> StoredRun | None:
        return await self.store.run("run_1", tenant="acme")

    async def steps(self) -> list[StoredStep]:
        return list(await self.store.list_steps("run_1", tenant="acme"))

    async def kinds(self) -> list[str]:
        return [one.type for one in await self.store.list_events(after=0, limit=99)]

    async def audit(self) -> list[tuple[int, str]]:
        return [(row.line.step, row.line.event) for row in await self.store.audit(after=0, limit=99)]

    async def asked(self, number: int = 0) -> Approval:
        """The question of a step, as it is in the store; `pending`."""
        step = self.recorder.steps[number]
        asked = approval(f"ap_{number}", step=number, arguments=step.arguments, sha256=step.sha256, tool=step.tool)
        await self.recorder.record_approval([asked], [{"id": asked.id}])
        return asked

    async def move(self, to: str, *, of: str = "ap_0") -> Approval:
        """A person, or somebody else, changed the approval."""
        writer = self.store._writer
        assert writer is not None
        await writer.queue_work(lambda c: c.execute("UPDATE approvals SET state = ? WHERE id = ?", (to, of)).rowcount)
        found = await self.store.get_approval(of, tenant="acme")
        assert found is not None
        return found


async def full(writes: Callable[[], object]) -> None:
    with pytest.raises(GatewayError) as error:
        await writes()  # type: ignore[misc]
    assert (error.value.code, error.value.facts.status) == ("store_full", 507)
