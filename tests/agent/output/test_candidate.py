"""Where a candidate begins and ends."""

import pytest

from gateway.agent.output.candidate import HEAD_CHARS, Candidate, could_be_call


@pytest.mark.parametrize(
    "head",
    [
        '{"tool"',
        '{ "parameters"',
        '[ {"tool_call"',
        '{"name": "x',
        '{\n  "a" : [',
        '{"a": None',
        "{'tool':",
        "{tool :",
        "{tool_call=",
        "{`terminate`:",
        "{“tool”：",
        '{\\"tool\\":',
    ],
)
def test_candidate_head_that_may_be_a_call_is_accepted(head: str) -> None:
    """A first key with a value, or a word of a call in any quotes; each shorter beginning says no such thing."""
    assert could_be_call(head) is True
    assert could_be_call(head + " whatever follows") is True
    assert False not in {could_be_call(head[:n]) for n in range(1, len(head))}


@pytest.mark.parametrize(
    "head",
    ["{1, 2}", "{user} said", "{{", "{}", "[]", "[1", "[{}", "{tool}", "{toolbox:", '{"a"}', '{"a": x', '{"a\nb": 1'],
)
def test_candidate_head_that_cannot_be_a_call_is_rejected(head: str) -> None:
    """Sets, templates, lists; whatever follows."""
    assert could_be_call(head) is False
    assert could_be_call(head + '"tool": {') is False


@pytest.mark.parametrize("head", ["{", "[", "{ ", "[ {\n", '{"too', '{"a"', '{"a": ', "{to", "{tool", "{'tool' "])
def test_candidate_head_too_short_to_decide_is_undecided(head: str) -> None:
    """Not decided before it can be."""
    assert could_be_call(head) is None
    assert len(head) < HEAD_CHARS


@pytest.mark.parametrize(
    "text", ["{}", '{"a": "}\\"}", "b": [{}]}', '["\\\\", "]"]', '{"a": "\\\\\\"}"}', "{'a': [1, {}]}", '{"}": 1}']
)
@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_candidate_ends_at_its_closing_brace(text: str, size: int) -> None:
    """Whatever the pieces; braces in strings are none."""
    attempt, behind = Candidate(), text + "} tail"
    for start in range(0, len(behind), size):
        end = min(start + size, len(behind))
        close = attempt.feed(behind, start, end)
        if close is not None:
            assert behind[:close] == attempt.text == text
            assert attempt.size == len(text)
            return
    pytest.fail("never closed")


def test_candidate_ignores_text_beyond_the_given_end() -> None:
    """Text behind `end` is not examined."""
    attempt = Candidate()
    assert attempt.feed('{"a": 1}', 0, 4) is None
    assert (attempt.text, attempt.size) == ('{"a"', 4)
    assert attempt.feed('{"a": 1}', 4, 8) == 8
