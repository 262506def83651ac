"""The stage redact_pii through a gateway: what the model gets, what the client gets, what is counted and logged."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.plugins.stages.redact_pii import PLUGIN, Config
from gateway.testing import FakeHost, ScriptedModel, check_stage, collect_answer, make_exchange
from tests.e2e.models import Answer, Json, call, says
from tests.e2e.talking import World, desk, talking

ASK = "Write to ann@example.com and to Ben <ben@example.com>, then to ann@example.com again."
CARD = "4111 1111 1111 1111"


@asynccontextmanager
async def redacting(*answers: Answer, settings: Json | None = None, **config: Any) -> AsyncIterator[World]:
    """A gateway with the stage alone, and in the chain `loop` below the agent loop."""
    stage = {"use": "redact_pii", "with": settings or {}}
    chains = {"assistant": [stage], "loop": [{"use": "prompt_enhancer"}, {"use": "agent_loop"}, stage]}
    async with talking(*answers, **{"chains": chains, **config}) as world:
        yield world


def sent(world: World, index: int = -1) -> Any:
    return world.model.asked[index]["messages"][-1]["content"]


async def test_model_receives_placeholders() -> None:
    """Equal data have the same one; the client's answer is what the model wrote."""
    async with redacting(says("Done, [EMAIL_1].")) as world:
        answer = await world.chat(ASK)
        assert sent(world) == "Write to [EMAIL_1] and to Ben <[EMAIL_2]>, then to [EMAIL_1] again."
        assert answer.text == "Done, [EMAIL_1]."
        sample = 'gateway_guardrail_findings_total{mode="enforce",rule="email",stage="redact_pii"}'
        assert await world.counted(sample) == 3
        assert "ann@" not in world.gateway.get_log()


async def test_client_receives_its_restored_data() -> None:
    """Streamed in any pieces, or whole. What the client wrote itself is left as it is."""
    async with redacting(
        says("To [EM", "AIL", "_1] and [EMAIL_2", "] and [EMAIL_9] [x"), settings={"restore": True}
    ) as w:
        stream = await w.stream(ASK)
        assert stream.text == "To ann@example.com and ben@example.com and [EMAIL_9] [x"
    async with redacting(says("[EMAIL_1] is [EMAIL_2]."), settings={"restore": True}) as w:
        assert (await w.chat("[EMAIL_1] means ann@example.com")).text == "[EMAIL_1] is ann@example.com."
        assert sent(w) == "[EMAIL_1] means [EMAIL_2]"


async def test_model_output_is_redacted() -> None:
    """Across the pieces of a stream, in thoughts, too."""
    pieces = (
        {"reasoning_content": "card 4111 1111 "},
        {"reasoning_content": "1111 1111"},
        "Pay 4111 11",
        "11 1111 1111, ok.",
    )
    async with redacting(says(*pieces), says(*pieces), settings={"rules": ["card"]}) as world:
        stream = await world.stream()
        assert stream.text == "Pay [CARD_1], ok."
        assert "".join(delta.get("reasoning_content") or "" for delta in stream.deltas) == "card [CARD_1]"
        whole = await world.chat("Hello!")
        assert (whole.text, whole.message["reasoning_content"]) == ("Pay [CARD_1], ok.", "card [CARD_1]")


