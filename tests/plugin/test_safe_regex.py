"""Patterns of an operator: those that are allowed, and why others are not."""

import pytest

from gateway.plugin.safe_regex import WAYS, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "width"),
    [
        (r"\bSEC-[0-9]{3,5}\b", 10),
        ("(?:red|blue)?x", 6),
        ("a{256}", 257),
        ("(ab|c){1,8}", 17),
        ("[^a-z]{1,64}@x", 67),
        ("x{1,9}?y", 11),
    ],
)
def test_bounded_pattern_compiles_to_a_rule_with_its_width(pattern: str, width: int) -> None:
    """Its width is the longest match and one character behind it."""
    rule = compile_pattern("mine", pattern)
    assert (rule.name, rule.width) == ("mine", width)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "is no regular expression"),
        ("a?", "matches the empty text"),
        ("a+", "can match more than 256 characters"),
        ("a{1,257}", "can match more than 256 characters"),
        ("(a|aa){1,64}b", f"can match in {WAYS + 1} ways"),
        ("a{1,60}a{1,60}a{1,60}b", f"can match in {WAYS + 1} ways"),
        ("(?=a)b", "uses assert:"),
        ("(?<!a)b", "uses assert_not:"),
        ("^a", "uses at:"),
        (r"(a)\1", "uses groupref:"),
    ],
)
def test_unbounded_or_invalid_patterns_are_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"the pattern 'mine' .*{reason.partition('(')[0]}"):
        compile_pattern("mine", pattern)


def test_pattern_matches_case_insensitively() -> None:
    assert compile_pattern("mine", "sec-[0-9]").build_finder("a SEC-1 b", range(9))(0) == (2, 7)
