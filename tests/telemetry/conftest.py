"""Fixtures of this folder: a log whose lines are read."""

from collections.abc import Iterator

import pytest

from .logging_to import Log


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.sink.close()
