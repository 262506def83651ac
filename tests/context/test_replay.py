"""Stored runs told once more to clients that calls are shown to: the same calls and texts, in the same order."""

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from tests.agent.agent_bench import Bench, answer, call, group, texts
from tests.agent.rounds import events_of
from tests.agent.staging import KilledError
from tests.agent.test_stage_lost import Dying

from .workers import HI, Opened, Worker, context_of, risky, whole


def briefly(told: list[Json]) -> list[object]:
    """Texts, and of each event its type with the arguments of its call."""
    found: list[object] = []
    for one in told:
        event = one.get("context", {})
        if "type" in event:
            found.append((event["type"], event.get("arguments"), event.get("result")))
        found += [c["delta"]["content"] for c in one["choices"] if c["delta"].get("content")]
    return found


async def repeated(worker: Worker, **facts: object) -> list[Json]:
    return await whole(await worker.repeat(shows_calls=True, **facts))


# Ended runs.


async def test_replayed_response_keeps_tool_calls_in_their_positions(opened: Opened) -> None:
    """With the tools that there are now; a client without them gets the text alone."""
    rounds = [
        answer("First. ", call(x=1)),
        group(call(x=2), call("nope")),
        answer("Then. ", call(x=3)),
        answer("Done."),
    ]
    worker = await opened(*rounds)
    first = await worker.first(shows_calls=True)
    assert briefly(await repeated(worker)) == briefly(first) and texts(first) == "First. Then. Done."
    assert events_of(first)[0] == "tools.listed" and events_of(first).count("tool.finished") == 4
    plain = await whole(await worker.repeat())
    assert texts(plain) == texts(first) and events_of(plain) == []
    assert len(worker.asked) == 4


async def test_decision_on_a_finished_run_returns_the_events_after_approval(opened: Opened) -> None:
    """Its client has the calls before it."""
    worker = await opened(answer("First. ", call(x=1)), answer(risky(2)), answer("Done."))
    await worker.first(shows_calls=True)
    (asked,) = await worker.pending_approvals()
    assert events_of(await worker.message(asked.id, shows_calls=True)) == [
        "run.resumed",
        "tool.started",
        "tool.finished",
    ]
    told = await worker.message(asked.id, shows_calls=True)
    assert briefly(told) == [
        ("tool.started", '{"x":2}', None),
        ("tool.finished", '{"x":2}', "looked at {'x': 2}"),
        "Done.",
    ]


async def test_repeated_decision_gets_every_later_call_and_text(opened: Opened) -> None:
    """Its own call and those behind it, whatever was asked since."""
    worker = await opened(answer("First. ", call(x=1)), answer(risky(2)), answer(call(x=3)), answer(risky(4)))
    await worker.first(shows_calls=True)
    (asked,) = await worker.pending_approvals()
    first = await worker.message(asked.id, shows_calls=True)
    told = await worker.message(asked.id, shows_calls=True)
    assert briefly(told) == briefly(first)[1:] and events_of(told)[-1] == "approval.required"
    assert [arguments for _, arguments, _ in briefly(told)[:-1:2]] == ['{"x":2}', '{"x":3}']  # type: ignore[misc]


# Runs that wait.


async def test_repeated_request_replays_the_text_before_the_approval_event(opened: Opened) -> None:
    """The question is an event; the facts beside the answer are as ever."""
    worker = await opened(answer("First. ", call(x=1)), answer("May I? ", risky(2)))
    first = await worker.first(shows_calls=True)
    told = await repeated(worker)
    assert briefly(told) == briefly(first) and texts(told) == "First. May I? "
    assert told[-1]["context"]["status"] == "awaiting_approval"
    events = [[one["context"] for one in answer if "type" in one.get("context", {})][-1] for answer in (first, told)]
    assert events[0] == events[1] and events[0]["approvals"][0]["call_id"] == (await worker.steps())[1].call_id


async def test_repeated_request_replays_a_text_question_as_an_event(opened: Opened) -> None:
    """The words of its question are no text of this answer."""
    worker = await opened(answer("May I? ", risky()))
    await worker.first()
    told = await repeated(worker)
    assert events_of(told) == ["tools.listed", "approval.required"] and texts(told) == ""


