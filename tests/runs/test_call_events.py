"""The events of calls as they are made of a run's record: whole, in order, and between the texts that they came of."""

from dataclasses import replace

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Chunk, Exchange, Resume
from gateway.contracts.storage.journal import StepState, StoredStep
from gateway.contracts.storage.store import Json
from gateway.runs.call_events import (
    begins_on_record,
    build_answer,
    build_call_events,
    build_finish_event,
    build_opening,
    build_start_event,
    build_tools_event,
    count_leading_results,
)
from gateway.tools.catalog import Catalog, ConfiguredSource, load_catalog
from tests.plugins.stores.records import run, step
from tests.tools.doubles import Source, spec
from tests.tools.managed import Managed

ASKED = Exchange(id="run_1", body={"messages": []}, caller=Caller("c", "t", frozenset()), chain="main")
SHOWN = replace(ASKED, delivery=replace(ASKED.delivery, shows_calls=True))


async def catalog() -> Catalog:
    """Our tool `look`, and the service `time` with `now`."""
    service = Managed("time")
    service.becomes("running", now="1")
    services = (ConfiguredSource(service),)
    return await load_catalog({"look": ConfiguredSource(Source(spec()))}, further=lambda: services)


def ended(number: int, state: StepState = "finished", **facts: object) -> StoredStep:
    given: dict[str, object] = {"tool": "look", "call_id": f"call_{number}", "state": state, "result": "seen", **facts}
    return replace(step(number), **given)  # type: ignore[arg-type]


def event_of(chunk: Chunk) -> Json:
    assert isinstance(chunk, dict) and chunk["choices"] == [{"index": 0, "delta": {}}]
    return chunk["context"]


def briefly(*chunks: Chunk) -> list[object]:
    """Texts as they are, and of an event its type and number."""
    return [one if isinstance(one, str) else (event_of(one)["type"], event_of(one).get("number")) for one in chunks]


async def test_call_event_contains_service_arguments_and_approval() -> None:
    """As they are in the record; the result is the one that the model is shown."""
    tools = await catalog()
    of_service = ended(
        3, tool="time.now", arguments='{"x":1}', approval_id="ap_1", shown="se[...]", result="seen whole"
    )
    facts = {"tool": "time.now", "service": "time", "call_id": "call_3", "number": 3, "arguments": '{"x":1}'}
    facts["approval_id"] = "ap_1"
    assert event_of(build_start_event(of_service, tools)) == {"type": "tool.started", **facts}
    done = event_of(build_finish_event(of_service, tools))
    assert done == {"type": "tool.finished", **facts, "ok": True, "result": "se[...]"}
    assert event_of(build_finish_event(replace(of_service, result=None, shown=None), tools))["result"] == ""


async def test_call_event_masks_approval_ids_in_the_result() -> None:
    """An id of an approval in it is none any more."""
    asked = replace(ended(0), result="To go on, write: approve ap_abcdefghijklmnopqrstuvwxyz")
    result = event_of(build_finish_event(asked, await catalog()))["result"]
    assert result.startswith("To go on, write: approve ") and "abcdefgh" not in result


@pytest.mark.parametrize(
    ("state", "result", "kinds"),
    [
        ("finished", "seen", ["tool.started", "tool.finished"]),
        ("failed", "Error: no", ["tool.started", "tool.finished"]),
        ("refused", "Not run", ["tool.finished"]),
        ("rejected", "Not run", ["tool.finished"]),
        ("rejected", None, []),
        ("started", None, []),
        ("unknown", None, []),
        ("requested", None, []),
        ("cancelled", None, []),
    ],
)
async def test_call_events_are_built_only_for_calls_with_results(
    state: StepState, result: str | None, kinds: list[str]
) -> None:
    """One that never began has only its end; only one that was done is ok."""
    found = [event_of(one) for one in build_call_events([replace(ended(0, state), result=result)], await catalog())]
    assert [one["type"] for one in found] == kinds
    assert all(one["ok"] is (state == "finished") for one in found if "ok" in one)


def test_result_count_stops_at_the_first_pending_call() -> None:
    """Up to the one that a person is asked about; what is refused behind it was not told either."""
    assert count_leading_results([ended(0), ended(1, "failed"), ended(2, "requested"), ended(3, "refused")]) == 2
    assert count_leading_results([]) == 0


