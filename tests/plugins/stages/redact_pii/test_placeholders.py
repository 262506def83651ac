"""Placeholders: one for the same data, none that the client wrote itself."""

from gateway.aio.cooperative import run_at_once
from gateway.plugins.stages.redact_pii.placeholders import PlaceholderRule, Placeholders, find_placeholders


def test_equal_data_have_one_placeholder() -> None:
    known = Placeholders(())
    told = [
        known.assign_placeholder(rule, data)
        for rule, data in (("email", "a"), ("email", "b"), ("ip", "a"), ("email", "a"))
    ]
    assert told == ["[EMAIL_1]", "[EMAIL_2]", "[IP_1]", "[EMAIL_1]"]
    assert known.data == {"[EMAIL_1]": "a", "[EMAIL_2]": "b", "[IP_1]": "a"}


def test_placeholder_in_client_text_is_not_reused() -> None:
    taken = run_at_once(find_placeholders("x" * 40_000 + "What is [EMAIL_1]?"))
    assert Placeholders(taken).assign_placeholder("email", "a") == "[EMAIL_2]"


def test_open_bracket_is_held_back_up_to_the_placeholder_length() -> None:
    """It waits for its end, up to the length of a placeholder."""
    rule = PlaceholderRule()
    assert [rule.count_stable_chars(text) for text in ("a [EM", "a [EMAIL_1] b", "a [" + "E" * 60)] == [2, 13, 63]
