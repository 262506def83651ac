"""Messages of a request as those of a chat."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.messages.conversation import MessagesConversation

from .requests import convert, parse, refusal_of

ASKED: Json = {"role": "user", "content": "The weather?"}
USE: Json = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"b": 1, "a": [2]}}
CALL: Json = {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": '{"b":1,"a":[2]}'}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny"}
OWN_USE: Json = {"type": "mcp_tool_use", "id": "own_1", "name": "read", "server_name": "box", "input": {}}
OWN_RESULT: Json = {"type": "mcp_tool_result", "tool_use_id": "own_1", "content": [{"type": "text", "text": "It is."}]}


def answers(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def says(*blocks: Json | str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]}


def test_system_is_the_first_message() -> None:
    """As a text or as blocks; the version line of a program has no text."""
    assert convert([ASKED], "Be brief.") == [{"role": "system", "content": "Be brief."}, ASKED]
    assert convert([ASKED], "") == convert([ASKED], []) == [ASKED]
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2;"}
    marked = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    assert convert([ASKED], [line, marked]) == [
        {"role": "system", "content": "", "messages_api": {"content": [line]}},
        {"role": "system", "content": [marked]},
        ASKED,
    ]


def test_system_message_stays_in_its_place() -> None:
    """One that only sets an effort has no text."""
    effort = {"role": "system", "output_config": {"effort": "low"}}
    later = {"role": "system", "content": [{"type": "text", "text": "Now in verse."}], "clear_at": "never"}
    assert convert([ASKED, effort, later, {"role": "system", "content": ""}]) == [
        ASKED,
        {"role": "system", "content": "", "messages_api": {"output_config": {"effort": "low"}}},
        {"role": "system", "content": "Now in verse.", "messages_api": {"clear_at": "never"}},
    ]


def test_messages_of_the_user_in_a_row_are_one() -> None:
    """As Anthropic reads them; a message of another role ends it."""
    assert convert([ASKED, {"role": "user", "content": "Today."}]) == [
        {"role": "user", "content": "The weather?\n\nToday."}
    ]
    system: Json = {"role": "system", "content": "Hm."}
    assert convert([ASKED, system, ASKED]) == [ASKED, system, ASKED]


def test_results_stand_in_front_of_the_words_beside_them() -> None:
    """Each a message, with what chat completions lack beside it."""
    second: Json = {**USE, "id": "toolu_2"}
    failed: Json = {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "cache_control": {"type": "e"}}
    assert convert([ASKED, answers(USE, second), says("And?", failed, RESULT)]) == [
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "toolu_2"}]},
        {
            "role": "tool",
            "tool_call_id": "toolu_2",
            "content": "The tool failed, and says nothing about it.",
            "is_error": True,
            "cache_control": {"type": "e"},
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Sunny"},
        {"role": "user", "content": "And?"},
    ]


def test_result_may_have_images() -> None:
    """As parts."""
    image = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    told = convert([ASKED, answers(USE), says({**RESULT, "content": [{"type": "text", "text": "Look"}, image]})])[-1]
    assert told["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://x"}},
    ]


def test_gateway_call_ends_a_part_of_an_answer() -> None:
    """Behind it comes its result, then another message. One that was cut says so."""
    text = {"type": "text", "text": "I look."}
    cut = {**OWN_USE, "id": "own_2"}
    conversation = MessagesConversation()
    conversation.add_all([ASKED, answers(text, OWN_USE, OWN_RESULT, {"type": "text", "text": "Done."}, cut)])
    first, result, second, missing = conversation.messages[1:]
    assert first["content"] == "I look." and first["tool_calls"][0]["function"]["name"] == "box__read"
    assert result == {"role": "tool", "tool_call_id": "own_1", "content": "It is."}
    assert second["content"] == "Done." and "unknown" in missing["content"]
    assert [*conversation.results] == [("box", "read")]


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([ASKED, says(RESULT)], "messages[1].content[0].tool_use_id"),
        ([ASKED, answers(USE), says(RESULT, RESULT)], "messages[2].content[1].tool_use_id"),
        ([ASKED, answers(USE), ASKED], "messages[2]"),
        ([ASKED, answers(USE)], "messages[1]"),
        ([ASKED, answers(USE), answers(USE)], "messages[2]"),
        ([ASKED, answers(OWN_RESULT)], "messages[1].content[0].tool_use_id"),
        ([ASKED, answers({**USE, "input": "x"})], "messages[1].content[0].input"),
        ([ASKED, answers({**USE, "id": 5})], "messages[1].content[0].id"),
        ([ASKED, answers({"type": "server_tool_use"})], "messages[1].content[0].type"),
        ([ASKED, answers({"type": "thinking", "thinking": 5})], "messages[1].content[0].thinking"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([5], "messages[0]"),
        ([{"role": "user", "content": "x", "name": "anna"}], "messages[0].name"),
        ([{"role": "system", "content": [{"type": "image"}]}], "messages[0].content[0].type"),
    ],
)
def test_wrong_message_is_named(messages: list[object], place: str) -> None:
    """With its place."""
    assert refusal_of(messages)[1] == place


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([ASKED], "The weather?"),
        ([ASKED, {"role": "user", "content": "approve"}], "approve"),
        ([says("<system-reminder>\nx\n</system-reminder>", "approve")], "approve"),
        (
            [
                says(
                    "<command-name>/compact</command-name>", "<local-command-stdout>x</local-command-stdout>", "approve"
                )
            ],
            "approve",
        ),
        ([says("<bash-input>approve</bash-input>", "<bash-stdout>approve</bash-stdout>")], ""),
        ([says("This session is being continued from a previous conversation. Remember that approve")], ""),
        ([says("approve"), {"role": "system", "content": "Agents: none."}], "approve"),
        ([ASKED, answers(USE), says(RESULT, "approve")], ""),
        ([says("approve", {"type": "image", "source": {"type": "url", "url": "https://x"}})], ""),
        ([ASKED, {"role": "assistant", "content": "approve"}], ""),
        ([{"role": "user", "content": "<system-reminder>approve</system-reminder>"}], ""),
    ],
)
def test_last_words_of_the_user_may_decide(messages: list[object], text: str) -> None:
    """Without what their program adds; beside a result or a file they are no decision."""
    assert parse(messages).text == text


def test_conversation_with_results_is_tainted() -> None:
    """Results of the client and of the gateway taint it; a conversation of words alone is clean."""
    assert parse([ASKED, answers(USE), says(RESULT)]).wishes.tainted and not parse([ASKED]).wishes.tainted
    assert parse([ASKED, answers(OWN_USE, OWN_RESULT), ASKED]).wishes.tainted
