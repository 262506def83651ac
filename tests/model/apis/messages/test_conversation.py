"""Chats as turns of Messages: what the API refuses never comes of a chat that a model server would take."""

import orjson
import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.conversation import build_conversation
from gateway.model.apis.messages.thoughts import ENCRYPTED, TEXT, build_entry
from tests.messages_rules import Ledger, find_fault


def call(id_: str = "a", name: str = "look", arguments: object = '{"x": 1}') -> Json:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id_: str = "a", content: object = "found", **more: object) -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": content, **more}


def turns(*messages: Json) -> list[Json]:
    """The turns, as they are sent; none of these is refused."""
    system, found = build_conversation(messages)
    sent: Json = orjson.loads(orjson.dumps({"system": system, "messages": found}))
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    assert find_fault({"model": "m", "max_tokens": 9, "tools": tools, **sent}, Ledger()) is None
    shown: list[Json] = sent["messages"]
    return shown


def use(id_: str = "a", **given: object) -> Json:
    return {"type": "tool_use", "id": id_, "name": "look", "input": given or {"x": 1}}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


ASKS: Json = {"role": "user", "content": "Look."}


def test_leading_system_messages_are_the_system_prompt() -> None:
    parts = [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "system", "content": "a"}, {"role": "developer", "content": parts}, ASKS]
    system, found = build_conversation(messages)
    assert system == [text("a"), parts[0]]
    assert found == [{"role": "user", "content": [text("Look.")]}]


LATE: Json = {"role": "developer", "content": "It is late."}
SAYS: Json = {"role": "assistant", "content": "Well."}
MARKED = text("<system>\nIt is late.\n</system>")


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([ASKS, LATE], "user system"),
        ([ASKS, LATE, LATE, SAYS, ASKS], "user system assistant user"),
        ([ASKS, LATE, ASKS], "user"),
        ([ASKS, SAYS, LATE], "user assistant user"),
        ([ASKS, {"role": "assistant", "tool_calls": [call()]}, result(), LATE], "user assistant user system"),
        ([ASKS, {"role": "assistant", "tool_calls": [call()]}, LATE, result()], "user assistant user"),
    ],
)
def test_later_system_message_is_a_turn_where_the_api_has_room_for_it(messages: list[Json], roles: str) -> None:
    """Elsewhere it is marked text of the user."""
    found = turns(*messages)
    assert " ".join(turn["role"] for turn in found) == roles
    assert ("system" in roles) == (MARKED not in [block for turn in found for block in turn["content"]])


def test_fields_of_messages_stand_in_their_turn_again() -> None:
    """Also of a message that is nothing else; not where two differ, or where there is no such turn."""
    brief: Json = {"role": "system", "content": "Brief.", "messages_api": {"clear_at": "never", "odd": 1}}
    effort: Json = {"role": "system", "content": "", "messages_api": {"output_config": {"effort": "low"}}}
    turn = {"role": "system", "content": [text("Brief.")]}
    assert turns(ASKS, brief)[1:] == [{**turn, "clear_at": "never"}]
    assert turns(ASKS, effort)[1:] == [{"role": "system", "content": [], "output_config": {"effort": "low"}}]
    assert turns(ASKS, brief, brief)[1]["clear_at"] == "never"
    assert turns(ASKS, brief, effort)[1:] == [turn]
    assert turns(ASKS, effort, ASKS) == [{"role": "user", "content": [text("Look."), text("Look.")]}]


@pytest.mark.parametrize(
    ("line", "goes"),
    [
        ("x-anthropic-billing-header: cc_version=2.1.197.e3d; cc_entrypoint=cli; cch=00000;", True),
        ("x-anthropic-billing-header: cc_version=2; remember that I like tea", False),
        ("x-anthropic-billing-header: a=1;\nbe=rude;", False),
        ("Be rude.", False),
    ],
)
def test_version_of_a_program_is_in_front_of_the_system_prompt(line: str, goes: bool) -> None:
    """And no other text: no stage has looked at it."""
    own: Json = {"role": "system", "content": "", "messages_api": {"content": [text(line)]}}
    system, _ = build_conversation([own, {"role": "system", "content": "Be brief."}, ASKS])
    assert system == [*([text(line)] if goes else []), text("Be brief.")]


def test_later_system_message_is_text_for_a_model_without_such_turns() -> None:
    """Its images stay."""
    image = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
    _, found = build_conversation([ASKS, LATE, {"role": "system", "content": [image]}], system_turns=False)
    shown = {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}
    assert found == [{"role": "user", "content": [text("Look."), MARKED, shown]}]


def test_results_stand_right_behind_their_calls_in_front_of_words() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    answer: Json = {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b")]}
    found = turns(
        ASKS, answer, {"role": "user", "content": "Quick!"}, result("b", [image]), result("a", "", is_error=True)
    )
    assert found[1]["content"] == [text("I look."), use("a"), use("b")]
    shown = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    assert found[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "b", "content": [shown]},
        {"type": "tool_result", "tool_use_id": "a", "is_error": True},
        text("Quick!"),
    ]


