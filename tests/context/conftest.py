"""Fixtures of this folder: workers that are closed behind the test."""

from collections.abc import AsyncIterator, Callable

import pytest

from gateway.contracts.storage.store import Json
from gateway.plugins.stores.sqlite import SqliteStore

from .workers import Worker


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., object]]:
    made: list[Worker] = []

    async def make(*answers: list[Json] | BaseException, place: str = ":memory:", **facts: object) -> Worker:
        worker = Worker(list(answers), store=SqliteStore(place), **facts)  # type: ignore[arg-type]
        await worker.open()
        made.append(worker)
        return worker

    yield make
    for worker in made:
        await worker.close()
