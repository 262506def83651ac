"""The stage `NAME`: what it adds to a request."""

import asyncio
from pathlib import Path

from gateway.testing import ScriptedModel, check_stage, collect_answer, make_exchange

HOME = Path(__file__).parents[3] / "FOLDER"


def test_the_note_comes_last() -> None:
    """Behind the notes of stages above it; the answer of the model is the answer."""
    stage = check_stage("NAME", {"note": "second"}, folder=HOME)
    model = ScriptedModel("Hello!")
    assert asyncio.run(collect_answer(stage, make_exchange("Hello?", notes=("first",)), model)) == ["Hello!"]
    assert model.exchanges[0].notes == ("first", "second")
