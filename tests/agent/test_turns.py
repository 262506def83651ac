"""Hidden turns are put back exactly where they came from, once, and nowhere else."""

from collections.abc import Mapping

import pytest

from gateway.agent.hidden_turns import Keys, keys_of, places_of, put_back
from gateway.contracts.store import HiddenTurn, Json

USER: Json = {"role": "user", "content": "read a.txt"}
ANSWER: Json = {"role": "assistant", "content": "It says hello."}
MORE: Json = {"role": "user", "content": "and b.txt?"}
OURS: Json = {"role": "tool", "tool_call_id": "call_1", "content": "hello"}
ID = "call_0123456789abcdef01234567"
CALL: Json = {"id": ID, "type": "function", "function": {"name": "look", "arguments": '{"at":"a.txt"}'}}
CALLED: Json = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD: Json = {"role": "tool", "tool_call_id": ID, "content": "seen"}


def keys(*messages: Json, tenant: str = "t", caller: str = "c", conversation: str | None = None) -> dict[int, Keys]:
    return keys_of(messages, tenant=tenant, caller=caller, conversation=conversation)


def last(*messages: Json, tenant: str = "t", caller: str = "c", conversation: str | None = None) -> Keys:
    """The keys of the last message."""
    return keys(*messages, tenant=tenant, caller=caller, conversation=conversation)[len(messages) - 1]


def turn(turn_id: str = "t1", *, run_id: str = "run_1", start: int = 0, end: int = 1) -> HiddenTurn:
    return HiddenTurn(id=turn_id, run_id=run_id, start=start, end=end, before=[{**OURS, "content": turn_id}])


def places(found: Mapping[int, Keys], known: Mapping[str, HiddenTurn]) -> dict[int, list[str]]:
    """The ids of the turns by the index of their answer."""
    return {index: [turn.id for turn in turns] for index, turns in places_of(found, known).items()}


def test_each_answer_has_the_key_of_what_was_seen_until_then() -> None:
    """By its index; a later answer has another one."""
    found = keys(USER, ANSWER, MORE, ANSWER)
    assert list(found) == [1, 3] and found[1].prefix == last(USER, ANSWER).prefix != found[3].prefix


@pytest.mark.parametrize(
    "again",
    [
        [{"role": "system", "content": "Be brief."}, USER, ANSWER],
        [USER, {"role": "developer", "content": "Be brief."}, ANSWER],
        [{**USER, "content": [{"type": "text", "text": "read "}, {"type": "text", "text": "a.txt"}]}, ANSWER],
        [{**USER, "name": "ann"}, {**ANSWER, "name": "bot"}],
        [USER, {**ANSWER, "content": "  It says\r\nhello.\n", "refusal": None, "annotations": [], "audio": None}],
        [USER, {**ANSWER, "content": "It says\u00a0hello.", "tool_calls": None, "function_call": None}],
        [USER, {**ANSWER, "tool_calls": [], "reasoning_content": "Hm."}],
        [USER, {**ANSWER, "content": [{"type": "output_text", "text": "It says hello.", "annotations": []}]}],
        [USER, {**ANSWER, "content": "<think>Hm. I see.</think>\n\nIt says hello."}],
        [USER, {**ANSWER, "content": "<thought>Hm.</thought><reasoning>I see.</reasoning>It says hello."}],
        [USER, {**ANSWER, "content": "◁think▷Hm. I see.◁/think▷It says hello."}],
        [USER, {**ANSWER, "content": "Hm. I see.\n</think>\n\nIt says hello."}],
        [USER, {"role": "assistant", "content": ""}, ANSWER],
        [USER, {**ANSWER, "content": '<details type="reasoning" done="true">\n> Hm.\n</details>\nIt says hello.'}],
    ],
)
def test_what_a_client_sends_back_otherwise_makes_no_difference(again: list[Json]) -> None:
    """It means the same."""
    assert last(*again).prefix == last(USER, ANSWER).prefix


@pytest.mark.parametrize(
    "other",
    [
        [{"role": "user", "content": "read b.txt"}, ANSWER],
        [USER, {**ANSWER, "content": "It says hello!"}],
        [USER, {**ANSWER, "content": "It says <think>hello."}],
        [USER, {**ANSWER, "tool_calls": [CALL]}],
        [USER, USER, ANSWER],
        [USER, MORE, ANSWER],
        [ANSWER],
        [{**USER, "role": "tool"}, ANSWER],
        [USER, ANSWER, ANSWER],
        [{**USER, "content": "<think>Hm.</think>read a.txt"}, ANSWER],
        [{**USER, "content": "read a.txt" + "It says hello."}, {**ANSWER, "content": ""}],
    ],
)
def test_an_edited_conversation_has_another_key(other: list[Json]) -> None:
    """Another word, message, order or role."""
    assert last(*other).prefix != last(USER, ANSWER).prefix


def test_a_key_is_its_callers() -> None:
    """Another caller or tenant has none of them, of no kind."""
    asked = (USER, CALLED)
    mine = last(*asked, conversation="talk")
    for theirs in (last(*asked, caller="d", conversation="talk"), last(*asked, tenant="u", conversation="talk")):
        assert not {mine.prefix, *mine.own} & {theirs.prefix, *theirs.own}


