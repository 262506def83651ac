"""Fixtures of this folder: a recorder, closed behind the test."""

from collections.abc import AsyncIterator

import pytest

from .desk import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    await made.store.open()
    yield made
    await made.store.close()
