"""The pen of a run, on a real store: what is written when, what is not when it cannot be, and who may write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import orjson
import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.canonical import call_sha256
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.journal import Approval, Change, StoredRun, StoredStep
from gateway.contracts.risk import Verdict
from gateway.contracts.store import Json, StoreError
from gateway.contracts.tools import ToolCall
from gateway.errors import GatewayError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.lease import LEASE_S
from gateway.runs.leases import abandon
from gateway.runs.recorder import RunRecorder
from gateway.runs.snapshot import RESULT_CHARS, exchange_of, request_of
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
    only_tools=("look",),
    approvals="hold",
    fingerprint="f" * 64,
    idempotency_key="k",
    events=True,
    header=b"User-Agent: x\r\n",
    credential=b"Authorization: Bearer sk-secret\r\n",
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

    def owe(self, change: Change) -> None:
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
        return list(await self.store.steps("run_1", tenant="acme"))

    async def kinds(self) -> list[str]:
        return [one.type for one in await self.store.events(after=0, limit=99)]

    async def audit(self) -> list[tuple[int, str]]:
        return [(row.line.step, row.line.event) for row in await self.store.audit(after=0, limit=99)]

    async def asked(self, number: int = 0) -> Approval:
        """The question of a step, as it is in the store; `pending`."""
        step = self.recorder.steps[number]
        asked = approval(f"ap_{number}", step=number, arguments=step.arguments, sha256=step.sha256, tool=step.tool)
        await self.recorder.ask([asked], [{"id": asked.id}])
        return asked

    async def move(self, to: str, *, of: str = "ap_0") -> Approval:
        """A person, or somebody else, changed the approval."""
        writer = self.store._writer
        assert writer is not None
        await writer.do(lambda c: c.execute("UPDATE approvals SET state = ? WHERE id = ?", (to, of)).rowcount)
        found = await self.store.approval(of, tenant="acme")
        assert found is not None
        return found


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    await made.store.open()
    yield made
    await made.store.close()


async def full(writes: Callable[[], object]) -> None:
    with pytest.raises(GatewayError) as error:
        await writes()  # type: ignore[misc]
    assert (error.value.code, error.value.facts.status) == ("store_full", 507)


# What is written.


async def test_nothing_is_written_of_a_run_that_does_nothing(desk: Desk) -> None:
    """It may end however it likes."""
    desk.recorder.plan([], round_=0)
    await desk.recorder.refused()
    await desk.recorder.end("completed", answer=b"{}")
    await desk.recorder.leave(stopping=False)
    assert await desk.run() is None and desk.store.changes == [] and not desk.recorder.begun and desk.outcome == []


async def test_a_run_is_on_record_before_its_first_call(desk: Desk) -> None:
    """With its lease, the call, its verdict and how far the loop is; all that survives a power cut."""
    (number,) = desk.recorder.plan([planned(x=1)], round_=0)
    await desk.recorder.start(number, approval=None)
    run = await desk.run()
    assert run is not None and (run.state, run.effects, run.owner) == ("running", True, "worker_1")
    assert run.lease_s == Clock(desk.clock).time() + LEASE_S
    assert (run.fingerprint, run.idempotency_key, run.conversation) == ("f" * 64, "k", "c1")
    assert orjson.loads(run.progress) == {"said": "so far"}
    (step,) = await desk.steps()
    assert (step.state, step.arguments, step.sha256) == ("started", '{"x":1}', call_sha256("look", '{"x":1}'))
    assert await desk.audit() == [(0, "verdict"), (0, "started")] and await desk.kinds() == ["tool.started"]
    assert desk.outcome == ["hold", "wrote"] and desk.store.changes[0].durable


async def test_a_run_can_be_on_record_before_it_calls_anything(desk: Desk) -> None:
    """A workflow is, from its first step on; if it cannot be written down, it does not begin."""
    desk.store.failing = 1
    await full(desk.recorder.begin)
    assert not desk.recorder.begun and await desk.run() is None
    await desk.recorder.begin()
    assert desk.recorder.begun and desk.outcome == ["hold", "wrote"]
    run = await desk.run()
    assert run is not None
    assert (run.state, run.kind, run.effects, run.owner) == ("running", "chat", False, "worker_1")
    assert await desk.steps() == [] and await desk.kinds() == []


async def test_a_run_of_a_workflow_is_of_that_kind(desk: Desk) -> None:
    """So that whoever looks can tell it from a chat."""
    desk.recorder.exchange = replace(EXCHANGE, workflow={"definition": {}, "parameters": {}})
    await desk.recorder.begin()
    run = await desk.run()
    assert run is not None and run.kind == "workflow"


async def test_what_came_of_a_call_need_not_survive_a_power_cut(desk: Desk) -> None:
    """Only what comes before an effect must."""
    desk.recorder.plan([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.finish(0, DONE, ok=True)
    assert [change.durable for change in desk.store.changes] == [True, False]
    (step,) = await desk.steps()
    assert (step.state, step.result, step.shown) == ("finished", "done", None)
    assert await desk.kinds() == ["tool.started", "tool.finished"] and desk.outcome == ["hold", "wrote", "wrote"]


@pytest.mark.parametrize(
    ("outcome", "ok", "state", "result", "shown"),
    [
        (CallOutcome("short", "the whole"), True, "finished", "the whole", "short"),
        (CallOutcome("Error: x", "Error: x", ok=False), False, "failed", "Error: x", None),
        (CallOutcome("cut", "y" * (RESULT_CHARS + 1)), True, "finished", "cut", None),
        (None, False, "unknown", None, None),
    ],
)
async def test_results_are_kept_whole(
    desk: Desk, outcome: CallOutcome | None, ok: bool, state: str, result: str | None, shown: str | None
) -> None:
    """Unless they are huge; what the model was shown is kept beside what it was not."""
    desk.recorder.plan([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.finish(0, outcome, ok=ok)
    (step,) = await desk.steps()
    assert (step.state, step.result, step.shown) == (state, result, shown)


async def test_no_credential_and_no_header_is_stored(desk: Desk) -> None:
    """A run that goes on has those of the request that brings it; everything else is as it was."""
    assert b"sk-secret" not in request_of(EXCHANGE) and b"User-Agent" not in request_of(EXCHANGE)
    desk.recorder.plan([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    run = await desk.run()
    assert run is not None and orjson.loads(run.request)["credential"] is True
    resumed = exchange_of(Resume(run), approvals="hold", header=EXCHANGE.header, credential=EXCHANGE.credential)
    assert replace(resumed, resume=None) == EXCHANGE
    alone = exchange_of(Resume(run), approvals="turn")
    assert (alone.credential, alone.header, alone.approvals) == (b"", b"", "turn")


# A store that fails.


async def test_a_call_that_cannot_be_written_down_does_not_run(desk: Desk) -> None:
    """As if nothing had been: no run, no step, no line; and it may be tried again."""
    desk.recorder.plan([planned(x=1)], round_=0)
    before = list(desk.recorder.steps)
    desk.store.failing = 1
    await full(lambda: desk.recorder.start(0, approval=None))
    assert desk.recorder.steps == before and not desk.recorder.begun and await desk.run() is None
    assert desk.outcome == []
    await desk.recorder.start(0, approval=None)
    assert await desk.kinds() == ["tool.started"] and await desk.audit() == [(0, "verdict"), (0, "started")]


async def test_nobody_is_asked_what_cannot_be_written_down(desk: Desk) -> None:
    """The call is as it was."""
    desk.recorder.plan([planned(decision="confirm", x=1)], round_=0)
    desk.store.failing = 1
    await full(lambda: desk.asked())
    assert desk.recorder.steps[0].state == "planned" and desk.recorder.steps[0].approval_id is None
    await desk.asked()
    assert await desk.kinds() == ["approval.required"]
    assert [one.state for one in await desk.store.approvals(tenant="acme", limit=9)] == ["pending"]


async def test_an_approved_call_that_cannot_be_written_down_stays_approved(desk: Desk) -> None:
    """For when there is room again."""
    desk.recorder.plan([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    approved = replace(await desk.move("approved"), edited='{"x":2}')
    desk.store.failing = 1
    await full(lambda: desk.recorder.start(0, approval=approved))
    assert desk.recorder.steps[0].arguments == '{"x":1}' and desk.recorder.steps[0].state == "requested"
    await desk.recorder.start(0, approval=approved)
    (step,) = await desk.steps()
    assert (step.state, step.arguments) == ("started", '{"x":2}')
    assert (await desk.store.approval("ap_0", tenant="acme")).state == "executing"  # type: ignore[union-attr]


async def test_what_could_not_be_written_comes_with_the_next_line(desk: Desk) -> None:
    """Behind an effect a run goes on; everything is there once, in order."""
    desk.recorder.plan([planned(x=1), planned(x=2)], round_=0)
    await desk.recorder.start(0, approval=None)
    desk.store.failing = 1
    await desk.recorder.finish(0, DONE, ok=True)
    assert [step.state for step in await desk.steps()] == ["started", "planned"]
    await desk.recorder.start(1, approval=None)
    assert [step.state for step in await desk.steps()] == ["finished", "started"]
    desk.store.failing = 1
    await desk.recorder.finish(1, DONE, ok=True)
    await desk.recorder.end("completed", answer=b"{}")
    assert [step.state for step in await desk.steps()] == ["finished", "finished"]
    assert await desk.kinds() == [*["tool.started", "tool.finished"] * 2, "run.finished"]
    ran = [(number, what) for number in (0, 1) for what in ("started", "finished")]
    assert await desk.audit() == [(0, "verdict"), (1, "verdict"), *ran]


async def test_a_run_whose_end_cannot_be_written_can_be_taken_up(desk: Desk) -> None:
    """After its lease: its calls are known."""
    desk.recorder.plan([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.finish(0, DONE, ok=True)
    desk.store.failing = 1
    await desk.recorder.end("completed", answer=b"{}")
    now_s = Clock(desk.clock).time() + LEASE_S + 1
    (run,) = await desk.store.claim(
        owner="worker_2", now_s=now_s, until_s=now_s + 5, states=["running"], run_id="run_1", limit=1
    )
    assert run.answer is None and desk.outcome[-1] == "drop"


# Whose run it is.


async def test_who_lost_a_run_writes_nothing_more(desk: Desk) -> None:
    """Neither before an effect nor behind it; it says so in a way that no client repeats."""
    desk.recorder.plan([planned(x=1), planned(x=2)], round_=0)
    await desk.recorder.start(0, approval=None)
    now_s = Clock(desk.clock).time() + LEASE_S + 1
    await desk.store.claim(
        owner="worker_2", now_s=now_s, until_s=now_s + 5, states=["running"], run_id="run_1", limit=1
    )
    for writes in (
        lambda: desk.recorder.finish(0, DONE, ok=True),
        lambda: desk.recorder.start(1, approval=None),
        lambda: desk.recorder.park("awaiting_approval"),
        lambda: desk.recorder.end("completed", answer=b"{}"),
        lambda: desk.recorder.leave(stopping=True),
    ):
        with pytest.raises(GatewayError) as lost:
            await writes()
        assert (lost.value.code, lost.value.facts.status, lost.value.settled) == ("run_cancelled", 422, True)
    assert [step.state for step in await desk.steps()] == ["started", "planned"]


async def test_a_cancelled_run_runs_nothing_more(desk: Desk) -> None:
    """Its question is gone, too."""
    desk.recorder.plan([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    approved = await desk.move("approved")
    assert await desk.store.cancel("run_1", tenant="acme", now_s=1.0, events=(), audit=())
    with pytest.raises(GatewayError) as lost:
        await desk.recorder.start(0, approval=approved)
    assert lost.value.code == "run_cancelled"
    run = await desk.run()
    assert run is not None and run.state == "cancelled"


async def test_a_call_runs_once_under_its_approval(desk: Desk) -> None:
    """Whoever comes second does not."""
    desk.recorder.plan([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    approved = await desk.move("approved")
    await desk.recorder.start(0, approval=approved)
    with pytest.raises(GatewayError):
        await desk.recorder.start(0, approval=approved)


@pytest.mark.parametrize(
    ("ok", "outcome", "state"), [(True, DONE, "done"), (False, DONE, "failed"), (False, None, "unknown")]
)
async def test_an_approval_follows_its_call(desk: Desk, ok: bool, outcome: CallOutcome | None, state: str) -> None:
    """To its end."""
    desk.recorder.plan([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    await desk.recorder.start(0, approval=await desk.move("approved"))
    await desk.recorder.finish(0, outcome, ok=ok)
    assert (await desk.store.approval("ap_0", tenant="acme")).state == state  # type: ignore[union-attr]


# How a run is left.


async def test_a_parked_run_is_nobodys(desk: Desk) -> None:
    """Its driver is told before: nobody keeps its lease."""
    desk.recorder.plan([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    await desk.recorder.park("awaiting_approval")
    run = await desk.run()
    assert run is not None and (run.state, run.owner, run.lease_s) == ("awaiting_approval", None, 0.0)
    assert desk.outcome == ["hold", "wrote", "drop", "wrote"]
    await desk.recorder.leave(stopping=False)
    assert len(desk.store.changes) == 2


@pytest.mark.parametrize(
    ("stopping", "asked", "state"),
    [
        (False, False, "interrupted"),
        (True, False, "running"),
        (False, True, "awaiting_approval"),
        (True, True, "running"),
    ],
)
async def test_a_run_that_is_left_can_be_seen_to_be(desk: Desk, stopping: bool, asked: bool, state: str) -> None:
    """It ends without its client, unless its process stops or somebody was asked who may still answer."""
    desk.recorder.plan([planned(x=1), planned(decision="confirm", x=2)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.finish(0, DONE, ok=True)
    if asked:
        await desk.asked(1)
    await desk.recorder.leave(stopping=stopping)
    run = await desk.run()
    assert run is not None and (run.state, run.owner) == (state, None)
    pending = await desk.store.approvals(tenant="acme", state="pending", limit=9)
    assert len(pending) == asked


async def test_a_run_that_ends_asks_nobody_any_more(desk: Desk) -> None:
    """Whatever ended it."""
    desk.recorder.plan([planned(decision="confirm", x=1), planned(decision="confirm", x=2)], round_=0)
    await desk.asked(0)
    await desk.asked(1)
    await desk.recorder.start(0, approval=await desk.move("approved"))
    await desk.recorder.end("failed", error=GatewayError("agent_timeout", "Too long."))
    states = {one.id: one.state for one in await desk.store.approvals(tenant="acme", limit=9)}
    assert states == {"ap_0": "executing", "ap_1": "cancelled"}
    run = await desk.run()
    assert run is not None and (run.state, run.error_code, run.error) == ("failed", "agent_timeout", "Too long.")


async def test_an_end_that_cannot_be_written_is_owed(desk: Desk) -> None:
    """With all that no line has brought yet; what is written behind an effect comes with the next line instead."""
    desk.recorder.plan([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    desk.store.failing = 2
    await desk.recorder.finish(0, DONE, ok=True)
    assert desk.owed == []
    await desk.recorder.end("completed", answer=b"{}")
    (change,) = desk.owed
    assert (change.run.state, [step.state for step in change.steps]) == ("completed", ["finished"])
    await desk.store.write(change)
    assert await desk.kinds() == ["tool.started", "tool.finished", "run.finished"]


async def test_who_is_cancelled_while_it_writes_knows_what_was_written(desk: Desk) -> None:
    """The line is whole; the run is held as any other."""
    desk.recorder.plan([planned(x=1)], round_=0)
    desk.store.hold = asyncio.Event()
    starting = asyncio.create_task(desk.recorder.start(0, approval=None))
    while not desk.store.changes:
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.sleep(0.01)
    assert not starting.done()
    desk.store.hold.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert desk.recorder.begun and desk.outcome == ["hold", "wrote"]
    assert [step.state for step in await desk.steps()] == ["started"]


# Judged anew.


async def test_a_call_that_policy_refuses_by_now_is_refused_for_good(desk: Desk) -> None:
    """Whoever goes on with the run next must not take it for one that may run."""
    desk.recorder.plan([planned(x=1), planned(x=2)], round_=0)
    await desk.recorder.start(1, approval=None)
    desk.recorder.judged(0, planned(decision="deny", refusal="Not run: refused by policy.", x=1))
    await desk.recorder.finish(1, DONE, ok=True)
    refused, _ = await desk.steps()
    assert (refused.state, refused.decision, refused.result) == ("refused", "deny", "Not run: refused by policy.")


async def test_a_run_that_cannot_go_on_is_ended(desk: Desk) -> None:
    """It says why; one that somebody else has by now is left alone."""
    desk.recorder.plan([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    run = await desk.run()
    assert run is not None
    await abandon(replace(run, fence=7), "no chain", store=desk.store, clock=Clock(desk.clock))
    assert (await desk.run()) == run
    await abandon(run, "no chain", store=desk.store, clock=Clock(desk.clock))
    ended = await desk.run()
    assert ended is not None and (ended.state, ended.error, ended.owner) == ("failed", "no chain", None)
    assert (await desk.kinds())[-1] == "run.finished"


async def test_arguments_of_any_shape_are_kept(desk: Desk) -> None:
    """As deep and as odd as a model writes them."""
    deep: Json = {"x": 1}
    for _ in range(300):
        deep = {"d": deep}
    desk.recorder.plan([planned(**deep), planned(x="\x00 \u2028 😀")], round_=0)
    await desk.recorder.start(0, approval=None)
    first, second = await desk.steps()
    assert orjson.loads(first.arguments) == deep and orjson.loads(second.arguments) == {"x": "\x00 \u2028 😀"}
