"""A look at a statement, in a running gateway with PostgreSQL: nothing of it stays behind, also through a pooler."""

import json
from collections.abc import Iterator

import asyncpg
import pytest
from gateways import until_read

from tests.postgres import pooler, postgres_server

from .asking import answering, line
from .models import call, calls, says
from .talking import Json, World, talking

pytestmark = pytest.mark.postgres
PREPARED = """CREATE ROLE writer LOGIN; CREATE TABLE pets (name text); ALTER TABLE pets OWNER TO writer;
    INSERT INTO pets VALUES ('Ada'), ('Bo')"""
READS = ("SELECT name FROM pets WHERE name <> 'Cy'", "SELECT count(*) FROM pets")


@pytest.fixture(scope="module", params=["system's", "newest", "pooled"])
def places(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The server, and what the gateway connects to."""
    with postgres_server(PREPARED, newest=request.param == "newest") as place:
        if request.param != "pooled":
            yield place, place
            return
        with pooler(place) as pooled:
            yield place, pooled


def tools(place: str) -> Json:
    return {"execute_sql": {"url": f"postgresql://writer@{place}", "read_only": False, "timeout": "20s"}}


async def owner(place: str) -> asyncpg.Connection:
    return await asyncpg.connect(f"postgresql://owner@{place}", server_settings={"lock_timeout": "5000"})


async def read_at_once(world: World) -> None:
    """One statement that the judge and the database hold harmless."""
    assert (await world.chat("Which pets?")).text == "Two."


async def open_transactions(connection: asyncpg.Connection) -> int:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'writer' AND xact_start IS NOT NULL"
    return int(await connection.fetchval(sql))


async def test_sql_read_analysis_leaves_no_transaction_or_lock(places: tuple[str, str]) -> None:
    """A table is changed from elsewhere right behind a look, and the next look asks nobody."""
    server, through = places
    reading = (calls("execute_sql", risk_level=None, sql=sql) for sql in (*READS, *READS))
    answers = [answer for one in reading for answer in (one, says("Two."))]
    async with talking(*answers, tools=tools(through)) as world:
        connection = await owner(server)
        try:
            for number in range(4):
                await read_at_once(world)
                await until_read(lambda: open_transactions(connection), lambda count: count == 0)
                locks = "SELECT count(*) FROM pg_locks WHERE relation = 'pets'::regclass"
                assert await connection.fetchval(locks) == 0
                await connection.execute(f"ALTER TABLE pets ADD COLUMN note_{number} int")
        finally:
            for number in range(4):
                await connection.execute(f"ALTER TABLE pets DROP COLUMN IF EXISTS note_{number}")
            await connection.close()
        runs = (await world.get("/context/runs")).json["data"]
        steps = [step for run in runs for step in (await world.run(run["id"]))["steps"]]
        assert [(step["decision"], step["basis"]) for step in steps] == [("auto", "whitelist")] * 4


async def test_approved_schema_change_is_not_blocked_by_sql_analysis(places: tuple[str, str]) -> None:
    """The gateway's own looking connection holds nothing that the change needs."""
    server, through = places
    change = call("execute_sql", sql="ALTER TABLE pets ADD COLUMN legs int", risk_level="high", terminate=True)
    answers = (calls("execute_sql", risk_level=None, sql=READS[0]), says("Two."), says(json.dumps(change)))
    async with talking(*answers, tools=tools(through)) as world:
        await read_at_once(world)
        first = await world.chat("Give them legs.")
        (approval,) = first.asks
        await world.chat(answering(first, line(approval), question="Give them legs."))
        run = await world.run(approval["run_id"])
        assert [step["state"] for step in run["steps"]] == ["finished"]
    connection = await owner(server)
    assert await connection.fetchval("SELECT count(legs) FROM pets") == 0
    await connection.execute("ALTER TABLE pets DROP COLUMN legs")
    await connection.close()
