"""A host for plugins under test: tools, prompts, counters and a clock that the test sets, and a store in memory."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from gateway.contracts.exchange import Exchange, Handler, Reply, Stage
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.store import Store
from gateway.contracts.tools import Service, ToolSpec
from gateway.telemetry.counters import COUNTERS, HISTOGRAMS
from gateway.testing.clock import ManualClock


class FakeTools:
    """The tools of a host: change `specs`, `running` and `version`; `n_asked` counts the calls of `offered`."""

    def __init__(self, specs: Iterable[ToolSpec] = (), services: Iterable[Service] = ()) -> None:
        self.specs = list(specs)
        self.running = list(services)
        self.version = "1"
        self.n_asked = 0

    def get_offered(self, exchange: Exchange) -> Sequence[ToolSpec]:
        self.n_asked += 1
        return [spec for spec in self.specs if exchange.steering.allows(spec.name)]

    def list_services(self) -> Sequence[Service]:
        return self.running


class FakePrompts:
    """The base prompts of a host, the same for every tenant: change `texts` and `version`.

    Clear `gate` to make readers wait, and set it to let them go on.
    """

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self.texts = dict(texts or {})
        self.version = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def read_text(self, prompt_id: str, *, tenant: str) -> str | None:
        del tenant  # all tenants have the same
        await self.gate.wait()
        return self.texts.get(prompt_id)


class FakeCounters:
    """The counters of a host. They take the names and labels that the gateway has (docs/operations.md), no others.

    `counted` maps (name, label values) to the count, `calls` lists each (name, labels), `observed` each (name, value).
    """

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.observed: list[tuple[str, float]] = []

    def count(self, name: str, by: float = 1, /, **labels: str) -> None:
        if name not in COUNTERS or set(labels) != set(COUNTERS[name].labels):
            raise KeyError(f"the gateway has no counter {name!r} with the labels {sorted(labels)}")
        self.counted[(name, *labels.values())] += by  # type: ignore[assignment]
        self.calls.append((name, labels))

    def observe(self, name: str, value: float, **labels: str) -> None:
        if name not in HISTOGRAMS or set(labels) != set(HISTOGRAMS[name].labels):
            raise KeyError(f"the gateway has no histogram {name!r} with the labels {sorted(labels)}")
        self.observed.append((name, value))

    def observe_all(self, name: str, values: Sequence[float], /, **labels: str) -> None:
        for value in values:
            self.observe(name, value, **labels)


class FakeRuns:
    """The agent loops of a host: stages that pass each request on. `limits` lists what they were made with."""

    def __init__(self) -> None:
        self.limits: list[LoopLimits] = []

    def build_stage(self, limits: LoopLimits) -> Stage:
        self.limits.append(limits)
        return _call_next


class FakeHost:
    """A `gateway.plugin.Host` for tests. `async with FakeHost() as host` opens its store and closes it.

    Without `async with` everything but the store works. `host.clock.advance(60.0)` moves the time.
    """

    def __init__(
        self,
        *,
        tools: Iterable[ToolSpec] = (),
        services: Iterable[Service] = (),
        prompts: Mapping[str, str] | None = None,
        now_s: float = 1000.0,
    ) -> None:
        self.tools = FakeTools(tools, services)
        self.prompts = FakePrompts(prompts)
        self.runs = FakeRuns()
        self.counters = FakeCounters()
        self.clock = ManualClock(now_s)
        self._store: Store | None = None

    def __repr__(self) -> str:
        return f"<FakeHost {len(self.tools.specs)} tools, {len(self.prompts.texts)} prompts, {self.clock!r}>"

    @property
    def store(self) -> Store:
        """Return the store: SQLite in memory, made at its first use."""
        if self._store is None:
            from gateway.registry.stores import (
                build_scratch_store,  # a host whose store is never used goes without pydantic
            )

            self._store = build_scratch_store()
        return self._store

    async def __aenter__(self) -> Self:
        await self.store.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.store.close()

    def copy(self) -> "FakeHost":
        """Return a host with the same tools, prompts and time, an empty store, and nothing counted."""
        other = FakeHost(
            tools=self.tools.specs, services=self.tools.running, prompts=self.prompts.texts, now_s=self.clock()
        )
        other.tools.version, other.prompts.version = self.tools.version, self.prompts.version
        return other


async def _call_next(exchange: Exchange, call_next: Handler) -> Reply:
    return await call_next(exchange)
