"""The messages of a chat as items of Responses."""

from gateway.contracts.storage.store import Json
from gateway.model.apis.responses.conversation import build_conversation
from gateway.model.apis.responses.thoughts import ENCRYPTED, MESSAGE, build_entry

USER: Json = {"role": "user", "content": "Hi"}
IMAGE: Json = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
SHOWN: Json = {"type": "input_image", "image_url": "https://x/a.png", "detail": "auto"}


def called(call_id: str, arguments: object = "{}", **fields: object) -> Json:
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **fields}


def result(call_id: str | None, content: object = "Dark.", **fields: object) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def entry(kind: str, index: int, place: tuple[int, int] = (0, 0), **fields: object) -> Json:
    return build_entry(kind, fields, index=index, answer_id="a", place=place)


def items(*messages: Json) -> list[Json]:
    return build_conversation(messages)[1]


def message(role: str, content: object, **fields: object) -> Json:
    return {"type": "message", "role": role, "content": content, **fields}


def test_system_messages_in_front_are_the_instructions_and_later_ones_stay() -> None:
    lead: list[Json] = [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}]
    instructions, sent = build_conversation([*lead, USER, {"role": "system", "content": "C"}])
    assert instructions == "A\n\nB"
    assert sent == [message("user", "Hi"), message("system", "C")]
    assert build_conversation(lead) == ("", [message("system", "A"), message("developer", "B")])


def test_calls_and_results_become_items() -> None:
    parts = [{"type": "text", "text": "See"}, IMAGE]
    assert items(USER, called("a", '{"x": 1}'), result("a", parts), USER)[1:3] == [
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"x": 1}'},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "See"}, SHOWN]},
    ]
    assert items(called("a", " "))[0]["arguments"] == "{}"


def test_failed_result_says_so() -> None:
    assert items(called("a"), result("a", "Gone.", is_error=True))[1]["output"] == "Error: Gone."
    assert items(called("a"), result("a", "error: gone", is_error=True))[1]["output"] == "error: gone"
    output = items(called("a"), result("a", [IMAGE], is_error=True))[1]["output"]
    assert output == [{"type": "input_text", "text": "Error:"}, SHOWN]
    assert items(called("a"), result("a", None))[1]["output"] == ""


def test_call_without_a_result_gets_one_and_a_result_without_its_call_is_text() -> None:
    sent = items(called("a"), USER, called("b"), result("x"))
    assert [item["type"] for item in sent] == [
        *("function_call", "message", "function_call_output", "function_call", "message", "function_call_output"),
    ]
    assert sent[2]["call_id"] == "a" and "not in the conversation" in sent[2]["output"]
    assert sent[4]["content"][0]["text"] == "Result of the tool call 'x':" and sent[4]["content"][1]["text"] == "Dark."


def test_ids_that_come_again_or_are_long_get_their_own() -> None:
    long = "c" * 65
    sent = items(called("call_0"), result("call_0"), called("call_0"), result("call_0"), called(long), result(long))
    ids = [item["call_id"] for item in sent]
    assert ids[:4] == ["call_0", "call_0", "call_0_2", "call_0_2"]
    assert ids[4] == ids[5] and len(ids[4]) <= 64


def test_calls_of_the_api_before_tools_have_results() -> None:
    old: Json = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    sent = items(old, {"role": "function", "name": "look", "content": "Dark."})
    assert [(item["type"], item["call_id"]) for item in sent] == [
        ("function_call", "call_0"),
        ("function_call_output", "call_0"),
    ]


def test_reasoning_and_phases_stand_in_their_places() -> None:
    details = [
        entry(ENCRYPTED, 0, data="eA==", id="rs_0"),
        entry(MESSAGE, 1, phase="commentary"),
        entry(ENCRYPTED, 2, (3, 0), data="eQ==", id="rs_2"),
        entry(ENCRYPTED, 5, (6, 1), data="eg==", id="rs_5"),
    ]
    sent = items(called("a", content="Hm.So.", reasoning_details=details), result("a"))
    assert [item.get("encrypted_content") or item.get("content") or item["type"] for item in sent] == [
        *("eA==", "Hm.", "eQ==", "So.", "function_call", "function_call_output"),
    ]
    assert sent[1]["phase"] == "commentary" and "phase" not in sent[3]


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    details = [entry(ENCRYPTED, 0, data="eA==", id="rs_0")]
    assert items(USER, {"role": "assistant", "content": "", "reasoning_details": details}) == [message("user", "Hi")]


def test_thought_of_a_call_stays_with_it_though_a_question_has_it_first() -> None:
    details = [entry(ENCRYPTED, 0, data="eA==", id="rs_0")]
    question: Json = {"role": "assistant", "content": "May I?", "reasoning_details": details}
    sent = items(question, USER, called("a", reasoning_details=details), result("a"))
    kinds = ["message", "message", "reasoning", "function_call", "function_call_output"]
    assert [item["type"] for item in sent] == kinds


def test_texts_side_by_side_are_one_message() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert items({"role": "assistant", "content": parts}) == [message("assistant", "ab")]
