"""Compaction within a response: an input that ends with a trigger, and a threshold of the request."""

import asyncio
from typing import Final

import pytest

from gateway.contracts.storage.store import Json
from tests.dialects.responses.schema import check_event, check_response
from tests.e2e.models import Answer, calls, says

from .answering import CONVERSATIONS, KEYS, Events, answering, kinds, text_of
from .test_compaction import SUMMARY, TALK, message

TRIGGER: Final[Json] = {"type": "compaction_trigger"}
NEXT: Final = message("user", "And now?")
FUNCTION: Final[Json] = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def check_events(events: Events) -> None:
    """Check each event against the schemas, and that the stream is whole."""
    assert events.done and events.numbers == [*range(len(events.numbers))]
    for event in events.read:
        check_event(event)


def above(tokens: int) -> list[Json]:
    return [{"type": "compaction", "compact_threshold": tokens}]


async def test_trigger_answers_with_one_compaction_item() -> None:
    """A whole response, stored as any other. The model gets the conversation without tools, and no stage sees it."""
    async with answering(says(SUMMARY)) as client:
        made = (await client.create([*TALK, TRIGGER], tools=[FUNCTION])).json
        check_response(made)
        (item,) = made["output"]
        assert item["type"] == "compaction" and item["id"].startswith("cmp_")
        assert SUMMARY not in str(made) and made["usage"]["total_tokens"] == 18
        assert (await client.get(made["id"])).json == made
        (sent,) = client.world.model.asked
        assert [one["role"] for one in sent["messages"]] == ["system", "user", "assistant", "system", "user"]
        assert "Summarise this conversation" in sent["messages"][-1]["content"] and "tools" not in sent


async def test_trigger_streams_the_events_of_its_item() -> None:
    """In OpenAI's order; no event has the summary."""
    async with answering(says(SUMMARY[:9], SUMMARY[9:])) as client:
        events = await client.stream([*TALK, TRIGGER])
        assert [kind.removeprefix("response.") for kind in events.kinds] == [
            "created",
            "in_progress",
            "output_item.added",
            "compaction.compacting",
            "output_item.done",
            "completed",
        ]
        check_events(events)
        (item,) = events.last["output"]
        assert item == events.read[-2]["item"] and SUMMARY[:9].encode() not in events.raw
        assert (await client.get(events.last["id"])).json == events.last


async def test_turns_go_on_from_the_summary() -> None:
    """By the item, by its response, and in a conversation: messages of users stay, answers do not."""
    async with answering(says(SUMMARY), says("one"), says("two"), says(SUMMARY), says("three")) as client:
        made = (await client.create([*TALK, TRIGGER])).json
        for sent in (
            {"said": [*TALK, *made["output"], NEXT]},
            {"said": [NEXT], "previous_response_id": made["id"]},
        ):
            await client.create(**sent)
            read = client.world.model.asked[-1]["messages"]
            assert [one["role"] for one in read] == ["system", "user", "system", "system", "user"]
            assert SUMMARY in read[3]["content"] and read[-1]["content"] == "And now?"
        kept = (await client.post({"items": [{"type": "message", **one} for one in TALK]}, CONVERSATIONS)).json["id"]
        await client.create([TRIGGER], conversation=kept)
        await client.create([NEXT], conversation=kept)
        read = client.world.model.asked[-1]["messages"]
        assert "In the blue jar." not in str(read[:3]) and SUMMARY in read[3]["content"]


@pytest.mark.parametrize("answer", [says(""), says(" \n"), says("half", finish="length")])
async def test_summary_that_is_not_whole_fails_its_response(answer: Answer) -> None:
    """502, or a failed response of a stream without an item."""
    async with answering(answer, answer) as client:
        refused = await client.create([*TALK, TRIGGER])
        assert (refused.status, refused.error["code"]) == (502, "upstream_error")
        events = await client.stream([*TALK, TRIGGER])
        check_events(events)
        assert events.kinds[-2:] == ["error", "response.failed"] and events.last["output"] == []


@pytest.mark.parametrize(
    ("said", "fields", "param"),
    [
        ([TRIGGER, NEXT], {}, "input[0]"),
        ([NEXT, TRIGGER, TRIGGER], {}, "input[1]"),
        ([NEXT, {**TRIGGER, "x": 1}], {}, "input[1].x"),
        ([NEXT, TRIGGER], {"background": True}, "background"),
        ([TRIGGER], {}, "input"),
    ],
)
async def test_misplaced_trigger_is_refused(said: list[Json], fields: Json, param: str) -> None:
    async with answering() as client:
        refused = await client.create(said, **fields)
        assert (refused.status, refused.error["param"]) == (400, param)