async def test_partial_decision_returns_the_remaining_approval_questions(opened: Opened) -> None:
    """And no call of the answer that its client has."""
    worker = await opened(group(call(x=0), risky(1), risky(2)), answer("Done."))
    await worker.first(shows_calls=True)
    first, second = await worker.pending_approvals()
    told = await worker.message(first.id, shows_calls=True)
    (event,) = [one["context"] for one in told if "type" in one.get("context", {})]
    assert [one["id"] for one in event["approvals"]] == [second.id] and texts(told) == ""
    assert [one["id"] for one in context_of(told)["approvals"]] == [second.id]


async def test_message_without_a_decision_gets_the_approval_questions_again(opened: Opened) -> None:
    """Of the first run that it names, as an event: a request decides on calls of one run."""
    worker = await opened(answer(risky(1)), answer(risky(2)))
    await worker.first(shows_calls=True)
    other = worker.request_key({"role": "user", "content": "Other"}, request_id="run_2", shows_calls=True)
    await whole(await worker.lane.begin(other.exchange, other.request_key))
    pending = [one.id for one in await worker.store.list_approvals(tenant="t", state="pending", limit=9)]
    asking = worker.request_key(HI, request_id="run_3", shows_calls=True)
    run = await worker.resumption.answer_named_calls(pending, asking)
    assert run is not None
    told = await whole(run)
    asked = [one["context"] for one in told if "type" in one.get("context", {})]
    first = next(one.run_id for one in await worker.store.list_approvals(tenant="t", state="pending", limit=1))
    assert [one["run_id"] for one in asked] == [first]
    assert texts(told).startswith("Your message decided nothing") and "ap_" not in texts(told)
    assert all(len(one["approvals"]) == 1 for one in asked)
    plain = await worker.resumption.answer_named_calls(pending, worker.request_key(HI, request_id="run_4"))
    assert plain is not None and "approve ap_" in texts(await whole(plain))


async def test_repeated_request_reports_an_unknown_outcome_as_text(opened: Opened, tmp_path: Path) -> None:
    """Behind the calls whose results are known."""
    place = str(tmp_path / "gateway.db")
    first = Bench([group(call(x=1), call(x=2))], store=Dying(place, at=4))
    with pytest.raises(KilledError):
        await first.run(shows_calls=True)
    await first.store.close()
    worker = await opened(place=place, clock=first.clock)
    await worker.resumed()
    told = await repeated(worker)
    assert events_of(told) == ["tools.listed", "tool.started", "tool.finished"]
    assert "look" in texts(told) and (await worker.stored()).state == "unknown"


# Who goes on.


async def test_resumed_response_follows_the_capabilities_of_its_own_client(opened: Opened) -> None:
    """Whatever the client that began the run could read."""
    for begins, goes_on in ((True, False), (False, True)):
        worker = await opened(answer(risky()), answer("Done."))
        await worker.first(shows_calls=begins)
        told = await worker.message(shows_calls=goes_on)
        assert ("tool.finished" in events_of(told)) is goes_on and texts(told) == "Done."


@pytest.mark.parametrize("in_fields", [True, False])
async def test_response_starts_with_the_result_of_an_approval_shown_in_fields(opened: Opened, in_fields: bool) -> None:
    """As it does with one whose text is shown last."""
    worker = await opened(answer(risky()), answer("It is noon."))
    await worker.first(shows_calls=True)
    approval = await worker.decide()
    asking = worker.request_key(HI, {"role": "user", "content": "And?"}, request_id="run_2", shows_calls=True)
    brought = await worker.resumption.find_earlier_result(replace(asking, shown=(approval.id,) if in_fields else ()))
    assert (brought is not None) is in_fields
    if brought is not None:
        assert "It is noon." in await brought()


async def test_pending_approval_yields_no_earlier_result(opened: Opened) -> None:
    """It still waits."""
    worker = await opened(answer(risky()))
    await worker.first(shows_calls=True)
    (approval,) = await worker.pending_approvals()
    asking = worker.request_key(HI, request_id="run_2", shows_calls=True)
    assert await worker.resumption.find_earlier_result(replace(asking, shown=(approval.id,))) is None
