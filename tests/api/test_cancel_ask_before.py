"""The callers who may take back that each call asks, and the answers they get."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from agent.agent_bench import Bench

from gateway.api.cancel_ask_before import cancel_ask
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange

ANN = Caller("ann", "t", frozenset(("context", "approve")))
RUN = Exchange(id="run_1", body={"messages": []}, caller=ANN, chain="main", conversation="talk")
STOP = "You need not ask me any more."


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench([])
    await made.agents()
    await made.approvals.remembered.store_ask(RUN)
    yield made
    await made.close()


async def test_cancel_ask_removes_the_ask_once(bench: Bench) -> None:
    """And told; after that there is nothing to take back."""
    remembered = bench.approvals.remembered
    assert "only where the gate does" in await cancel_ask(STOP, RUN, remembered)
    assert not await remembered.has_ask(RUN)
    assert await cancel_ask(STOP, RUN, remembered) == ""


async def test_cancel_ask_needs_the_approve_scope(bench: Bench) -> None:
    """It is told the command for whoever may; nothing has changed."""
    remembered = bench.approvals.remembered
    mine = replace(RUN, caller=replace(ANN, scopes=frozenset(("context",))))
    assert f"`gateway approvals revoke {await remembered.find_ask_id(RUN)}`" in await cancel_ask(STOP, mine, remembered)
    assert "`approve`" in await cancel_ask("不用再问我了", mine, remembered)
    assert await remembered.has_ask(RUN)


@pytest.mark.parametrize("text", ["Go on.", f"{STOP} {'x' * 300}", f"`{STOP}`", "Ask me first."])
async def test_cancel_ask_ignores_other_messages_and_conversations(bench: Bench, text: str) -> None:
    """Nor does another conversation's, another caller's, or another end user's."""
    remembered = bench.approvals.remembered
    for run, said in (
        (RUN, text),
        (replace(RUN, conversation="other"), STOP),
        (replace(RUN, conversation=None), STOP),
        (replace(RUN, caller=replace(ANN, name="bob")), STOP),
        (replace(RUN, user="bob"), STOP),
    ):
        assert await cancel_ask(said, run, remembered) == ""
    assert await remembered.has_ask(RUN)
