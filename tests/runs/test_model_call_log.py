"""The model calls of a run, as they are stored with its progress."""

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.dialects.usage import TurnUsage
from gateway.model.fallback_chain import By
from gateway.runs.model_call_log import MOST, ModelCalls, parse_model_calls
from gateway.testing.clock import ManualClock
from tests.agent.agent_bench import USAGE, Bench, answer, call
from tests.agent.models import chunk


def stored(calls: ModelCalls) -> bytes:
    return orjson.dumps({"model_calls": calls.take_snapshot()})


async def test_each_call_of_the_model_is_stored_with_its_run() -> None:
    """When it began, how long it took, what it said of its model and its tokens; in rounds as the steps have them."""
    said = [
        answer("Look. ", call(x=1), model="m-2026"),
        answer(call(x=2), usage=None),
        [chunk("Done.", finish="stop", usage={**USAGE, "completion_tokens": 5})],
    ]
    bench = Bench(said)
    bench.on_call = lambda: bench.clock.advance(1.5)
    await bench.run()
    run, steps = await bench.stored(), await bench.steps()
    calls = parse_model_calls(run.progress)
    assert [step.round for step in steps] == [0, 1]
    assert [entry["round"] for entry in calls] == [0, 1, 2]
    assert calls[0] == {
        "round": 0,
        "started_at": 1767225600.0,
        "spent_s": 1.5,
        "model": "m-2026",
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "upstream": None,
        "endpoint": None,
    }
    assert [(e["model"], e["prompt_tokens"], e["completion_tokens"]) for e in calls[1:]] == [
        ("m", None, None),
        ("m", 10, 5),
    ]
    await bench.close()


async def test_failed_model_call_is_stored_too() -> None:
    """And the one that was made in its place comes behind it, with the tokens of its own."""
    bench = Bench([answer(call()), GatewayError("upstream_limited", "Too many."), answer("Done.")])
    await bench.run()
    calls = parse_model_calls((await bench.stored()).progress)
    assert [(entry["round"], entry["prompt_tokens"]) for entry in calls] == [(0, 10), (1, None), (1, 10)]
    await bench.close()


async def test_resumed_run_keeps_its_earlier_model_calls() -> None:
    """In whichever process it goes on."""
    bench = Bench([answer(call(risk_level="high")), answer("Done.")])
    await bench.run(approvals="turn")
    assert len(parse_model_calls((await bench.stored()).progress)) == 1
    await bench.decide()
    await bench.resumed()
    calls = parse_model_calls((await bench.stored()).progress)
    assert [entry["round"] for entry in calls] == [0, 1]
    assert calls[1]["started_at"] >= calls[0]["started_at"] + 60.0
    await bench.close()


def test_only_the_newest_model_calls_are_stored() -> None:
    """So many of them, however long a run goes on; the name of a model has a bound, too."""
    calls, usage, clock = ModelCalls(), TurnUsage(), ManualClock()
    for number in range(MOST + 5):
        with calls.time_call(number, model="m" * 999, usage=usage, clock=clock):
            usage.begin_call({"messages": []})
    entries = parse_model_calls(stored(calls))
    assert [entry["round"] for entry in entries] == list(range(5, MOST + 5))
    assert len(entries[0]["model"]) == 200
    again = ModelCalls()
    again.restore(orjson.loads(stored(calls))["model_calls"])
    assert parse_model_calls(stored(again)) == entries


def test_model_call_tokens_do_not_include_the_previous_call() -> None:
    """A call that ends before its request is out has none, whatever the one before said."""
    calls, usage, clock = ModelCalls(), TurnUsage(), ManualClock()
    with calls.time_call(0, model=None, usage=usage, clock=clock):
        usage.begin_call({"messages": []})
        usage.read({"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": "many"}})
    with pytest.raises(RuntimeError), calls.time_call(1, model=7, usage=usage, clock=clock):
        raise RuntimeError
    shown = [(e["model"], e["prompt_tokens"], e["completion_tokens"]) for e in parse_model_calls(stored(calls))]
    assert shown == [("m", 3, None), (None, None, None)]


@pytest.mark.parametrize("progress", [b"", b"{}"])
def test_progress_of_an_earlier_version_contains_no_model_calls(progress: bytes) -> None:
    """Its progress has no such entry."""
    assert parse_model_calls(progress) == []


def test_model_call_entry_of_an_earlier_version_has_no_upstream() -> None:
    """The entry stays as it was stored."""
    (entry,) = parse_model_calls(orjson.dumps({"model_calls": [[0, 1.5, 0.25, "m", 3, None]]}))
    assert list(entry.values()) == [0, 1.5, 0.25, "m", 3, None, None, None]


def test_answering_upstream_is_stored_and_supplies_the_model_name() -> None:
    """As it was at the end: another upstream may have taken the call over."""
    calls, usage, clock = ModelCalls(), TurnUsage(), ManualClock()
    with calls.time_call(0, model="fast", usage=usage, clock=clock):
        usage.begin_call({"messages": []})
        calls.by = By("one", "a:1", "big")
        calls.by.upstream, calls.by.endpoint, calls.by.model = "two", "b:1", "small"
    with calls.time_call(1, model="fast", usage=usage, clock=clock):
        pass
    shown = [(e["model"], e["upstream"], e["endpoint"]) for e in parse_model_calls(stored(calls))]
    assert shown == [("small", "two", "b:1"), ("fast", None, None)]
