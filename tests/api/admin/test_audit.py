"""The verification of the audit log over HTTP: a piece of it at a time, and every change of a line is found."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from gateways import key

from gateway.api.admin.audit import VERIFICATION, AuditVerifier
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.local_gateway import LocalGateway
from tests.plugins.stores.records import audit_line, new, run


class Ticking:
    """A clock that a second passes on at each look: all time is used up at once."""

    def __init__(self, step_s: float = 1.0) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def monotonic(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def time(self) -> float:
        return self.now_s


class Log:
    """A store in a file with so many lines, and another program that changes it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = SqliteStore(str(place))
        self.written = 0

    async def write(self, lines: int) -> None:
        for _ in range(lines):
            self.written += 1
            audit = (audit_line(tool=f"tool_{self.written}"),)
            await self.store.write(new(run(f"run_{self.written}"), audit=audit))

    def tamper(self, statement: str) -> None:
        with closing(sqlite3.connect(self.place, timeout=10)) as connection, connection:
            for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {trigger}")
            connection.execute(statement)

    def verifier(self, *, step_s: float = 0.0, batch: int = 3) -> AuditVerifier:
        return AuditVerifier(self.store, clock=Ticking(step_s), batch=batch)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    made = Log(tmp_path / "gateway.db")
    await made.store.open()
    yield made
    await made.store.close()


async def answer(verifier: AuditVerifier, *, anew: bool = False) -> dict[str, Any]:
    view = await verifier.verify_next(anew=anew)
    assert view.lines == view.until_seq
    return {name: getattr(view, name) for name in ("verified", "lines", "problem", "complete")}


def whole(lines: int) -> dict[str, Any]:
    return {"verified": True, "lines": lines, "problem": None, "complete": True}


async def test_audit_page_verifies_what_was_added_since(log: Log) -> None:
    """Also an empty one; the next request verifies what was added."""
    verifier = log.verifier()
    assert await answer(verifier) == whole(0)
    await log.write(7)
    assert await answer(verifier) == whole(7)
    await log.write(2)
    assert await answer(verifier) == whole(9)
    assert await answer(verifier, anew=True) == whole(9)


async def test_audit_verification_proceeds_one_piece_per_request(log: Log) -> None:
    """And the next one goes on: only the last one calls the log verified."""
    await log.write(7)
    verifier = log.verifier(step_s=1.0)
    seen = [await answer(verifier) for _ in range(4)]
    assert [(one["lines"], one["complete"], one["verified"]) for one in seen] == [
        (3, False, False),
        (6, False, False),
        (7, True, True),
        (7, True, True),
    ]


async def test_concurrent_audit_verification_requests_share_progress(log: Log) -> None:
    """One after the other."""
    await log.write(7)
    verifier = log.verifier(step_s=1.0)
    seen = await asyncio.gather(*(answer(verifier) for _ in range(3)))
    assert [one["lines"] for one in seen] == [3, 6, 7]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET tool = 'other' WHERE seq = 5", "Line 5 of the audit log is not as it was written."),
        ("UPDATE audit SET hash = 'x' WHERE seq = 4", "Line 4 of the audit log is not as it was written."),
        ("UPDATE audit SET created_s = 9e999 WHERE seq = 5", "Line 5 of the audit log is not as it was written."),
        ("UPDATE audit SET tool = x'ff00' WHERE seq = 7", "Line 7 of the audit log is not as it was written."),
        (
            "DELETE FROM audit WHERE seq = 5",
            "The audit log has line 6 where line 5 should be: lines were removed or inserted.",
        ),
        (
            "INSERT INTO audit SELECT -1, tenant, caller, run_id, step, event, tool, sha256, decision, basis, rule, "
            '"by", via, created_s, hash FROM audit WHERE seq = 1',
            "The audit log has line -1 where line 1 should be: lines were removed or inserted.",
        ),
    ],
)
async def test_audit_page_reports_a_changed_line_until_it_is_mended(log: Log, statement: str, problem: str) -> None:
    """Each time, until somebody mends it."""
    await log.write(7)
    log.tamper(statement)
    verifier = log.verifier()
    for _ in range(2):
        found = await answer(verifier)
        assert (found["verified"], found["problem"], found["complete"]) == (False, problem, True)


@pytest.mark.parametrize("anew", [False, True])
async def test_audit_verification_finds_a_truncated_log(log: Log, anew: bool) -> None:
    """Its rest is whole: only who has seen it longer knows."""
    await log.write(7)
    verifier = log.verifier()
    assert await answer(verifier) == whole(7)
    log.tamper("DELETE FROM audit WHERE seq > 5")
    for _ in range(2):
        found = await answer(verifier, anew=anew)
        assert (found["verified"], found["complete"]) == (False, True)
        assert found["problem"] == "The audit log ends before line 7, which was verified before: its end was cut off."
    assert await answer(log.verifier()) == whole(5), "a worker that starts then knows nothing of it"


async def test_audit_verification_finds_a_replaced_log(log: Log, tmp_path: Path) -> None:
    """With a right chain of hashes of its own."""
    await log.write(7)
    verifier = log.verifier()
    assert await answer(verifier) == whole(7)
    other = Log(tmp_path / "other.db")
    await other.store.open()
    other.written = 100
    await other.write(9)
    await other.store.close()
    log.tamper("DELETE FROM audit")
    with closing(sqlite3.connect(log.place, timeout=10)) as connection:
        connection.execute("ATTACH ? AS other", (str(other.place),))
        with connection:
            connection.execute("INSERT INTO audit SELECT * FROM other.audit")
    for anew in (False, True):
        found = await answer(verifier, anew=anew)
        assert not found["verified"] and "is not the one that was verified before" in found["problem"]


async def test_audit_reverification_checks_all_lines_from_the_start(log: Log) -> None:
    """Only then is a change in the middle of them found."""
    await log.write(7)
    verifier = log.verifier()
    await verifier.verify_next()
    log.tamper("UPDATE audit SET tool = 'other' WHERE seq = 2")
    assert await answer(verifier) == whole(7)
    assert (await answer(verifier, anew=True))["problem"] == "Line 2 of the audit log is not as it was written."


@asynccontextmanager
async def asking(caller: str) -> AsyncIterator[ClientSession]:
    keys = [key("root", "admin"), key("boss", "context", "approve")]
    async with (
        LocalGateway({"upstreams": [], "keys": keys}) as made,
        ClientSession(made.base_url, headers={"X-Gateway-Key": caller}) as session,
    ):
        yield session


async def test_audit_verification_page_requires_admin_scope() -> None:
    """It is about all tenants."""
    async with asking("boss") as session, session.get(VERIFICATION) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (403, "scope_missing")
    async with asking("root") as session:
        async with session.get(VERIFICATION) as response:
            assert await response.json() == {
                "object": "audit.verification",
                "verified": True,
                "lines": 0,
                "until_seq": 0,
                "until_hash": None,
                "problem": None,
                "complete": True,
            }
        async with session.get(VERIFICATION + "?from=start") as response:
            assert response.status == 200
        for query, code in (("?from=5", "invalid_field"), ("?after=5", "unknown_field")):
            async with session.get(VERIFICATION + query) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (400, code)
