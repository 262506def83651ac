"""The marks for the prompt cache: the client's, or the gateway's, and never more than the API takes."""

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.cache_marks import LIMIT, set_marks
from tests.messages_rules import list_blocks

MARK: Json = {"type": "ephemeral"}


def text(words: str, **more: object) -> Json:
    return {"type": "text", "text": words, **more}


def turn(role: str, *blocks: Json) -> Json:
    return {"role": role, "content": list(blocks)}


def marked(body: Json) -> list[str]:
    """The words or names of the marked blocks."""
    found = [one for one in list_blocks(body) if one.get("cache_control") is not None]
    return [one.get("name") or one.get("text") or one.get("tool_use_id") or one["type"] for one in found]


def test_tools_system_settled_answers_and_the_last_turn_are_marked() -> None:
    tools = [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]
    body: Json = {
        "tools": [*tools],
        "system": [text("s1"), text("s2")],
        "messages": [
            turn("user", text("u1")),
            turn("assistant", text("a1"), {"type": "thinking", "thinking": "t", "signature": "s"}),
            turn("user", text("u2")),
            turn("assistant", {"type": "tool_use", "id": "t1", "name": "a", "input": {}}),
            turn("user", {"type": "tool_result", "tool_use_id": "t1", "content": "x"}),
        ],
    }
    set_marks(body, caches=True)
    assert marked(body) == ["b", "s2", "a1", "t1"] and len(marked(body)) == LIMIT
    assert tools == [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]


def test_first_question_has_one_mark_and_a_turn_of_thoughts_none() -> None:
    body: Json = {"messages": [turn("user", text("u1"))]}
    set_marks(body, caches=True)
    assert marked(body) == ["u1"]
    alone: Json = {"messages": [turn("user", text("u")), turn("assistant", {"type": "redacted_thinking", "data": "d"})]}
    set_marks(alone, caches=True)
    assert marked(alone) == []


def test_marks_of_the_client_stay_alone_and_switch_off_the_gateways() -> None:
    inner = {"type": "tool_result", "tool_use_id": "t", "content": [text("inner", cache_control=MARK)]}
    for body in (
        {"system": [text("s")], "messages": [turn("user", text("u", cache_control=MARK), text("v"))]},
        {"system": [text("s")], "messages": [turn("user", inner)]},
        {"system": [text("s")], "messages": [turn("user", text("u"))], "cache_control": MARK},
    ):
        before = marked(body)
        set_marks(body, caches=True)
        assert marked(body) == before
    off: Json = {"system": [text("s")], "messages": [turn("user", text("u"))]}
    set_marks(off, caches=False)
    assert marked(off) == []


def test_earliest_of_too_many_marks_are_taken_out() -> None:
    blocks = [text(str(number), cache_control=MARK) for number in range(6)]
    body: Json = {"messages": [turn("user", *blocks)]}
    set_marks(body, caches=True)
    assert marked(body) == ["2", "3", "4", "5"]
    again: Json = {
        "cache_control": MARK,
        "messages": [turn("user", *(text(one, cache_control=MARK) for one in "abcd"))],
    }
    set_marks(again, caches=True)
    assert marked(again) == ["b", "c", "d"]
