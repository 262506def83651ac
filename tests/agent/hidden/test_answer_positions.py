"""Hidden turns are put back exactly where they came from, once, and nowhere else."""

from collections.abc import Mapping

from gateway.agent.hidden.answer_keys import AnswerKeys
from gateway.agent.hidden.answer_positions import find_places, put_back
from gateway.contracts.storage.store import HiddenTurn, Json

from .test_answer_keys import ANSWER, CALLED, ID, MORE, TOLD, USER, keys, last

OURS: Json = {"role": "tool", "tool_call_id": "call_1", "content": "hello"}


def turn(
    turn_id: str = "t1", *, run_id: str = "run_1", start: int = 0, end: int = 1, conversation: str | None = None
) -> HiddenTurn:
    before = [{**OURS, "content": turn_id}]
    return HiddenTurn(id=turn_id, run_id=run_id, start=start, end=end, before=before, conversation=conversation)


def places(found: Mapping[int, AnswerKeys], known: Mapping[str, HiddenTurn | None]) -> dict[int, list[str]]:
    """The ids of the turns by the index of their answer."""
    turns = find_places(found, known, conversation="talk").turns
    return {index: [turn.id for turn in own] for index, own in turns.items()}


def test_hidden_turn_is_restored_once_by_its_surest_key() -> None:
    """By its surest key; one that could go to two answers goes nowhere."""
    found = keys(USER, CALLED, TOLD, CALLED, conversation="talk")
    assert places(found, {key: turn() for own in found.values() for key in (*own.ids, *own.by_meaning)}) == {1: ["t1"]}
    twice = keys(USER, ANSWER, USER, ANSWER, conversation="talk")
    place = twice[1].place
    assert place is not None and place == twice[3].place
    assert places(twice, {place: turn()}) == {}
    assert places(twice, {twice[3].prefix: turn()}) == {3: ["t1"]}


def test_call_in_text_and_its_answer_restore_separate_turns() -> None:
    """A program that makes one message of two turns gets what was hidden of both, in their order."""
    found = keys(USER, {**ANSWER, "content": f'<details type="tool_calls" id="{ID}">seen</details>It says hello.'})
    (own,) = found.values()
    assert own.place is not None and own.place == last(USER, CALLED, TOLD, ANSWER).place
    known = {own.ids[0]: turn("t1"), own.place: turn("t2", run_id="run_2")}
    assert places(found, known) == {0 + 1: ["t1", "t2"]}


def test_hidden_turn_of_a_run_is_restored_only_once() -> None:
    """Its parts may be kept with a question and with an answer."""
    found = keys(USER, ANSWER, MORE, ANSWER)
    whole, part = turn("t1", end=4), turn("t2", start=2, end=4)
    assert places(found, {found[1].prefix: whole, found[3].prefix: part}) == {1: ["t1"]}
    assert places(found, {found[1].prefix: turn("t0", end=2), found[3].prefix: part}) == {1: ["t0"], 3: ["t2"]}


def test_hidden_messages_are_placed_around_their_answer() -> None:
    """Messages that follow a question stand in its place. Another question of the run stands behind them."""
    around = HiddenTurn(id="t", run_id="r", start=0, end=2, before=[OURS], behind=[TOLD])
    role = "assistant" if TOLD["role"] == "tool" else "tool"
    other = HiddenTurn(id="t", run_id="r", start=0, end=2, before=[OURS], behind=[{**TOLD, "role": role}])
    for turn in (around, other):
        (came,) = turn.behind
        question = [] if came["role"] == "assistant" else [ANSWER]
        assert put_back([USER, ANSWER, MORE], {1: [turn]}) == [USER, OURS, came, *question, MORE]
    assert put_back([USER, ANSWER], {}) == [USER, ANSWER]


def test_thoughts_of_hidden_rounds_stand_in_these_alone() -> None:
    """A client sends the thoughts of a whole turn with its answer: by their proofs, or as one text."""
    first, second = ({"signature": name, "text": name} for name in ("s1", "s2"))
    hidden = {"role": "assistant", "content": None, "reasoning_details": [first], "reasoning_content": "A"}
    round_ = HiddenTurn(id="t", run_id="r", start=0, end=2, before=[hidden, OURS])
    answer = {**ANSWER, "reasoning_details": [first, {**second, "index": 1}, 5], "reasoning_content": "AB"}
    left = {**answer, "reasoning_details": [{**second, "index": 1}, 5], "reasoning_content": "B"}
    assert put_back([USER, answer], {1: [round_]}) == [USER, hidden, OURS, left]
    same = {**ANSWER, "reasoning_details": [first], "reasoning_content": "A"}
    assert put_back([USER, same], {1: [round_]}) == [USER, hidden, OURS, ANSWER]
    assert put_back([USER, answer], {}) == [USER, answer]


def test_ambiguous_hidden_turn_is_not_restored() -> None:
    """By whichever key: an ambiguous conversation is not looked for by its last answer alone."""
    found = keys(USER, CALLED, MORE, ANSWER, conversation="talk")
    prefix, place = found[3].by_meaning
    assert places(found, {prefix: None, place: turn()}) == {} == places(found, {place: None})
    for key in (found[1].ids[0], prefix, place):
        assert find_places(found, {key: None}, conversation="talk").ambiguous == 1
    assert find_places(found, {prefix: None, place: None}, conversation="talk").ambiguous == 1


def test_id_of_another_named_conversation_restores_nothing() -> None:
    """If both have a name."""
    found = keys(USER, CALLED)
    (key,) = found[1].ids
    for name, there, is_found in (
        ("talk", "walk", False),
        ("talk", "talk", True),
        (None, "a", True),
        ("a", None, True),
    ):
        seen = find_places(found, {key: turn(conversation=there)}, conversation=name)
        assert (bool(seen.turns), seen.foreign) == (is_found, int(not is_found))