async def test_tools_event_lists_the_gateway_tools_of_the_request() -> None:
    """Those of the request: a tool of its own that has the name of one of ours is not ours."""
    tools = await catalog()
    theirs = {"type": "function", "function": {"name": "look"}}
    body: Json = {"messages": [], "tools": [theirs]}
    assert list(build_opening(ASKED, "", (), tools)) == []
    assert briefly(*build_opening(replace(SHOWN, delivery=replace(SHOWN.delivery, events=True)), "", (), tools)) == [
        ("run.started", None),
        ("tools.listed", None),
    ]
    (own,) = event_of(build_tools_event(SHOWN, tools))["tools"]
    assert own == {"tool": "look", "service": None, "description": "Does look.", "parameters": {"type": "object"}}
    named = replace(SHOWN, body=body, steering=replace(SHOWN.steering, services=("time",)))
    assert [(one["tool"], one["service"]) for one in event_of(build_tools_event(named, tools))["tools"]] == [
        ("time.now", "time")
    ]
    assert event_of(build_tools_event(replace(named, steering=replace(named.steering, no_tools=True)), tools)) == {
        "type": "tools.listed",
        "tools": [],
    }


async def test_stopped_requested_service_is_listed_as_failed() -> None:
    """The client learns why the list is empty."""
    services = (ConfiguredSource(Managed("time")), ConfiguredSource(Managed("other")))
    tools = await load_catalog({}, further=lambda: services)
    named = replace(SHOWN, steering=replace(SHOWN.steering, services=("time",)))
    failed = [{"service": "time", "error": "The service 'time' is not running just now."}]
    assert event_of(build_tools_event(named, tools)) == {"type": "tools.listed", "tools": [], "failed": failed}
    assert "failed" not in event_of(
        build_tools_event(replace(named, steering=replace(named.steering, no_tools=True)), tools)
    )


async def test_resumed_answer_opens_with_the_earlier_text() -> None:
    """As text, or as an event to a client that has it already; with the calls, where they are shown."""
    tools, resume = await catalog(), Resume(run("run_1"))
    steps = [ended(0), ended(1, "requested")]
    again = replace(ASKED, execution=replace(ASKED.execution, resume=resume))
    assert (
        list(build_opening(again, "So far.", steps, tools)) == ["So far."]
        and list(build_opening(again, "", steps, tools)) == []
    )
    for exchange, told in (
        (replace(SHOWN, execution=replace(SHOWN.execution, resume=resume)), 2),
        (replace(again, delivery=replace(again.delivery, background=True)), 0),
    ):
        first, *rest = build_opening(exchange, "So far.", steps, tools)
        assert event_of(first) == {"type": "run.resumed", "run_id": "run_1", "said": "So far."}
        assert briefly(*rest) == [("tool.started", 0), ("tool.finished", 0)][:told]


async def test_call_events_are_placed_between_the_answer_texts() -> None:
    """Where the text before them ends."""
    tools = await catalog()
    steps = [ended(number) for number in range(3)]
    rounds = [("Let me see. ", [0]), ("", [1]), ("And this. ", [2])]
    told = briefly(*build_answer("Let me see. And this. Done.", rounds, steps, tools))
    kinds = "tool.started", "tool.finished"
    both = {number: [(kind, number) for kind in kinds] for number in range(3)}
    assert told == ["Let me see. ", *both[0], *both[1], "And this. ", *both[2], "Done."]
    assert briefly(*build_answer("Other.", rounds, steps, tools)) == [*both[0], *both[1], *both[2], "Other."]
    assert briefly(*build_answer("", (), (), tools)) == []


@pytest.mark.parametrize(
    ("exchange", "is_stored"),
    [
        (ASKED, False),
        (SHOWN, False),
        (replace(SHOWN, execution=replace(SHOWN.execution, resume=Resume(run()))), False),
        (replace(ASKED, execution=replace(ASKED.execution, resume=Resume(run(), []))), False),
        (replace(SHOWN, execution=replace(SHOWN.execution, resume=Resume(run(), []))), True),
        (replace(ASKED, delivery=replace(ASKED.delivery, background=True)), True),
        (
            replace(
                ASKED,
                delivery=replace(ASKED.delivery, background=True),
                execution=replace(ASKED.execution, resume=Resume(run())),
            ),
            True,
        ),
        (replace(ASKED, delivery=replace(ASKED.delivery, background=True), dry=True), False),
    ],
)
def test_background_or_call_showing_turn_is_recorded_at_its_start(exchange: Exchange, is_stored: bool) -> None:
    """In the background, and behind a question of a client that calls are shown to."""
    assert begins_on_record(exchange) is is_stored
