"""The stage `NAME`: what it adds to a request."""

import asyncio
from pathlib import Path

from gateway.testing import ScriptedModel, answer_of, check_stage, make_exchange

HOME = Path(__file__).parents[3] / "FOLDER"


def test_the_note_comes_last() -> None:
    """Behind the notes of stages above it; the answer of the model is the answer."""
    stage = check_stage("NAME", {"note": "second"}, folder=HOME)
    model = ScriptedModel("Hello!")
    assert asyncio.run(answer_of(stage, make_exchange("Hello?", notes=("first",)), model)) == ["Hello!"]
    assert model.exchanges[0].notes == ("first", "second")