async def test_every_message_text_of_a_request_is_redacted() -> None:
    """Parts, results of tools, and arguments behind the escapes of JSON; a number becomes a text."""
    arguments = '{"to": "\\u0061nn@example.com", "card": 4111111111111111, "n": 3}'
    function = {"name": "f", "arguments": arguments}
    messages = [
        {"role": "system", "content": "Server 192.0.2.17"},
        {"role": "user", "content": [{"type": "text", "text": "I am ann@example.com"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": "sent to ann@example.com"},
    ]
    async with redacting(says("ok")) as world:
        await world.chat(messages)
        system, user, assistant, tool = world.model.asked[-1]["messages"]
    assert system["content"] == "Server [IP_1]" and user["content"][0]["text"] == "I am [EMAIL_1]"
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {
        "to": "[EMAIL_1]",
        "card": "[CARD_1]",
        "n": 3,
    }
    assert tool["content"] == "sent to [EMAIL_1]"


async def test_request_texts_outside_the_messages_are_redacted() -> None:
    """Also beside its messages. `user` is read first, so an address there is the same in all requests."""
    who = "ann@example.com"
    tool = {"name": "f", "description": f"Writes to {who}.", "parameters": {"type": "object"}}
    asks = {
        "metadata": {"owner": who},
        "stop": [who],
        "of_nobody": {"of": [{who: 1}]},
        "prediction": {"type": "content", "content": f"To {who}"},
        "tools": [{"type": "function", "function": tool}],
    }
    messages = [
        {"role": "system", "content": "For ben@example.com"},
        {"role": "user", "name": who, "content": [{"type": "file", "file": {"filename": who, "file_data": "data:,x"}}]},
        {"role": "assistant", "content": "", "tool_calls": [_broken_call(who)]},
        {"role": "tool", "tool_call_id": who, "content": "done"},
    ]
    async with redacting(says("ok")) as world:
        await world.chat(messages, user=who, **asks)
        (sent_body,) = world.model.asked
        system, user, assistant, tool_result = sent_body["messages"]
    assert (sent_body["user"], sent_body["metadata"], sent_body["stop"]) == (
        "[EMAIL_1]",
        {"owner": "[EMAIL_1]"},
        ["[EMAIL_1]"],
    )
    assert sent_body["of_nobody"] == {"of": [{"[EMAIL_1]": 1}]}
    assert sent_body["prediction"]["content"] == "To [EMAIL_1]" and system["content"] == "For [EMAIL_2]"
    assert sent_body["tools"][0]["function"]["description"] == "Writes to [EMAIL_1]."
    assert user["name"] == "[EMAIL_1]" and user["content"][0]["file"]["filename"] == "[EMAIL_1]"
    assert assistant["tool_calls"][0]["function"]["arguments"] == '{"to": "[EMAIL_1]'
    assert tool_result["tool_call_id"] == who, "an id must match the one of the call"


def _broken_call(who: str) -> Json:
    """A call whose arguments were cut off, with an escape in front."""
    return {"id": who, "type": "function", "function": {"name": "f", "arguments": '{"to": "\\u0061' + who[1:]}}


@pytest.mark.parametrize("text", ["DE89 " * 200_000, "4-" * 500_000])
async def test_redaction_of_long_texts_does_not_block_the_event_loop(text: str) -> None:
    """A long request and a long answer are read in parts: nothing holds the event loop for long, in CPU time."""
    async with redacting(says(text)) as world, longest_hold() as held:
        answer = await world.chat(text)
        assert answer.status == 200 and len(answer.text) > 1_000
    assert held() < 0.3


@asynccontextmanager
async def longest_hold() -> AsyncIterator[Callable[[], float]]:
    """Yield what returns the longest CPU time, in seconds, between two turns of the loop that the gateway runs on."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before_s = thread_time()
            await asyncio.sleep(0)
            longest = max(longest, thread_time() - before_s)

    watching = asyncio.create_task(watch())
    yield lambda: longest
    watching.cancel()


async def test_tools_receive_the_data_and_the_model_placeholders(tmp_path: Path) -> None:
    """Below the agent loop: a call with a placeholder runs with the data, and the result is redacted again."""
    world_tools = desk(tmp_path)
    (tmp_path / "work" / "ann@example.com").write_text(f"Her card is {CARD}.")
    reads = says(json.dumps(call("file_operations", operation="read", path="[EMAIL_1]")))
    async with redacting(reads, says("It is [CARD_1]."), settings={"restore": True}, tools=world_tools) as world:
        answer = await world.chat("Read the file of ann@example.com", headers={"X-Context-Chain": "loop"})
        assert answer.text == f"It is {CARD}."
        assert "Her card is [CARD_1]." in sent(world)
        assert "ann@" not in json.dumps(world.model.asked) and CARD not in json.dumps(world.model.asked)


async def test_client_tool_calls_contain_the_restored_data() -> None:
    """Escaped as JSON wants it."""
    function = {"name": "mail", "arguments": '{"to": "[NOTE_1]"}'}
    asked = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    tools = [{"type": "function", "function": {"name": "mail", "parameters": {"type": "object"}}}]
    settings = {"restore": True, "patterns": {"note": '"[a-z]{1,9}"'}}
    async with redacting(says(asked, finish="tool_calls"), settings=settings) as world:
        answer = await world.chat('He said "yes".', tools=tools)
    (told,) = answer.message["tool_calls"]
    assert json.loads(told["function"]["arguments"]) == {"to": '"yes"'} and answer.finish == "tool_calls"


async def test_shadow_mode_counts_and_changes_nothing() -> None:
    """And counts what it would have replaced."""
    async with redacting(says("ben@exam", "ple.com"), settings={"mode": "shadow", "restore": True}) as world:
        stream = await world.stream(ASK)
        assert [delta["content"] for delta in stream.deltas if delta.get("content")] == ["ben@exam", "ple.com"]
        assert sent(world) == ASK
        sample = 'gateway_guardrail_findings_total{mode="shadow",rule="email",stage="redact_pii"}'
        assert await world.counted(sample) == 4


async def test_explain_names_the_rules() -> None:
    async with redacting() as world:
        body = {"model": "m", "messages": [{"role": "user", "content": ASK}]}
        explained = await world.post(body, path="/context/explain")
        assert explained.json["remarks"] == ["redact_pii: it found 3 email"]
        assert "[EMAIL_1]" in explained.json["messages"][-1]["content"]


async def test_truncated_model_stream_leaks_no_partial_data() -> None:
    async with redacting(says("ann@example", finish=None, done=False)) as world:
        async with world.streaming() as stream:
            await stream.rest()
        assert "ann@" not in stream.text and "error" in stream.frames[-1]


@pytest.mark.parametrize("settings", [{}, {"restore": True}, {"mode": "shadow"}, {"answers": False}])
def test_redact_pii_follows_the_stage_contract(settings: Json) -> None:
    check_stage("redact_pii", settings)


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        ({"email": "x"}, "is the name of a rule that is there"),
        ({"mine": "a*"}, "matches the empty text"),
        ({"mine": "a+"}, "can match more than 256 characters"),
        ({"mine": "("}, "is no regular expression"),
    ],
)
def test_wrong_patterns_are_refused(patterns: Json, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Config(patterns=patterns)


@given(st.lists(st.sampled_from(["ann@", "example.com", "[EMAIL", "_1]", " ", "x", CARD[:7], CARD[7:]]), max_size=10))
async def test_stream_splits_do_not_change_the_answer(pieces: list[str]) -> None:
    """A stream says what the whole answer says, also with the data restored."""
    stage = PLUGIN.build(Config(restore=True), FakeHost())
    end: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    whole = {"choices": [{"index": 0, "delta": {"content": "".join(pieces)}, "finish_reason": "stop"}]}
    told = []
    for answer in ([*pieces, end], [whole]):
        chunks = await collect_answer(stage, make_exchange("I am ben@example.com"), ScriptedModel(answer))
        texts = (c if isinstance(c, str) else c["choices"][0]["delta"].get("content", "") for c in chunks)
        told.append("".join(texts))
    assert told[0] == told[1]
