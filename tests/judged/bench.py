"""The judge's test bench: what it calls harmless runs for real, and must have done nothing."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import ToolCall
from gateway.plugin.sql.statement import judge
from gateway.plugins.tools.execute_sql import ExecuteSql

from .statements import Kind
from .yards import Yard

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")
BATCH = 500  # statements between two looks at the whole state


@dataclass(slots=True)
class Bench:
    """`bare` has nothing that acts without being named: there the static judge alone must be right.

    In `full` views, operators, casts and policies act, too: there the database of `tool` must have agreed.
    """

    kind: Kind
    bare: Yard
    full: Yard
    tool: ExecuteSql
    statements: int = 0
    harmless: int = 0
    doubted: int = 0  # by the engine alone
    static_s: list[float] = field(default_factory=list)
    engine_s: list[float] = field(default_factory=list)
    slips: list[str] = field(default_factory=list)

    async def judge(self, statements: Iterable[str]) -> None:
        """Each of them, and what became of the yards."""
        await self._each(statements, self._one)

    async def examine(self, statements: Iterable[str]) -> None:
        """Each of them by the word of the database alone."""
        await self._each(statements, self._examined)

    async def _each(self, statements: Iterable[str], one: Callable[[str], Awaitable[bool]]) -> None:
        source = iter(statements)
        before = await self.bare.state(), await self.full.state()
        while batch := list(islice(source, BATCH)):
            ran = [sql for sql in batch if await one(sql)]
            if (after := (await self.bare.state(), await self.full.state())) != before:
                what = [[new for new in now if new not in was] for was, now in zip(before, after, strict=True)]
                self.slips.append(f"one of these changed something ({what!r:.500}): {ran!r}")
                before = after

    async def _one(self, sql: str) -> bool:
        self.statements += 1
        began = time.thread_time()
        known = judge(sql, dialect=self.kind).doubt is None
        self.static_s.append(time.thread_time() - began)
        if not known and judge(sql).doubt is not None:
            return False
        await self.bare.run(sql)
        if known:
            await self._run_if_agreed(sql)
        self._heard(sql)
        return True

    async def _examined(self, sql: str) -> bool:
        self.statements += 1
        agreed = await self._run_if_agreed(sql)
        self._heard(sql)
        return agreed

    async def _run_if_agreed(self, sql: str) -> bool:
        began = time.perf_counter()
        call = ToolCall(id="c", tool="execute_sql", arguments={"sql": sql})
        agreed = await self.tool.examine(call, EXCHANGE) is None
        self.engine_s.append(time.perf_counter() - began)
        self.harmless += agreed
        self.doubted += not agreed
        if agreed:
            await self.full.run(sql)
        return agreed

    def _heard(self, sql: str) -> None:
        for yard in (self.bare, self.full):
            self.slips += [f"{told}: {sql!r}" for told in yard.told]
            yard.told.clear()

    def figures(self) -> str:
        """One line for a person."""
        static, engine = (_p99_ms(times) for times in (self.static_s, self.engine_s))
        return (
            f"{self.kind}: {self.statements} statements, {self.harmless} harmless and run, {self.full.executed} of "
            f"them to the end, {self.doubted} stopped by the engine alone, {len(self.slips)} slips; "
            f"p99 of a verdict: static {static:.3f} ms of CPU, engine {engine:.3f} ms"
        )


def _p99_ms(times: Sequence[float]) -> float:
    return sorted(times)[len(times) * 99 // 100] * 1e3 if times else 0.0
