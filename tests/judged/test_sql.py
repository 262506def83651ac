"""The judge of SQL against the databases themselves: no slip, whatever the grammar makes (make soak-judge)."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import pytest

from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from tests.postgres import postgres_server

from .bench import Bench
from .hostile import GUILTY as GUILTY_OBJECTS
from .hostile import HOSTILE
from .reading import Readings
from .statements import Kind, Statements
from .yards import POSTGRES_BARE, POSTGRES_FULL, PostgresYard, SqliteYard

SQLITE_COUNT, POSTGRES_COUNT = 12_000, 3_000
#: Of the soak; a seed of its own, which the variable replaces.
SOAK_SQLITE_COUNT, SOAK_POSTGRES_COUNT = 900_000, 100_000
SOAK_READING_COUNT = 115_000  # of each database: half of them run to the end on PostgreSQL 15, 50,000 and more
SOAK_SEED = int(os.environ.get("TWOLANE_SEED", "1"))


@pytest.fixture(params=[False, True], ids=["system's", "newest"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres_server("CREATE ROLE writer LOGIN", newest=request.param) as place:
        yield place.removesuffix("/postgres")


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Bench]:
    bare, full = SqliteYard(folder / "bare", full=False), SqliteYard(folder / "full", full=True)
    tool = ExecuteSql(Config(url=f"sqlite:///{full.place}", read_only=False))
    try:
        yield Bench("sqlite", bare, full, tool)
    finally:
        await tool.close()
        bare.close()
        full.close()


@asynccontextmanager
async def postgresql(server: str) -> AsyncIterator[Bench]:
    import asyncpg

    yards, connections = [], []
    owner = await asyncpg.connect(f"postgresql://owner@{server}/postgres")
    await owner.execute("CREATE DATABASE bare")
    await owner.close()
    for database, prepared in (("bare", POSTGRES_BARE), ("postgres", POSTGRES_FULL + HOSTILE)):
        owner = await asyncpg.connect(f"postgresql://owner@{server}/{database}")
        await owner.execute(prepared)
        await owner.close()
        settings = {"statement_timeout": "2000", "client_min_messages": "notice"}
        writer = await asyncpg.connect(f"postgresql://writer@{server}/{database}", server_settings=settings)
        connections.append(writer)
        failed = (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
        yards.append(PostgresYard(writer, asyncpg.QueryCanceledError, failed))
    tool = ExecuteSql(Config(url=f"postgresql://writer@{server}/postgres", read_only=False))
    try:
        yield Bench("postgresql", yards[0], yards[1], tool)
    finally:
        await tool.close()
        for connection in connections:
            await connection.close()


def some(kind: Kind, *, seed: int, count: int) -> Iterator[str]:
    return islice(Statements(kind, seed), count)


def readings(kind: Kind, *, seed: int, count: int) -> Iterator[str]:
    return islice(Readings(kind, seed), count)


@pytest.mark.judged
async def test_harmless_verdicts_change_nothing_in_sqlite(tmp_path: Path) -> None:
    """Rows, schema, settings and the folder stay as they are; no function that acts is called."""
    async with sqlite(tmp_path) as bench:
        await bench.judge(some("sqlite", seed=0, count=SQLITE_COUNT))
        await bench.examine(readings("sqlite", seed=0, count=SQLITE_COUNT // 10))
    assert not bench.slips, bench.slips[:3]
    assert bench.harmless > SQLITE_COUNT // 20 and bench.doubted > 0, bench.figures()


@pytest.mark.postgres
async def test_harmless_verdicts_change_nothing_in_postgresql(server: str) -> None:
    """Rows, sequences, catalogue, locks and settings stay as they are; nothing is called, and nothing sleeps."""
    async with postgresql(server) as bench:
        await bench.judge(some("postgresql", seed=0, count=POSTGRES_COUNT))
        await bench.examine(readings("postgresql", seed=0, count=POSTGRES_COUNT // 3))
    assert not bench.slips, bench.slips[:3]
    assert bench.harmless > POSTGRES_COUNT // 20 and bench.doubted > 0, bench.figures()


@pytest.mark.soak_judge
async def test_million_random_sqlite_statements_change_nothing(tmp_path: Path) -> None:
    """The same with more of them; prints the figures."""
    async with sqlite(tmp_path) as bench:
        await bench.judge(some("sqlite", seed=SOAK_SEED, count=SOAK_SQLITE_COUNT))
        await bench.examine(readings("sqlite", seed=SOAK_SEED, count=SOAK_READING_COUNT))
    print(f"\n{bench.figures()}")
    assert not bench.slips, bench.slips[:3]


@pytest.mark.soak_judge
async def test_two_hundred_thousand_postgresql_statements_change_nothing(server: str) -> None:
    """The same on each server, among users' casts, operators and types; prints the figures."""
    async with postgresql(server) as bench:
        await bench.judge(some("postgresql", seed=SOAK_SEED, count=SOAK_POSTGRES_COUNT))
        await bench.examine(readings("postgresql", seed=SOAK_SEED, count=SOAK_READING_COUNT))
    print(f"\n{bench.figures()}")
    assert not bench.slips, bench.slips[:3]


@pytest.mark.parametrize("guilty", ["DELETE FROM t WHERE a = 2", "SELECT effect(1)", "PRAGMA user_version = 7"])
async def test_bench_detects_statement_effects(tmp_path: Path, guilty: str) -> None:
    """It would notice a judge that lets such through."""
    async with sqlite(tmp_path) as bench:
        before = await bench.full.state()
        await bench.full.run(guilty)
        assert bench.full.told or await bench.full.state() != before


#: Each acts; most without naming what acts.
GUILTY = (
    *(
        "DELETE FROM t WHERE a = 2",
        "SELECT effect(1)",
        "SELECT nextval('s')",
        "SELECT pg_sleep(3)",
        "SET work_mem = '1MB'",
    ),
    *("SELECT u::int FROM u", "SELECT '5'::over_checked", "SELECT * FROM casting", 'SELECT * FROM "quo""ted"'),
    *("SELECT * FROM planned WHERE a > 5", "SELECT p FROM pairs ORDER BY p"),
    *("SELECT * FROM holder WHERE list = $${5}$$", "EXPLAIN INSERT INTO written (b) VALUES (1)"),
    *GUILTY_OBJECTS,
)


@pytest.mark.postgres
async def test_bench_detects_statement_effects_on_postgresql(server: str) -> None:
    """It would notice a judge that lets such through."""
    async with postgresql(server) as bench:
        for guilty in GUILTY:
            bench.full.told.clear()
            before = await bench.full.state()
            await bench.full.run(guilty)
            assert bench.full.told or await bench.full.state() != before, guilty
