"""An agent loop around a scripted model and a real store: what the tests of runs stand on."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import orjson
from tools.doubles import Does, Doubts, ExaminingSource, Refuses, Source, spec

from gateway.agent.agent_services import AgentParts, ApprovalSettings
from gateway.agent.stage import AgentLoops
from gateway.approvals.approvals import Approvals, Decision
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Reply, Resume
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.risk import RiskAssessor, Verdict
from gateway.contracts.storage.journal import Approval, RunState, StoredRun, StoredStep
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.event_feed import EventFeed
from gateway.runs.leases import Leases
from gateway.runs.request_snapshot import load_exchange
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.tools.active_config import ActiveEquipment, Equipment
from gateway.tools.call_evaluator import Judge
from gateway.tools.catalog import ConfiguredSource, Services, load_catalog
from gateway.tools.gate import Gate, Policy, Rule
from gateway.tools.results import Results
from gateway.tools.runner import Runner
from tests.exchanges import changed, new_exchange
from tests.scripted_replies import reply_of, told, whole

from .doubles import Clock
from .models import chunk

USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
CALLER = Caller("c", "t", frozenset(("context", "approve")))
BODY: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def call(tool: str = "look", *, terminate: bool = False, risk_level: str = "low", **parameters: object) -> str:
    asked = {"tool": tool, "parameters": {"risk_level": risk_level, **parameters}, "terminate": terminate}
    return orjson.dumps(asked).decode()


def answer(*texts: str, usage: Json | None = USAGE, **last: object) -> list[Json]:
    told = [] if usage is None else [{"choices": [], "usage": usage}]
    return [*map(chunk, texts), chunk(finish="stop", **last), *told]


def group(*calls: str) -> list[Json]:
    """Calls that come together."""
    return answer(f"[{', '.join(calls)}]")


def workflow(*steps: Json, **parameters: object) -> Json:
    """`contracts.Exchange.workflow` of these steps."""
    return {"definition": {"name": "w", "description": "x", "steps": list(steps)}, "parameters": parameters}


class Harmless:
    """An assessor that lets every call run."""

    def assess(self, arguments: Json) -> Verdict:
        return Verdict("auto", "whitelist", "harmless", f"{len(arguments)} arguments")


def texts(told: list[Json]) -> str:
    return "".join(c["delta"].get("content", "") for one in told for c in one["choices"])


def behind_question(told: list[Json]) -> str:
    """Return the text of a held answer behind its question, which it contains once."""
    text = texts(told)
    assert text.startswith(("This call waits for your approval.", "These ")) and text.count("To answer, ") == 0
    assert text.count("Or, as soon as your program lets you,") == 1
    return text.partition(": reason`.")[2].removeprefix("\n\n")


def settings(*, inline_wait_s: float = 5.0, on_reject: Literal["abort", "continue"] = "abort") -> ApprovalSettings:
    return ApprovalSettings(inline_wait_s=inline_wait_s, on_reject=on_reject)


async def _works(asked: ToolCall) -> ToolResult:
    return ToolResult(f"looked at {asked.arguments}")


def _never(_call: ToolCall) -> str | None:
    return None


async def _agrees(_call: ToolCall) -> Verdict | None:
    return None


@dataclass
class Bench:
    """An agent loop around `answers` of a model, one after the other; an exception is raised in its place.

    Its tools are `look`, and `peek`, which may run twice, and those of the services `further`.
    """

    answers: Sequence[list[Json] | BaseException]
    does: Does = _works
    refuses: Refuses = _never
    doubts: Doubts = _agrees
    limits: LoopLimits = field(default_factory=LoopLimits)
    asks: ApprovalSettings = field(default_factory=settings)
    untrusted: bool = False  # `look` reads what strangers wrote
    policy: Policy = field(default_factory=lambda: Policy(trust_llm="always", default="confirm"))
    assessors: dict[str, RiskAssessor] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    further: Services = tuple
    store: SqliteStore = field(default_factory=lambda: SqliteStore(":memory:"))
    clock: ManualClock = field(default_factory=ManualClock)
    counters: ContextCounters = field(default_factory=ContextCounters)
    asked: list[Exchange] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    released: int = 0
    on_call: Callable[[], None] = lambda: None
    is_open: bool = False

    async def agents(self) -> AgentLoops:
        """As a process would have them that has just begun."""
        if not self.is_open:
            await self.store.open()
            self.is_open = True
        clock = Clock(self.clock)
        schema = {"type": "object", "properties": {"x": {}}}
        look = ExaminingSource(spec(parameters=schema), does=self._does, refuses=self.refuses, doubts=self.doubts)
        peek = Source(spec("peek", parameters=schema, idempotent=True), does=self._does)
        judge = Judge(
            await load_catalog(
                {"look": ConfiguredSource(look, untrusted=self.untrusted), "peek": ConfiguredSource(peek)},
                further=self.further,
            ),
            Gate(self.policy, self.assessors, rules=self.rules),
        )
        self.feed = EventFeed(self.store)
        self.leases = Leases(self.store, clock=clock, resume=_unexpected)
        self.equipment = Equipment(judge, Runner(Results(), counters=self.counters, clock=clock), _hold)
        in_use = ActiveEquipment(lambda: self.equipment)
        self.approvals = Approvals(
            self.store,
            self.feed,
            in_use,
            counters=self.counters,
            clock=clock,
            expires_s=3600.0,
            on_reject=self.asks.on_reject,
        )
        self.parts = AgentParts(
            in_use=in_use,
            approvals=self.approvals,
            feed=self.feed,
            leases=self.leases,
            settings=self.asks,
            store=self.store,
            counters=self.counters,
            clock=clock,
        )
        return AgentLoops(self.parts)

    def reload(self, **rules: Rule) -> None:
        """From now on these rules are in use, whatever a run began with."""
        self.rules, now = rules, self.equipment
        self.equipment = replace(now, judge=Judge(now.judge.catalog, Gate(self.policy, self.assessors, rules=rules)))

    async def reply(self, **facts: object) -> Reply:
        given: dict[str, object] = {"id": "run_1", "body": BODY, "caller": CALLER, "chain": "main", **facts}
        exchange = new_exchange(**given)
        return await (await self.agents()).build_stage(self.limits)(exchange, self._model)

    async def run(self, **facts: object) -> list[Json]:
        """Return the chunks for the client, without the marks that are not for it."""
        return await told_by(await self.reply(**facts))

    async def resumed(self, *states: RunState, messages: list[Json] | None = None, **facts: object) -> list[Json]:
        """Return the result of the run in another process, or in the request that brings a decision."""
        agents = await self.agents()
        self.clock.advance(60.0)  # whoever had the run before is gone
        run = await self.leases.claim("run_1", *(states or ("running", "awaiting_approval")))
        assert run is not None, await self.stored()
        exchange = changed(load_exchange(Resume(run, messages), approvals="turn"), **facts)
        return await told_by(await agents.build_stage(self.limits)(exchange, self._model))

    async def stored(self) -> StoredRun:
        run = await self.store.run("run_1", tenant="t")
        assert run is not None
        return run

    async def steps(self) -> list[StoredStep]:
        return list(await self.store.list_steps("run_1", tenant="t"))

    async def pending_approvals(self) -> list[Approval]:
        return list(await self.store.list_approvals(tenant="t", run_id="run_1", limit=100))

    async def decide(self, *, approve: bool = True, index: int = -1, **wish: object) -> Approval:
        asked = (await self.pending_approvals())[index]
        return await self.approvals.decide(
            asked.id,
            Decision(approve=approve, via="rest", **wish),  # type: ignore[arg-type]
            caller=CALLER,
        )

    async def close(self) -> None:
        await self.feed.close()
        await self.store.close()

    async def _does(self, asked: ToolCall) -> ToolResult:
        self.calls.append(asked)
        return await self.does(asked)

    async def _model(self, exchange: Exchange) -> Reply:
        self.asked.append(exchange)
        self.on_call()
        said = self.answers[len(self.asked) - 1]
        if isinstance(said, BaseException):
            raise said
        return reply_of(*said, release=self._release)

    async def _release(self) -> None:
        self.released += 1


async def told_by(reply: Reply) -> list[Json]:
    try:
        return [one for one in map(whole, await told(reply)) if "choices" in one]
    finally:
        await reply.release()


def _hold() -> Callable[[], Awaitable[None]]:
    return _let_go


async def _let_go() -> None:
    """Do nothing: these tools need no closing."""


async def _unexpected(run: StoredRun) -> None:
    raise AssertionError(f"nobody takes up runs here: {run.id}")
