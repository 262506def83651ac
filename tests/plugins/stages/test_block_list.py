"""The stage block_list through a gateway: what is blocked in requests and answers, and what the client gets."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.plugins.stages.block_list import PLUGIN, Config, PhraseRule
from gateway.testing import FakeHost, ScriptedModel, check_stage, collect_answer, make_exchange
from tests.e2e.models import Answer, Json, says
from tests.e2e.talking import World, talking

RULES: Json = {
    "phrases": {"projects": ["Blue Heron", "kestrel", "merry-go-round", "кит", "청와대"]},
    "patterns": {"tickets": r"\bSEC-[0-9]{3,5}\b"},
}
BLOCKED = "This was blocked by a rule of the gateway: projects."


@asynccontextmanager
async def blocking(*answers: Answer, loop: bool = False, **settings: Any) -> AsyncIterator[World]:
    stage = {"use": "block_list", "with": {**RULES, **settings}}
    async with talking(*answers, chains={"assistant": [{"use": "agent_loop"}, stage] if loop else [stage]}) as world:
        yield world


@pytest.mark.parametrize(
    "text",
    [
        "What is blue heron?",
        "What is BLUE\n\n  HERON?",
        "Ｂｌｕｅ　Ｈｅｒｏｎ",
        "B\u200bl\u00adue H\u0301eron",
        "Blue Неrоn",  # with Cyrillic letters
        "КИТ!",
        "청와대",
        "\U0001f171lue heron",
        "\U0001f17a\U0001f174\U0001f182\U0001f183\U0001f181\U0001f174\U0001f17b",  # negative squared
        "\U0001f15a\U0001f154\U0001f162\U0001f163\U0001f161\U0001f154\U0001f15b",  # negative circled
        "\u0138\u04bdstrel",
        "see _kestrel_ and",
        "__blue heron__",
        "blue\u200bheron",
        "blue\u2060heron",
        "bl\u200bue\u2060heron",
        "k\u3164estrel",
        "kest\u2800rel",
        "the merry‑go–round",
        [{"type": "text", "text": "blue"}, {"type": "text", "text": "heron"}],
        [{"type": "text", "text": "blue he"}, {"type": "text", "text": "ron"}],
    ],
)
async def test_request_with_a_blocked_phrase_is_blocked(text: Any) -> None:
    """Whatever its letters are; no model is asked, and the answer says why it ends."""
    async with blocking() as world:
        answer = await world.chat([{"role": "user", "content": text}])
        assert (answer.status, answer.text, answer.finish) == (200, BLOCKED, "content_filter")
        assert answer.json["usage"]["total_tokens"] == 0 and world.model.asked == []
        stream = await world.stream([{"role": "user", "content": text}])
        assert (stream.text, stream.finishes) == (BLOCKED, ["content_filter"])
        assert "eron" not in world.gateway.get_log().lower()


@pytest.mark.parametrize(
    "field",
    [
        {"blue heron": 1},
        {"foo": "blue heron"},
        {"foo": {"format": "data: blue heron"}},
        {"foo": {"blue heron": 1}},
        {"foo": {"a": [{"b": {"Blue  Heron": None}}]}},
        {"metadata": {"blue heron": "a"}},
    ],
)
async def test_unknown_request_fields_are_searched_including_their_names(field: Json) -> None:
    """A server may put it into the prompt, such as arguments of a template."""
    async with blocking() as world:
        answer = await world.chat("Hello?", **field)
        assert (answer.finish, world.model.asked) == ("content_filter", [])


@pytest.mark.parametrize(
    "text",
    [
        "blueheron",
        "b lue heron",
        "blue herons",
        "sky-blue heroine",
        "SEC-12",
        "XSEC-1234",
        "китай",
        "so blue: herons are",
        "k.e.s.t.r.e.l",
        "blue&nbsp;heron",
        "\u24a6\u24a0\u24ae\u24af\u24ad\u24a0\u24a7",  # in parentheses
        "\U0001f1f0\U0001f1ea\U0001f1f8\U0001f1f9\U0001f1f7\U0001f1ea\U0001f1f1",  # flags, of Kenya for one
    ],
)
async def test_request_without_a_blocked_phrase_passes(text: str) -> None:
    async with blocking(says("ok")) as world:
        assert (await world.chat(text)).text == "ok"


@pytest.mark.parametrize("between", [", ", "/", "·", "-", "_", " ... "])
async def test_punctuation_between_words_is_matched_by_patterns_only(between: str) -> None:
    """A phrase has blanks between its words, and a pattern says what else may stand there."""
    text = f"What is Blue{between}Heron?"
    async with blocking(says("ok")) as world:
        assert (await world.chat(text)).text == "ok"
    async with blocking(patterns={"projects": r"\bblue[\W_]{1,5}heron\b"}) as world:
        assert (await world.chat(text)).text == BLOCKED


@pytest.mark.parametrize("text", ["kestrel\U0001f1e9\U0001f1ea", "\u249ckestrel"])
async def test_adjacent_flag_or_list_letter_does_not_hide_a_word(text: str) -> None:
    """Such as the flag of Germany behind it, or the letter of a list before it."""
    async with blocking() as world:
        assert (await world.chat(text)).text == BLOCKED


async def test_call_arguments_and_results_are_scanned() -> None:
    """Behind the escapes of JSON."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q": "Blue\\u0020Heron"}'}}
    for messages in (
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call]}],
        [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "c", "content": "blue heron"}],
    ):
        async with blocking() as world:
            assert (await world.chat(messages)).text == BLOCKED


