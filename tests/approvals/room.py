"""The approvals of a run on a real store, with people who decide."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from gateway.approvals.approvals import Approvals, Decision
from gateway.contracts.caller import Caller
from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.journal import Approval, RunEvent
from gateway.contracts.storage.store import Json
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.event_feed import EventFeed
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.tools.decision_rules import DecisionRules
from gateway.tools.grants import ApprovalBinding
from tests.agent.doubles import Clock
from tests.plugins.stores.records import approval, new, run, step

BOSS = Caller("bob", "acme", frozenset(("context", "approve")))
AGENT = Caller("ann", "acme", frozenset(("context",)))
BINDING = ApprovalBinding("d" * 64, "b" * 64)
YES, NO = Decision(approve=True, via="rest"), Decision(approve=False, via="rest", comment="no")
ASKED = Exchange(id="run_1", body={"messages": []}, caller=AGENT, chain="main", conversation="c1")


class Counting(SqliteStore):
    """A store that counts the reads of approvals (`looked`) and of events (`read`)."""

    looked = 0
    read = 0

    async def list_events(
        self, *, after: int, tenant: str | None = None, run_id: str | None = None, limit: int
    ) -> Sequence[RunEvent]:
        self.read += 1
        return await super().list_events(after=after, tenant=tenant, run_id=run_id, limit=limit)

    async def list_approvals(self, **which: Any) -> Sequence[Approval]:  # type: ignore[override]
        self.looked += 1
        return await super().list_approvals(**which)


@dataclass
class Judges:
    """Tools and policy, as a test has them."""

    bound: ApprovalBinding | None = BINDING
    decision: Literal["auto", "confirm", "deny", "error"] = "confirm"
    rules: DecisionRules = field(default_factory=DecisionRules)

    def find_binding(self, tool: str) -> ApprovalBinding | None:
        return self.bound

    def judge_edit(self, tool: str, arguments: Json) -> Verdict:
        return Verdict(self.decision, "default", "unknown_command", "it is not on the list")

    def find_client_refusal(self, exchange: Exchange) -> str | None:
        return None


@dataclass
class Room:
    """A desk, and what it stands on."""

    place: str = ":memory:"
    on_reject: Literal["abort", "continue"] = "abort"
    clock: ManualClock = field(default_factory=ManualClock)
    judges: Judges = field(default_factory=Judges)
    counters: ContextCounters = field(default_factory=ContextCounters)

    def __post_init__(self) -> None:
        self.store = Counting(self.place)
        self.feed = EventFeed(self.store)
        self.approvals = Approvals(
            self.store,
            self.feed,
            self.judges,
            counters=self.counters,
            clock=Clock(self.clock),
            expires_s=3600.0,
            on_reject=self.on_reject,
        )

    @property
    def now_s(self) -> float:
        return Clock(self.clock).time()

    async def ask(self, *steps: int, request: bytes = b"", **facts: object) -> list[Approval]:
        """The run `run_1`, which began with this request, waits for a person at these steps."""
        asked = [
            approval(
                f"ap_{number}",
                **{
                    "step": number,
                    "sha256": call_sha256("execute_command", approval().arguments),
                    "created_s": self.now_s,
                    "expires_s": self.now_s + 3600,
                    **facts,
                },
            )
            for number in steps
        ]
        calls = tuple(step(one.step, state="requested", approval_id=one.id) for one in asked)
        await self.store.write(
            new(run(state="awaiting_approval", request=request), steps=calls, approvals=tuple(asked))
        )
        return asked

    async def state(self, approval_id: str = "ap_1") -> str:
        found = await self.store.get_approval(approval_id, tenant="acme")
        assert found is not None
        return found.state

    async def wait(self, *steps: int, abort: bool = True) -> None:
        await self.approvals.wait(steps or (1,), run_id="run_1", tenant="acme", abort=abort)

    async def close(self) -> None:
        await self.feed.close()
        await self.store.close()


async def refused(room: Room, wish: Decision, *, approval_id: str = "ap_1", caller: Caller = BOSS) -> GatewayError:
    with pytest.raises(GatewayError) as error:
        await room.approvals.decide(approval_id, wish, caller=caller)
    return error.value
