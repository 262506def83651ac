"""Marks of taint on a real store: of calls that a client is shown, by their ids."""

from dataclasses import replace

from gateway.agent.hidden.turns import HiddenTurns
from gateway.agent.progress import RunProgress
from gateway.dialects.usage import TurnUsage
from gateway.telemetry.counters import ContextCounters
from tests.plugins.stores.records import step

from .test_turns import AND, CALL, CLOCK, FIRST, RUN, Watched, store, turns

__all__ = ["store"]


async def test_shown_calls_are_marked_tainted_by_their_ids(store: Watched) -> None:
    """Nothing else of their run is stored; of a long answer the first call stands for those that are not looked up."""
    shown = replace(RUN, id="run_2", delivery=replace(RUN.delivery, shows_calls=True))
    steps = [replace(step(number), call_id=f"call_{number:02}0123456789abcdef0123") for number in range(20)]
    hidden = turns(store, shown, tainted=True)
    await hidden.park(FIRST, steps=steps)
    await hidden.store(FIRST, [CALL])
    await hidden.marks.mark_calls([3, 17], steps)

    async def is_tainted(*call_ids: str) -> bool:
        calls = [{**CALL, "id": call_id} for call_id in call_ids]
        messages = [{"role": "assistant", "content": None, "tool_calls": calls}, AND]
        progress = RunProgress(TurnUsage())
        asked = replace(RUN, id="run_3", body={"messages": messages})
        assert (
            await HiddenTurns(
                asked, progress, store=store, clock=CLOCK, counters=ContextCounters()
            ).build_conversation()
            == messages
        )
        return progress.read_tainted

    assert [await is_tainted(steps[number].call_id) for number in (0, 3, 4, 17)] == [True, True, False, True]
    assert await is_tainted(CALL["id"]), "the client's own call of the same answer"
