"""Approvals in PostgreSQL: the contract, and decisions at two stores at once."""

import asyncio
from collections import Counter

import pytest

from tests.plugins.stores.contract_approvals import *  # noqa: F403 - the tests of the contract run here
from tests.plugins.stores.postgresql.conftest import open_store, quiet_store
from tests.plugins.stores.postgresql.cutting_proxy import cutting_proxy
from tests.plugins.stores.records import approval, audit_line, broken, event, new, parked, run, write

pytestmark = pytest.mark.postgres

#: Approvals that two stores decide at the same time.
DECIDED = 300


async def test_two_stores_decide_each_approval_once(database: str) -> None:
    """Approved at one and rejected at the other at the same time: one of the two is decided, with its line."""
    stores = [await open_store(database) for _ in range(2)]
    names = [f"ap_{number}" for number in range(DECIDED)]
    for place in range(0, DECIDED, 100):
        run_id = f"r{place}"
        asked = tuple(approval(name, run_id=run_id, step=n) for n, name in enumerate(names[place : place + 100]))
        await stores[0].write(new(run(run_id), approvals=asked))

    async def decide(number: int) -> list[str]:
        found: list[str] = []
        for place in range(0, DECIDED, 10):
            decisions = [
                write(name, approve=number == 0, audit=(audit_line("decision"),)) for name in names[place : place + 10]
            ]
            results = await asyncio.gather(*map(stores[number].decide_approval, decisions))
            found += [result for result, _ in results]
        return found

    one, other = await asyncio.gather(decide(0), decide(1))
    assert [sorted(pair) for pair in zip(one, other, strict=True)] == [["decided", "other"]] * DECIDED
    rows = await stores[0].audit(after=0, limit=9999)
    assert len(rows) == DECIDED and broken(rows) is None
    states = Counter(one.state for one in await stores[0].list_approvals(tenant="acme", limit=9999))
    assert states == {"approved": one.count("decided"), "rejected": other.count("decided")}
    await asyncio.gather(*(store.close() for store in stores))


async def test_decision_whose_answer_was_lost_is_reported_as_made(database: str) -> None:
    """And not as one that somebody else has made; so are the other results of people's words."""
    port = int(database.partition("127.0.0.1:")[2].partition("/")[0])
    async with cutting_proxy(port) as (cutting, listens_at):
        store = quiet_store(database.replace(str(port), str(listens_at)))
        await store.write(parked())

        cutting.answers = 1  # the rows do not arrive
        result, decided = await store.decide_approval(write(events=(event(),), audit=(audit_line("decision"),)))
        assert (result, decided and decided.state, cutting.cuts) == ("decided", "approved", 1)
        assert (await store.decide_approval(write()))[0] == "same"
        await store.write(parked("run_2", approval_id="ap_2"))
        cutting.answers = 1
        assert await store.reissue("ap_2", approval("ap_3", run_id="run_2"), events=()) is True
        cutting.answers = 1
        assert [one.id for one in await store.expire(now_s=1e9, limit=9)] == ["ap_3"]
        assert cutting.cuts == 3
        rows = await store.audit(after=0, limit=9)
        assert [row.line.event for row in rows] == ["decision", "cancelled", "expired"]
        await store.close()
