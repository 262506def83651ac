"""Keys of answers: the same for what means the same, and others for each end user and named conversation."""

import pytest

from gateway.agent.hidden.answer_keys import AnswerKeys, Scope, build_answer_keys, build_issued_keys
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.store import Json

USER: Json = {"role": "user", "content": "read a.txt"}
ANSWER: Json = {"role": "assistant", "content": "It says hello."}
MORE: Json = {"role": "user", "content": "and b.txt?"}
ID = "call_0123456789abcdef01234567"
CALL: Json = {"id": ID, "type": "function", "function": {"name": "look", "arguments": '{"at":"a.txt"}'}}
CALLED: Json = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD: Json = {"role": "tool", "tool_call_id": ID, "content": "seen"}
ASK = "ap_" + "a2" * 13


def scope(tenant: str = "t", caller: str = "c", user: str | None = "ann", conversation: str | None = None) -> Scope:
    who = Caller(caller, tenant, frozenset())
    return Scope(Exchange(id="r", body={}, caller=who, chain="main", user=user, conversation=conversation))


def keys(*messages: Json, **whose: str | None) -> dict[int, AnswerKeys]:
    return build_answer_keys(messages, scope(**whose))  # type: ignore[arg-type]  # by name


def last(*messages: Json, **whose: str | None) -> AnswerKeys:
    """The keys of the last message."""
    return keys(*messages, **whose)[len(messages) - 1]


def test_answer_keys_are_derived_from_the_preceding_messages() -> None:
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
def test_answer_key_ignores_equivalent_spellings(again: list[Json]) -> None:
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


@pytest.mark.parametrize("other", [{"tenant": "u"}, {"caller": "d"}, {"user": "bob"}, {"user": None}])
def test_answer_key_depends_on_end_user_key_and_tenant(other: dict[str, str | None]) -> None:
    """Another end user, key or tenant has none of them, of no kind."""
    asked = (USER, {**CALLED, "content": f"approve {ASK}"})
    mine, theirs = last(*asked, conversation="talk"), last(*asked, **{"conversation": "talk", **other})
    assert not {*mine.ids, *mine.by_meaning} & {*theirs.ids, *theirs.by_meaning}
    assert len(mine.ids) == len(mine.by_meaning) == 2


def test_meaning_key_depends_on_the_conversation_name() -> None:
    """Ids are the same in each: the turn itself says which conversation it is of."""
    one, two, unnamed = (last(USER, CALLED, conversation=name) for name in ("talk", "walk", None))
    assert one.ids == two.ids == unnamed.ids
    assert len({one.prefix, two.prefix, unnamed.prefix, one.place, two.place, unnamed.place}) == 6


def test_answer_of_an_unnamed_request_has_only_id_keys() -> None:
    """An end user or a conversation is a name."""
    assert [scope(user=user, conversation=name).has_meaning for user, name in NAMES] == [False, True, True, True]
    assert last(USER, CALLED, user=None).place is None


NAMES = [(None, None), ("ann", None), (None, "talk"), ("ann", "talk")]


def test_approval_and_response_ids_are_answer_keys() -> None:
    """An answer of a response is known where each answer has its response, or none."""
    asked: Json = {"role": "assistant", "content": f"May I? To answer: `approve {ASK} word`."}
    (key,) = last(USER, asked).ids
    assert last(MORE, asked).ids == (key,) and last(USER, {**asked, "role": "user"}, asked).ids == (key,)
    answers = build_answer_keys([USER, ANSWER, MORE, ANSWER], scope(), answer_ids=["run_1", ""])
    assert len(answers[1].ids) == 1 and answers[3].ids == ()
    assert build_answer_keys([USER, ANSWER], scope(), answer_ids=["run_1", ""])[1].ids == ()
    assert build_issued_keys(scope(), "", tool_calls=(), answer_id="run_1") == answers[1].ids
    assert build_issued_keys(scope(), asked["content"], tool_calls=(), answer_id="") == (key,)


def test_only_ids_of_issued_calls_are_answer_keys() -> None:
    """A model repeats ids in its text; an id that others may have is no key."""
    counted = {**CALL, "id": "call_1"}
    assert build_issued_keys(scope(), f"I read {ID}.", tool_calls=[counted], answer_id="") == ()
    assert build_issued_keys(scope(), "", tool_calls=[CALL], answer_id="") == last(USER, CALLED).ids


def test_answer_key_ignores_text_beside_calls() -> None:
    """Many clients drop it; also calls as they were before they had ids."""
    legacy: Json = {"role": "assistant", "function_call": {"name": "look", "arguments": '{"at": "a.txt"}'}}
    assert last(USER, CALLED).prefix == last(USER, {**CALLED, "content": "I look."}).prefix == last(USER, legacy).prefix
    assert last(USER, CALLED, {**TOLD, "role": "function"}, ANSWER) == last(USER, CALLED, TOLD, ANSWER)


def test_answer_key_of_a_call_is_its_id() -> None:
    """Wherever it stands, whatever came before it, also in text; a guessable one is nobody's own."""
    (key,) = last(USER, CALLED).ids
    text = {"role": "assistant", "content": f"Calling tools:\n[{{'id': '{ID}', 'function': {{'name': 'look'}}}}]"}
    assert last(MORE, text).ids == last(CALLED).ids == (key,)
    assert last(USER, {**CALLED, "tool_calls": [{**CALL, "id": "call_1"}]}).ids == ()
    assert keys({**USER, "content": ID}) == {}


def test_conversation_name_gives_an_answer_a_place_key() -> None:
    """A long one alone, a short one behind the same words; the first id in it is a name, too."""
    long: Json = {"role": "assistant", "content": "It says hello to everybody, and goes on like that for seven pages."}
    named = last(USER, ANSWER, conversation="talk")
    assert last(USER, ANSWER).place is None and named.place not in (None, last(USER, ANSWER, conversation="b").place)
    assert last(MORE, USER, ANSWER, conversation="talk").place == named.place
    assert last(MORE, ANSWER, conversation="talk").place != named.place
    assert last(MORE, long, conversation="talk").place == last(USER, long, conversation="talk").place
    assert last(USER, CALLED, TOLD, long).place == last(MORE, CALLED, {**TOLD, "content": "[cleared]"}, long).place


def test_malformed_messages_get_no_harmful_answer_keys() -> None:
    """Whatever a client sends as content or calls."""
    odd: list[Json] = [
        {"role": "assistant", "content": 5, "tool_calls": ["x", {}, {"function": None}, {"id": [], "function": {}}]},
        {"content": None},
        {"role": "assistant", "content": [None, {"text": 7}, "a"], "function_call": 3, "tool_calls": {"id": 1}},
    ]
    assert list(keys(*odd)) == [0, 2]