TOOL: Json = {"name": "f", "description": "blue heron", "parameters": {"type": "object"}}
NESTED: Json = {"type": "object", "properties": {"kestrel": {"type": "string"}}}
CUT_CALL: Json = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q": "k\\u0065strel'}}


@pytest.mark.parametrize(
    "asks",
    [
        {"tools": [{"type": "function", "function": TOOL}]},
        {"tools": [{"type": "function", "function": {"name": "kestrel", "parameters": {"type": "object"}}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": NESTED}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "description": "kestrel"}}},
        {"prediction": {"type": "content", "content": "kestrel"}},
        {"stop": ["kestrel"]},
        {"instructions": "blue heron"},
        {"system": [{"type": "text", "text": "blue heron"}]},
        {"messages": [{"role": "user", "name": "kestrel", "content": "a"}]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"filename": "kestrel.txt"}}]}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": {"type": "text", "data": "kestrel"}}],
                }
            ]
        },
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": None, "tool_calls": [CUT_CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "b"},
            ]
        },
    ],
)
async def test_every_text_of_a_request_is_scanned(asks: Json) -> None:
    async with blocking() as world:
        body = {"model": "m", "messages": [{"role": "user", "content": "a"}], **asks}
        answer = await world.post(body)
        assert answer.text == BLOCKED and world.model.asked == []


@pytest.mark.parametrize("loop", [False, True], ids=["alone", "below the loop"])
async def test_blocked_answer_ends_before_the_match(loop: bool) -> None:
    """No piece of the match reaches the client, however the stream is cut."""
    async with blocking(says("It is b", "lue", " her", "on and more"), loop=loop) as world:
        stream = await world.stream()
        assert (stream.text, stream.finishes) == (f"It is {BLOCKED}", ["content_filter"])
    async with blocking(says("It is SEC-1", "234."), loop=loop) as world:
        answer = await world.chat()
        assert answer.text == f"It is {BLOCKED}".replace("projects", "tickets") and answer.finish == "content_filter"


async def test_stream_holds_back_only_the_beginning_of_a_phrase() -> None:
    """With phrases alone, only the beginning of one is held back."""
    async with blocking(says("It is blue", " and", " no bird, blue"), patterns={}) as world:
        stream = await world.stream()
        pieces = [delta["content"] for delta in stream.deltas if delta.get("content")]
        assert pieces == ["It is ", "blue and", " no bird, ", "blue"]