def test_the_text_beside_calls_is_not_needed() -> None:
    """Many clients drop it; also calls as they were before they had ids."""
    legacy: Json = {"role": "assistant", "function_call": {"name": "look", "arguments": '{"at": "a.txt"}'}}
    assert last(USER, CALLED).prefix == last(USER, {**CALLED, "content": "I look."}).prefix == last(USER, legacy).prefix
    assert last(USER, CALLED, {**TOLD, "role": "function"}, ANSWER) == last(USER, CALLED, TOLD, ANSWER)


def test_a_call_is_known_by_its_id() -> None:
    """Wherever it stands, whatever came before it, also in text; a guessable one is nobody's own."""
    (key,) = last(USER, CALLED).calls
    text = {"role": "assistant", "content": f"Calling tools:\n[{{'id': '{ID}', 'function': {{'name': 'look'}}}}]"}
    assert last(MORE, text).calls == last(CALLED).calls == (key,)
    assert last(USER, {**CALLED, "tool_calls": [{**CALL, "id": "call_1"}]}).calls == ()
    assert keys({**USER, "content": ID}) == {}


def test_a_name_of_the_conversation_finds_an_answer_by_itself() -> None:
    """A long one alone, a short one behind the same words; the first id in it is a name, too."""
    long: Json = {"role": "assistant", "content": "It says hello to everybody, and goes on like that for seven pages."}
    named = last(USER, ANSWER, conversation="talk")
    assert last(USER, ANSWER).place is None and named.place not in (None, last(USER, ANSWER, conversation="b").place)
    assert last(MORE, USER, ANSWER, conversation="talk").place == named.place
    assert last(MORE, ANSWER, conversation="talk").place != named.place
    assert last(MORE, long, conversation="talk").place == last(USER, long, conversation="talk").place
    assert last(USER, CALLED, TOLD, long).place == last(MORE, CALLED, {**TOLD, "content": "[cleared]"}, long).place


def test_a_turn_is_put_back_once() -> None:
    """By its surest key; one that could go to two answers goes nowhere."""
    found = keys(USER, CALLED, TOLD, CALLED, conversation="talk")
    assert places(found, {key: turn() for own in found.values() for key in (own.prefix, *own.own)}) == {1: ["t1"]}
    twice = keys(USER, ANSWER, USER, ANSWER, conversation="talk")
    assert twice[1].place == twice[3].place is not None
    assert places(twice, {twice[1].place: turn()}) == {}
    assert places(twice, {twice[3].prefix: turn()}) == {3: ["t1"]}


def test_a_call_in_text_and_the_answer_behind_it_have_their_own() -> None:
    """A program that makes one message of two turns gets what was hidden of both, in their order."""
    found = keys(USER, {**ANSWER, "content": f'<details type="tool_calls" id="{ID}">seen</details>It says hello.'})
    (own,) = found.values()
    assert own.place == last(USER, CALLED, TOLD, ANSWER).place is not None
    known = {own.calls[0]: turn("t1"), own.place: turn("t2", run_id="run_2")}
    assert places(found, known) == {0 + 1: ["t1", "t2"]}


def test_what_was_done_in_a_run_stands_once() -> None:
    """Its parts may be kept with a question and with an answer."""
    found = keys(USER, ANSWER, MORE, ANSWER)
    whole, part = turn("t1", end=4), turn("t2", start=2, end=4)
    assert places(found, {found[1].prefix: whole, found[3].prefix: part}) == {1: ["t1"]}
    assert places(found, {found[1].prefix: turn("t0", end=2), found[3].prefix: part}) == {1: ["t0"], 3: ["t2"]}


def test_hidden_messages_stand_around_their_answer() -> None:
    """What came of a question stands in its place; where the run asks once more, the question stands behind that."""
    around = HiddenTurn(id="t", run_id="r", start=0, end=2, before=[OURS], behind=[TOLD])
    role = "assistant" if TOLD["role"] == "tool" else "tool"
    other = HiddenTurn(id="t", run_id="r", start=0, end=2, before=[OURS], behind=[{**TOLD, "role": role}])
    for turn in (around, other):
        (came,) = turn.behind
        question = [] if came["role"] == "assistant" else [ANSWER]
        assert put_back([USER, ANSWER, MORE], {1: [turn]}) == [USER, OURS, came, *question, MORE]
    assert put_back([USER, ANSWER], {}) == [USER, ANSWER]


def test_odd_messages_do_no_harm() -> None:
    """Whatever a client sends as content or calls."""
    odd: list[Json] = [
        {"role": "assistant", "content": 5, "tool_calls": ["x", {}, {"function": None}, {"id": [], "function": {}}]},
        {"content": None},
        {"role": "assistant", "content": [None, {"text": 7}, "a"], "function_call": 3, "tool_calls": {"id": 1}},
    ]
    assert list(keys(*odd)) == [0, 2]