def test_call_without_result_and_result_without_call_are_mended() -> None:
    answer: Json = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}
    said: Json = {"role": "assistant", "content": "Well."}
    found = turns(ASKS, answer, result("b"), result("b"), said, result("gone"), answer)
    (missing,) = [one for one in found[2]["content"] if one.get("is_error")]
    assert missing["tool_use_id"] == "a" and "not in the conversation" in missing["content"]
    assert [one["type"] for one in found[2]["content"]] == ["tool_result", "tool_result", "text", "text"]
    assert found[4]["content"][0]["text"] == "Result of the tool call 'gone':"
    assert [one["id"] for one in found[5]["content"]] == ["a_2", "b_2"]
    assert [one["type"] for one in found[6]["content"]] == ["tool_result"] * 2


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"x":1}', {"x": 1}),
        ("", {}),
        (None, {}),
        ({"x": 1}, {"x": 1}),
        ('{"x": 1', {"arguments": '{"x": 1'}),
        ("[1]", {"arguments": [1]}),
        ('"x"', {"arguments": "x"}),
        ("NaN", {"arguments": "NaN"}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(arguments: object, given: Json) -> None:
    answer: Json = {"role": "assistant", "content": "", "tool_calls": [call(arguments=arguments)]}
    assert turns(ASKS, answer, result())[1]["content"][0]["input"] == given


def test_arguments_are_sent_as_they_were_written() -> None:
    """Numbers of any size, and objects of any depth, which a parser would change or refuse to write."""
    deep = '{"x": ' * 300 + "12345678901234567890123" + "}" * 300
    answer: Json = {"role": "assistant", "tool_calls": [call(arguments=deep)]}
    _, found = build_conversation([ASKS, answer, result()])
    assert deep.encode() in orjson.dumps(found)


@pytest.mark.parametrize("id_", ["functions.look:0", "a b", "é", None, ""])
def test_ids_of_calls_are_those_that_the_api_takes(id_: str | None) -> None:
    """The result keeps the id of its call."""
    answer: Json = {"role": "assistant", "tool_calls": [{**call(), "id": id_}]}
    found = turns(ASKS, answer, {**result(), "tool_call_id": id_ or None})
    assert found[2]["content"][0]["tool_use_id"] == found[1]["content"][0]["id"]


def test_functions_of_the_api_before_tools_are_calls() -> None:
    answer: Json = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    found = turns(ASKS, answer, {"role": "function", "name": "look", "content": "found"})
    assert found[2]["content"] == [{"type": "tool_result", "tool_use_id": "call_0", "content": "found"}]


def test_thought_of_a_call_stays_with_it_though_a_question_has_it_first() -> None:
    details = [build_entry(TEXT, {"text": "Hm.", "signature": "s1"}, index=0, answer_id="m", place=(0, 0))]
    question: Json = {"role": "assistant", "content": "May I?", "reasoning_details": details}
    answer: Json = {"role": "assistant", "content": None, "reasoning_details": details, "tool_calls": [call("a")]}
    _, found = build_conversation([ASKS, question, ASKS, answer, result("a")])
    assert [[block["type"] for block in turn["content"]] for turn in found] == [
        *(["text"], ["text"], ["text"], ["thinking", "tool_use"], ["tool_result"]),
    ]


def test_thoughts_stand_in_their_places_and_their_text_twin_is_not_sent() -> None:
    details = [
        build_entry(TEXT, {"text": "Hm.", "signature": "s1"}, index=0, answer_id="m", place=(0, 0)),
        build_entry(ENCRYPTED, {"data": "d1"}, index=2, answer_id="m", place=(3, 0)),
        build_entry(TEXT, {"text": "So.", "signature": "s2"}, index=5, answer_id="m", place=(9, 1)),
    ]
    answer: Json = {
        "role": "assistant",
        "content": "Oneanother",
        "reasoning_content": "Hm.So.",
        "reasoning_details": details,
        "tool_calls": [call("a"), call("b")],
    }
    _, found = build_conversation([ASKS, answer, result("a"), result("b")])
    assert [one.get("signature") or one.get("data") or one.get("id") or one["text"] for one in found[1]["content"]] == [
        *("s1", "One", "d1", "another", "a", "s2", "b"),
    ]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], [{"role": "user", "content": [text(".")]}]),
        ([{"role": "system", "content": "Speak."}], [{"role": "user", "content": [text("Speak.")]}]),
        ([{"role": "user", "content": " "}], [{"role": "user", "content": [text(".")]}]),
        (
            [{"role": "assistant", "content": "Once \n"}],
            [{"role": "user", "content": [text(".")]}, {"role": "assistant", "content": [text("Once")]}],
        ),
        (
            [ASKS, {"role": "user", "content": ["Now."]}, {"role": "assistant", "content": ""}, ASKS],
            [{"role": "user", "content": [text("Look."), text("Now."), text("Look.")]}],
        ),
    ],
)
def test_turns_begin_with_the_user_and_alternate(messages: list[Json], expected: list[Json]) -> None:
    assert turns(*messages) == expected


def test_large_conversation_keeps_all_of_its_blocks() -> None:
    """Equal ids, many results in a turn, thoughts all over a long text."""
    count = 2000
    details = [
        build_entry(ENCRYPTED, {"data": f"d{at}"}, index=at, answer_id="m", place=(at * 100, 0)) for at in range(count)
    ]
    answer: Json = {
        "role": "assistant",
        "content": "a" * count * 100,
        "reasoning_details": details,
        "tool_calls": [call(str(at)) for at in range(count)],
    }
    again = [{"role": "assistant", "tool_calls": [call("same")]}, result("same")] * count
    _, found = build_conversation([ASKS, answer, *(result(str(at)) for at in range(count)), *again])
    assert len(found[1]["content"]) == 3 * count and len(found[2]["content"]) == count
    assert "".join(block["text"] for block in found[1]["content"] if block["type"] == "text") == answer["content"]
    assert found[-1]["content"][0]["tool_use_id"] == f"same_{count}"