async def test_sealed_summary_of_another_tenant_is_refused() -> None:
    async with answering(says(SUMMARY), **KEYS) as client:
        made = (await client.of("ann").create([*TALK, TRIGGER])).json
        refused = await client.of("eve").create([*made["output"], NEXT])
        assert (refused.status, refused.error["param"]) == (400, "input[0].encrypted_content")


async def test_conversation_above_the_threshold_is_compacted_first() -> None:
    """The item stands in front of the answer, in the stream, in the store and for the next turn."""
    async with answering(says(SUMMARY), says("one"), says("two")) as client:
        events = await client.stream([*TALK, NEXT], context_management=above(10))
        check_events(events)
        assert [kind.removeprefix("response.") for kind in events.kinds][:5] == [
            "created",
            "in_progress",
            "output_item.added",
            "output_item.done",
            "output_item.added",
        ]
        assert kinds(events.last["output"]) == ["compaction", "message"] and text_of(events.last) == "one"
        read = client.world.model.asked[-1]["messages"]
        assert [one["role"] for one in read] == ["system", "user", "system", "system", "user"]
        assert SUMMARY in read[3]["content"] and read[4]["content"] == "And now?"
        assert (await client.get(events.last["id"])).json == events.last
        await client.create("Go on.", previous_response_id=events.last["id"])
        read = client.world.model.asked[-1]["messages"]
        assert [one["role"] for one in read] == ["system", "user", "system", "user", "system", "assistant", "user"]


async def test_conversation_below_the_threshold_is_not_compacted() -> None:
    """Nor one without a threshold, nor one without an answer before what is to be answered."""
    async with answering(says("one"), says("one"), says("one")) as client:
        plain = (await client.create([*TALK, NEXT], context_management=above(100_000))).json
        unbound = (await client.create([*TALK, NEXT], context_management=[{"type": "compaction"}])).json
        first = (await client.create([NEXT], context_management=above(1))).json
        for made in (plain, unbound, first):
            check_response(made)
            assert kinds(made["output"]) == ["message"]
        assert len(client.world.model.asked) == 3


async def test_calls_to_be_answered_stay_behind_the_summary() -> None:
    """The model goes on from the outputs of its calls, and not from a question that it has worked on."""
    rounds = [
        {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"} for number in (1, 2)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"c{number}", "output": f"found {number}"} for number in (1, 2)
    ]
    said = [NEXT, rounds[0], outputs[0], rounds[1], outputs[1]]
    async with answering(says(SUMMARY), says("one")) as client:
        made = (await client.create(said, tools=[FUNCTION], context_management=above(10))).json
        assert kinds(made["output"]) == ["compaction", "message"]
        read = [one for one in client.world.model.asked[-1]["messages"] if one["content"] != "And now?"]
        assert [one["role"] for one in read][-3:] == ["system", "assistant", "tool"]
        assert read[-1]["content"] == "found 2" and "found 1" not in str(read)


async def test_background_response_keeps_its_compaction() -> None:
    """Its item is in the stored response, and in the events of its record."""
    async with answering(says(SUMMARY), says("one")) as client:
        begun = (await client.create([*TALK, NEXT], background=True, context_management=above(10))).json
        ended = await client.until(begun["id"], "completed")
        assert kinds(ended["output"]) == ["compaction", "message"]
        events = await client.followed(begun["id"])
        check_events(events)
        assert events.last == ended


async def test_two_conversations_are_compacted_at_once() -> None:
    """Each response has the summary of its own conversation."""
    async with answering(says("of one"), says("of two"), **KEYS) as client:
        made = await asyncio.gather(
            client.of("ann").create([*TALK, TRIGGER]), client.of("eve").create([*TALK, NEXT, TRIGGER])
        )
        assert [kinds(one.json["output"]) for one in made] == [["compaction"]] * 2


async def test_decision_beside_a_trigger_is_refused() -> None:
    """Nothing is decided by it."""
    write = calls("file_operations", operation="write", path="new.txt", content="x")
    async with answering(write) as client:
        decision = {"type": "mcp_approval_response", "approval_request_id": "ap_" + "0" * 24, "approve": True}
        refused = await client.create([NEXT, decision, TRIGGER])
        assert (refused.status, refused.error["param"]) == (400, "input") and not client.world.model.asked
