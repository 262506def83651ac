"""Fixtures of this folder: the approvals of a run, opened on a store."""

from collections.abc import AsyncIterator

import pytest

from .room import Room


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    made = Room()
    await made.store.open()
    yield made
    await made.close()