async def test_tool_call_of_the_model_is_scanned_whole() -> None:
    """Its pieces wait: nobody gets the beginning of a call that is blocked."""
    pieces = [
        {
            "tool_calls": [
                {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q": "Bl'}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ue\\u0020Heron"}'}}]},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with blocking(says(*pieces, finish="tool_calls")) as world:
        answer = await world.chat(tools=tools)
        assert (answer.text, answer.finish) == (BLOCKED, "content_filter") and "tool_calls" not in answer.message
    harmless = json.loads(json.dumps(pieces).replace("Heron", "sky"))
    async with blocking(says(*harmless, finish="tool_calls")) as world:
        stream = await world.stream(tools=tools)
        (call,) = [call for delta in stream.deltas for call in delta.get("tool_calls", ())]
        assert call["function"]["arguments"] == '{"q": "Blue\\u0020sky"}' and stream.finishes == ["tool_calls"]


async def test_on_block_error_returns_an_error_instead_of_an_answer() -> None:
    """With the name of the rule; a stream that has begun ends with it."""
    async with blocking(says("It is blue heron"), on_block="error") as world:
        refused = await world.chat("Blue Heron?")
        assert (refused.status, refused.error["code"]) == (400, "content_blocked")
        assert "'projects'" in refused.error["message"] and "eron" not in refused.error["message"].lower()
        stream = await world.stream()
        assert stream.text == "It is " and stream.frames[-1]["error"]["code"] == "content_blocked"


async def test_shadow_mode_counts_and_changes_nothing() -> None:
    async with blocking(says("blue he", "ron"), mode="shadow") as world:
        stream = await world.stream("Blue Heron, SEC-1234")
        assert [delta["content"] for delta in stream.deltas if delta.get("content")] == ["blue he", "ron"]
        for rule, count in (("projects", 2), ("tickets", 1)):
            sample = f'gateway_guardrail_findings_total{{mode="shadow",rule="{rule}",stage="block_list"}}'
            assert await world.counted(sample) == count


async def test_blocking_can_be_limited_to_requests_or_answers() -> None:
    async with blocking(says("blue heron"), requests=False) as world:
        assert (await world.chat("blue heron")).finish == "content_filter"
    async with blocking(says("blue heron"), answers=False) as world:
        assert (await world.chat()).text == "blue heron"


async def test_explain_names_the_rules() -> None:
    async with blocking() as world:
        body = {"model": "m", "messages": [{"role": "user", "content": "SEC-1234 and blue heron"}]}
        explained = await world.post(body, path="/context/explain")
        assert explained.json["remarks"] == ["block_list: it found projects, tickets"]


@pytest.mark.parametrize("settings", [{}, RULES, {**RULES, "mode": "shadow"}, {**RULES, "requests": False}])
def test_block_list_follows_the_stage_contract(settings: Json) -> None:
    check_stage("block_list", settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"phrases": {"a": ["\u200b"]}}, "phrase 0 of 'a' has no visible character"),
        ({"patterns": {"a": "x(?=y)"}}, "the pattern 'a' uses assert"),
        ({"phrases": {"A b": ["x"]}}, "should match pattern"),
    ],
)
def test_wrong_settings_are_refused(settings: Json, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Config(**settings)


def test_longest_matching_phrase_is_found() -> None:
    rule = PhraseRule("r", ["blue", "blue heron"])
    assert rule.build_finder("a blue heron", range(12))(0) == (2, 12)
    assert [rule.count_stable_chars(text) for text in ("a bl", "a blue", "a blue hat", "")] == [2, 2, 10, 0]


@given(
    st.lists(
        st.sampled_from(["blue", " ", "heron", "SEC-", "12", "345", "ｂｌ", "ue ", "\u200b", "x", "\n"]), max_size=12
    )
)
async def test_stream_splits_do_not_change_the_answer(pieces: list[str]) -> None:
    """A stream is blocked where the whole answer is, after the same text."""
    stage = PLUGIN.build(Config(**RULES), FakeHost())
    end: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    whole = {"choices": [{"index": 0, "delta": {"content": "".join(pieces)}, "finish_reason": "stop"}]}
    told = []
    for answer in ([*pieces, end], [whole]):
        chunks = await collect_answer(stage, make_exchange(), ScriptedModel(answer))
        said = (c if isinstance(c, str) else c["choices"][0]["delta"].get("content", "") for c in chunks)
        told.append("".join(said))
    assert told[0] == told[1]
