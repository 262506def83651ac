"""Spellings of a name share one form, and other names have others."""

import pytest

from gateway.text.confusables import compute_skeleton


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("GATE-WAY", "gateway"),
        ("gate.way", "gateway"),
        ("gate way", "gateway"),
        ("gat\u0435w\u0430y", "gateway"),  # Cyrillic
        ("\u03a4ime", "time"),  # Greek, a capital
        ("\uff47ateway", "gateway"),  # of full width
        ("g\u00e1teway", "gateway"),
        ("\u0262ateway", "gateway"),  # a small capital
        ("\u13c0\u13aa\u13a2\u13ac\u13d4\u13aa\u13a9", "gateway"),  # Cherokee
        ("\U0001f176ateway", "gateway"),  # negative squared
        ("gate\u200bway", "gateway"),
        ("gate\u3164way", "gateway"),
        ("gatevvay", "gateway"),
        ("fiIe_operati0ns", "file_operations"),
        ("file__operations", "file.operations"),
    ],
)
def test_confusable_spellings_share_a_skeleton(spelling: str, name: str) -> None:
    """A person may take each for the name."""
    assert compute_skeleton(spelling) == compute_skeleton(name) != spelling


@pytest.mark.parametrize(
    ("one", "other"), [("C++", "C#"), ("\u304c", "\u304b"), ("\U0001f525", "\U0001f389"), ("-", "_"), ("时间", "天气")]
)
def test_distinct_names_have_distinct_skeletons(one: str, other: str) -> None:
    """Also those of which no letter is left."""
    assert compute_skeleton(one) != compute_skeleton(other)
