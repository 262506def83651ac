"""The assessor `NAME`: what runs by itself and what does not."""

from pathlib import Path

from gateway.testing import check_assessor

HOME = Path(__file__).parents[3] / "FOLDER"


def test_only_short_texts_run_by_themselves() -> None:
    """A person is asked about all the others. `check_assessor` tries odd arguments besides."""
    check_assessor(
        "NAME",
        {"max_chars": 3},
        folder=HOME,
        harmless=[{}, {"text": "abc"}],
        asked=[{"text": "abcd"}, {"text": "a", "more": "abcd"}, {"text": None}, {"text": ["a"]}],
    )
