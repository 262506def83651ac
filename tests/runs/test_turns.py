"""Hidden turns are put back exactly where they came from, and nowhere else."""

from gateway.runs.turns import prefixes, put_back

USER = {"role": "user", "content": "read a.txt"}
ANSWER = {"role": "assistant", "content": "It says hello."}
MORE = {"role": "user", "content": "and b.txt?"}
HIDDEN = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "hello"}]


def key_of(*messages: dict[str, object], tenant: str = "t", caller: str = "c") -> str:
    """The key of the conversation that ends with its last message."""
    return prefixes(messages, tenant=tenant, caller=caller)[len(messages) - 1]


def test_each_answer_has_the_key_of_what_was_seen_until_then() -> None:
    """By its index; a later answer has another one."""
    found = prefixes([USER, ANSWER, MORE, ANSWER], tenant="t", caller="c")
    assert list(found) == [1, 3] and found[1] == key_of(USER, ANSWER) != found[3]


def test_what_a_client_sends_back_otherwise_makes_no_difference() -> None:
    """Outer white space, a text in parts, system messages, further fields."""
    parts = {"role": "user", "content": [{"type": "text", "text": "read "}, {"type": "text", "text": "a.txt"}]}
    again = {"role": "assistant", "content": "  It says hello.\n", "refusal": None, "tool_calls": None}
    system = {"role": "system", "content": "Be brief."}
    assert key_of(system, parts, again) == key_of(USER, ANSWER)


def test_another_conversation_has_another_key() -> None:
    """Another word, another caller, another tenant, another tool call."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    others = [
        key_of({"role": "user", "content": "read b.txt"}, ANSWER),
        key_of(USER, {"role": "assistant", "content": "It says hello!"}),
        key_of(USER, {**ANSWER, "tool_calls": [call]}),
        key_of(USER, ANSWER, caller="d"),
        key_of(USER, ANSWER, tenant="u"),
    ]
    assert len({key_of(USER, ANSWER), *others}) == 6


def test_hidden_messages_stand_before_their_answer() -> None:
    """Those of answers that are not known do not appear."""
    conversation = [USER, ANSWER, MORE, ANSWER]
    assert put_back(conversation, {1: HIDDEN}) == [USER, *HIDDEN, ANSWER, MORE, ANSWER]
    assert put_back(conversation, {}) == conversation


def test_odd_messages_do_no_harm() -> None:
    """Whatever a client sends as content or calls."""
    odd = [{"role": "assistant", "content": 5, "tool_calls": ["x", {}, {"function": None}]}, {"content": None}]
    assert list(prefixes(odd, tenant="t", caller="c")) == [0]
