"""The features of a worker on a store in memory, without the lanes that ask them."""

import io
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from agent.doubles import Clock

from gateway.config import Settings
from gateway.contracts.caller import Caller
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.server.feature import FeatureNeeds, ServingProcess, WorkerFeatures
from gateway.telemetry.counters import ContextCounters
from gateway.telemetry.logs import LogSink
from gateway.testing.clock import ManualClock


@asynccontextmanager
async def features(
    content: Mapping[str, object], *, callers: Iterable[Caller] = (), serves: bool = True
) -> AsyncIterator[WorkerFeatures]:
    """`serves`: as in a process that serves; else as in a dry start."""
    settings = Settings.model_validate(content, context={"folder": Path.cwd()})
    store = SqliteStore(":memory:")
    await store.open()
    sink = LogSink(io.StringIO(), as_json=True, secrets=(), dropped=lambda: None)
    found = WorkerFeatures(
        FeatureNeeds(
            store=store,
            clock=Clock(ManualClock()),
            counters=ContextCounters(),
            writer="w1",
            settings=lambda: settings,
            callers=lambda: callers,
            process=ServingProcess(sink=sink) if serves else None,
        )
    )
    try:
        found.apply_settings(settings)
        yield found
    finally:
        await found.close()
        await store.close()
