"""Runs whose calls their client is shown: as events, which are no text, each once in the answer that it is of."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import HiddenTurn, Json
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.tools.catalog import ConfiguredSource
from gateway.tools.gate import Policy
from tests.scripted_replies import whole
from tests.tools.managed import Managed

from .agent_bench import BODY, Bench, answer, call, group, settings, texts
from .rounds import events_of, risky, until_asked
from .staging import KilledError
from .test_stage_lost import Dying

AND: Json = {"role": "user", "content": "And?"}


class Marking(SqliteStore):
    """Counts the marks that are stored."""

    marks = 0

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        await super().put_hidden(turn, keys=keys, tenant=tenant, now_s=now_s)
        self.marks += turn.id == keys[0]


def events(told: list[Json], kind: str) -> list[Json]:
    return [one["context"] for one in told if one.get("context", {}).get("type") == kind]


def running(name: str, *tools: str) -> Managed:
    service = Managed(name)
    service.becomes("running", **dict.fromkeys(tools, "1"))
    return service


# Calls.


async def test_shown_calls_are_events_between_the_texts() -> None:
    """First the tools that there are, then each call with its arguments and its result, as the model gets them."""
    bench = Bench([answer("Let me see. ", call(x=1)), answer("It is fine.")])
    told = await bench.run(shows_calls=True)
    assert events_of(told) == ["tools.listed", "tool.started", "tool.finished"]
    assert texts(told) == "Let me see. It is fine."
    (step,) = await bench.steps()
    facts = {"tool": "look", "service": None, "call_id": step.call_id, "number": 0, "arguments": '{"x":1}'}
    facts["approval_id"] = None
    assert events(told, "tool.started") == [{"type": "tool.started", **facts}]
    assert events(told, "tool.finished") == [
        {"type": "tool.finished", **facts, "ok": True, "result": "looked at {'x': 1}"}
    ]
    schema = {"type": "object", "properties": {"x": {}}}
    assert events(told, "tools.listed")[0]["tools"] == [
        {"tool": name, "service": None, "description": f"Does {name}.", "parameters": schema}
        for name in ("look", "peek")
    ]
    await bench.close()


async def test_shown_calls_of_mcp_tools_name_their_service() -> None:
    """In the list and in each call; the model is offered them."""
    services = (ConfiguredSource(running("time", "now")),)
    bench = Bench([answer(call("time__now")), answer("Noon.")], further=lambda: services)
    told = await bench.run(shows_calls=True, services=("time",), only_tools=("time.now",))
    assert [(one["tool"], one["service"]) for one in events(told, "tools.listed")[0]["tools"]] == [("time.now", "time")]
    (done,) = events(told, "tool.finished")
    assert (done["tool"], done["service"], done["result"]) == ("time.now", "time", "time.now done")
    await bench.close()


async def test_shown_calls_that_never_start_report_their_result() -> None:
    """Unknown tools, wrong arguments, what policy or the tool refuses."""
    asked = group(call("nope"), call("look", x=1), call("peek", x=2))
    bench = Bench([asked, answer("I see.")], rules={"look": "deny"}, refuses=lambda _: "never")
    told = await bench.run(shows_calls=True)
    assert events_of(told) == ["tools.listed", "tool.finished", "tool.finished", "tool.started", "tool.finished"]
    unknown, denied, done = events(told, "tool.finished")
    assert (unknown["tool"], unknown["ok"]) == ("nope", False) and "there is no tool" in unknown["result"]
    assert (denied["tool"], denied["ok"]) == ("look", False) and "refused by policy" in denied["result"]
    assert (done["tool"], done["ok"], done["number"]) == ("peek", True, 2)
    await bench.close()


async def test_shown_failed_call_is_reported_as_not_ok() -> None:
    """Its result is what the model gets."""

    async def fails(_asked: ToolCall) -> ToolResult:
        return ToolResult("no such thing", ok=False)

    bench = Bench([answer(call(x=1)), answer("I see.")], does=fails)
    (done,) = events(await bench.run(shows_calls=True), "tool.finished")
    assert (done["ok"], done["result"]) == (False, "Error: no such thing")
    await bench.close()


async def test_progress_events_omit_arguments_and_results() -> None:
    """Progress events stay as they are; without them there are none."""
    for events_wanted in (True, False):
        bench = Bench([answer(call(x=1)), answer("Done.")])
        told = await bench.run(events=events_wanted)
        facts = [one["context"] for one in told if one.get("context", {}).get("type", "").startswith("tool.")]
        assert [fact.keys() for fact in facts] == [{"type", "tool", "call_id", "number"}] * 2 * events_wanted
        assert "tools.listed" not in events_of(told)
        await bench.close()


# Questions.


async def test_turn_with_shown_calls_ends_with_an_approval_event() -> None:
    """Nothing of it is text; the facts beside the answer are as ever."""
    bench = Bench([answer("I will look. ", risky())])
    told = await bench.run(shows_calls=True)
    (approval,), (step,) = await bench.pending_approvals(), await bench.steps()
    assert texts(told) == "I will look. " and events_of(told) == ["tools.listed", "approval.required"]
    (asked,) = events(told, "approval.required")
    assert asked["run_id"] == "run_1"
    (view,) = asked["approvals"]
    assert (view["id"], view["arguments"], view["service"]) == (approval.id, {"x": 1}, None)
    assert view["call_id"] == step.call_id
    assert told[-1]["context"]["status"] == "awaiting_approval" and (await bench.stored()).state == "awaiting_approval"
    await bench.close()


async def test_deciding_request_gets_only_the_subsequent_call_events() -> None:
    """The calls of earlier answers are not told again; the call that was approved names its approval."""
    bench = Bench([answer("First. ", call(x=0)), group(call(x=1), risky(2)), answer("Done.")])
    before = await bench.run(shows_calls=True)
    assert [one["arguments"] for one in events(before, "tool.finished")] == ['{"x":0}', '{"x":1}']
    approval = await bench.decide()
    told = await bench.resumed(messages=[*BODY["messages"], AND])
    assert events_of(told) == ["run.resumed", "tool.started", "tool.finished"]
    assert events(told, "run.resumed")[0]["said"] == "" and texts(told) == "Done."
    (done,) = events(told, "tool.finished")
    assert (done["arguments"], done["approval_id"]) == ('{"x":2}', approval.id)
    roles = [message["role"] for message in bench.asked[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    await bench.close()


async def test_resumed_run_reports_only_calls_of_its_own_turn(tmp_path: Path) -> None:
    """In another process: the calls behind the question, and the text behind it."""
    place = str(tmp_path / "gateway.db")
    first = Bench([group(call(x=1), risky(2))], store=SqliteStore(place))
    await first.run(shows_calls=True)
    await first.decide()
    await first.store.close()
    second = Bench([answer("Halfway. ", call(x=3)), KilledError()], store=SqliteStore(place), clock=first.clock)
    with pytest.raises(KilledError):
        await second.resumed(messages=[*BODY["messages"], AND])
    await second.store.close()
    third = Bench([answer("Done.")], store=SqliteStore(place), clock=second.clock)
    told = await third.resumed()
    assert events(told, "run.resumed")[0]["said"] == "Halfway. "
    assert [one["arguments"] for one in events(told, "tool.finished")] == ['{"x":2}', '{"x":3}']
    assert texts(told) == "Done."
    await third.close()


async def test_resumed_run_reports_its_shown_calls_again(tmp_path: Path) -> None:
    """With the text so far, which is not said again; those without a result are none yet."""
    place = str(tmp_path / "gateway.db")
    first = Bench([answer("Let me see. ", f"[{call(x=1)}, {call('peek', x=2)}]")], store=Dying(place, at=3))
    with pytest.raises(KilledError):
        await first.run(shows_calls=True)
    await first.store.close()
    after = Bench([answer("Done.")], store=SqliteStore(place), clock=first.clock)
    told = await after.resumed()
    assert events_of(told) == ["run.resumed", "tool.started", "tool.finished", "tool.started", "tool.finished"]
    assert events(told, "run.resumed") == [{"type": "run.resumed", "run_id": "run_1", "said": "Let me see. "}]
    assert [one["arguments"] for one in events(told, "tool.finished")] == ['{"x":1}', '{"x":2}']
    assert texts(told) == "Done."
    await after.close()


async def test_held_stream_reports_the_approval_as_an_event() -> None:
    """Its outcome, and then the call with the arguments that the person changed."""
    bench = Bench([answer(risky()), answer("Done.")])
    running_ = asyncio.create_task(bench.run(shows_calls=True, approvals="hold"))
    await until_asked(bench)
    await bench.decide(arguments={"x": 7})
    told = await running_
    assert events_of(told) == [
        "tools.listed",
        "approval.required",
        "approval.resolved",
        "tool.started",
        "tool.finished",
    ]
    assert texts(told) == "Done."
    calls = [*events(told, "tool.started"), *events(told, "tool.finished")]
    assert [one["arguments"] for one in calls] == ['{"x":7}'] * 2
    await bench.close()


async def test_held_approval_event_is_sent_once() -> None:
    """Also where nobody decides in time."""
    bench = Bench([answer(risky())], asks=settings(inline_wait_s=0.02))
    told = await bench.run(shows_calls=True, approvals="hold")
    assert events_of(told) == ["tools.listed", "approval.required"] and texts(told) == ""
    assert told[-1]["context"]["status"] == "awaiting_approval"
    await bench.close()


async def test_approvals_reject_names_the_refused_call_in_text() -> None:
    """`reject`: the text says what would have asked."""
    bench = Bench([answer(risky())])
    told = await bench.run(shows_calls=True, approvals="reject")
    assert events_of(told) == ["tools.listed"] and "look" in texts(told)
    await bench.close()


@pytest.mark.parametrize("on_reject", ["abort", "continue"])
async def test_shown_rejected_call_reports_its_result(on_reject: str) -> None:
    """Its result goes to model and client, whatever a rejection does to other runs."""
    bench = Bench([answer(risky()), answer("I see.")], asks=settings(on_reject=on_reject))  # type: ignore[arg-type]
    await bench.run(shows_calls=True)
    approval = await bench.decide(approve=False, comment="not today")
    told = await bench.resumed(messages=[*BODY["messages"], AND])
    done = events(told, "tool.finished")
    assert [(one["ok"], one["approval_id"]) for one in done] == [(False, approval.id)]
    assert all("not today" in one["result"] for one in done) and texts(told) == "I see."
    await bench.close()


async def test_shown_call_of_another_waiting_run_reports_its_approval() -> None:
    """The event is about that run, whose call it is."""
    bench = Bench([answer(risky()), answer(risky())])
    await bench.run(shows_calls=True, conversation="c1")
    (approval,), (step,) = await bench.pending_approvals(), await bench.steps()
    told = await bench.run(shows_calls=True, id="run_2", conversation="c1")
    (asked,) = events(told, "approval.required")
    assert asked["run_id"] == "run_1" and texts(told) == ""
    assert [(one["id"], one["call_id"]) for one in asked["approvals"]] == [(approval.id, step.call_id)]
    assert told[-1]["context"]["run_id"] == "run_1"
    await bench.close()


# What strangers wrote, and what is hidden.


async def test_run_with_shown_calls_stores_no_hidden_turn() -> None:
    """Their client brings them itself."""
    bench = Bench([answer(call(x=1)), answer("Done."), answer("Again.")])
    await bench.run(shows_calls=True)
    said: Json = {"role": "assistant", "content": "Done."}
    await bench.run(body={"model": "m", "messages": [*BODY["messages"], said, AND]}, id="run_2")
    assert [m["role"] for m in bench.asked[-1].body["messages"]] == ["user", "assistant", "user"]
    await bench.close()


@pytest.mark.parametrize("untrusted", [True, False])
async def test_tainted_call_is_marked_before_its_event_is_sent(untrusted: bool) -> None:
    """The request that brings it again is tainted from its beginning, whatever else its client left of the answer."""
    store = Marking(":memory:")
    policy = Policy(trust_llm="until_tainted", default="confirm")
    bench = Bench([answer(call(x=1)), answer("Done."), answer(call(x=2)), answer("Next.")], store=store)
    bench.untrusted, bench.policy = untrusted, policy
    reply, marked = await bench.reply(shows_calls=True), list[int]()

    def tell(one: Chunk) -> None:
        if events_of([whole(one)]) == ["tool.finished"]:
            marked.append(store.marks)

    await reply.stream(tell)
    await reply.release()
    assert marked == [int(untrusted)]
    (step,) = await bench.steps()
    shown: Json = {"id": step.call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    brought: list[Json] = [
        {"role": "assistant", "content": None, "tool_calls": [shown]},
        {"role": "tool", "tool_call_id": step.call_id, "content": "cut by its client"},
    ]
    told = await bench.run(shows_calls=True, id="run_2", body={"model": "m", "messages": [*brought, AND]})
    assert ("approval.required" in events_of(told)) is untrusted
    assert bench.asked[2].body["messages"] == [*brought, AND]
    await bench.close()


async def test_request_can_declare_its_content_tainted() -> None:
    """From the beginning, also where the run goes on; a named conversation is marked."""
    policy = Policy(trust_llm="until_tainted", default="confirm")
    bench = Bench([answer(call(x=1)), answer(call(x=2)), answer(call(x=3))], policy=policy)
    assert "x: 1" in texts(await bench.run(tainted=True, conversation="c1"))
    await bench.decide()
    assert "x: 2" in texts(await bench.resumed())
    assert "x: 3" in texts(await bench.run(id="run_2", conversation="c1"))
    await bench.close()
