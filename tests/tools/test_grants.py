"""What is remembered for more than one call, on a real store: until when, for whom, and what failures make of it.

How a decision leaves a grant, and what that clears, is told in `test_desk`.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.clock import ManualClock
from gateway.tools.decision_rules import DecisionRules
from gateway.tools.grants import ApprovalBinding, RememberedDecisions
from tests.agent.doubles import Clock

BOSS = Caller("bob", "acme", frozenset(("approve",)))
ANN = Caller("ann", "acme", frozenset(("context",)))
ASKED = Exchange(id="run_1", body={"messages": []}, caller=ANN, chain="main", conversation="c1")


class Judges:
    rules = DecisionRules()

    def find_binding(self, tool: str) -> ApprovalBinding | None:
        return ApprovalBinding(tool, "policy")

    def judge_edit(self, tool: str, arguments: Json) -> Verdict:
        return Verdict("confirm", "default", tool, str(arguments))

    def find_client_refusal(self, exchange: Exchange) -> str | None:
        return None


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    made = SqliteStore(":memory:")
    await made.open()
    yield made
    await made.close()


async def test_stored_ask_expires_and_is_renewed_when_repeated(store: SqliteStore) -> None:
    """It holds for its conversation and end user alone, and is taken back for them alone."""
    clock = ManualClock()
    remembered = RememberedDecisions(store, Judges(), clock=Clock(clock), kept_s=100.0)
    await remembered.store_ask(replace(ASKED, conversation=None))
    assert await remembered.list_asks(tenant="acme", limit=9) == []
    await remembered.store_ask(ASKED)
    clock.advance(60.0)
    await remembered.store_ask(ASKED)
    clock.advance(99.0)
    assert await remembered.has_ask(ASKED)
    for other in (replace(ASKED, conversation="c2"), replace(ASKED, user="bob")):
        assert not await remembered.has_ask(other)
    clock.advance(1.0)
    assert not await remembered.has_ask(ASKED)
    await remembered.store_ask(ASKED)
    ask_id = await remembered.find_ask_id(ASKED)
    assert ask_id is not None and await remembered.find_ask_id(replace(ASKED, conversation=None)) is None
    assert not await remembered.revoke_ask("ask_of_nobody", by=BOSS, via="rest")
    assert await remembered.revoke_ask(ask_id, by=BOSS, via="cli")
    assert not await remembered.has_ask(ASKED)


async def test_failing_store_makes_conversations_require_approval(store: SqliteStore) -> None:
    """A store that fails opens nothing; a run without a conversation has nothing to look up."""
    remembered = RememberedDecisions(store, Judges(), clock=Clock(ManualClock()), kept_s=100.0)
    await store.close()
    assert await remembered.has_ask(ASKED)
    assert not await remembered.has_ask(replace(ASKED, conversation=None))
