"""The assessor `NAME`: what runs by itself and what does not."""

from pathlib import Path

import pytest

from gateway.plugin import Json
from gateway.registry.find import build_plugin

HOME = Path(__file__).parents[3] / "FOLDER"


@pytest.mark.parametrize(
    ("arguments", "decision"),
    [
        ({}, "auto"),
        ({"text": "abc"}, "auto"),
        ({"text": "abcd"}, "confirm"),
        ({"text": "a", "more": "abcd"}, "confirm"),
        ({"text": None}, "confirm"),
        ({"text": ["a"]}, "confirm"),
    ],
)
def test_only_short_texts_run_by_themselves(arguments: Json, decision: str) -> None:
    """A person is asked about all the others."""
    config = {"max_chars": 3}
    assessor = build_plugin("assessors", "NAME", config, None, folder=HOME)
    assert assessor.assess(arguments).decision == decision
