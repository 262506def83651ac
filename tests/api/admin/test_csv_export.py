"""Tables for spreadsheets: all rows that fit, as they are read; no cell is a formula, and what was cut is no table."""

import csv
from collections import Counter
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson
import pytest

from gateway.api.admin.csv_export import AUDIT_COLUMNS, COLUMNS, format_moment, write_table
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.caller import Caller
from gateway.contracts.storage.journal import Change
from tests.api.approval_pages import KEYS, Desktop, going, opened
from tests.plugins.stores.records import approval, audit_line, new, parked, run

RUNS, AUDIT = "/context/runs?format=csv", "/context/audit?format=csv"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        (" \uff1d1", "' \uff1d1"),
        ("a=1", "a=1"),
        ('say "hi", then go', '"say ""hi"", then go"'),
        ("two\nlines", '"two\nlines"'),
        ("\ud800", "?"),
        (-1, "-1"),
        (None, ""),
    ],
)
def test_csv_cell_is_written_as_text_or_number_not_formula(cell: object, written: str) -> None:
    assert write_table([["x", cell]]).decode() == f"x,{written}\r\n"


def test_csv_times_use_the_spreadsheet_format() -> None:
    assert format_moment(1769846400.5) == "2026-01-31 08:00:00.500"


def held(run_id: str, **changes: Any) -> Change:
    """A run that waits for a person in memory."""
    waiting = run(run_id, owner="worker_1", lease_s=300.0, **changes)
    return new(waiting, approvals=(approval(run_id=run_id),))


async def read(desk: Desktop, path: str, *, key: str = "boss") -> list[dict[str, str]]:
    """The rows of the table at a path, by the names of its first line."""
    async with desk.session.get(desk.url(path), headers={"X-Gateway-Key": key}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert response.headers["Content-Disposition"].startswith("attachment; filename=")
        return list(csv.DictReader((await response.text()).splitlines()))


async def test_run_csv_export_contains_all_matching_runs_of_the_tenant() -> None:
    """Of several pages, each once, newest first, with what strangers wrote as texts; narrowed as the list is."""
    client = orjson.dumps({"name": "=cmd()", "version": "1"}).decode()
    changes = [going(run_id=f"run_{n:03}", created_s=float(n)) for n in range(2 * LIMIT_MOST + 1)]
    odd = new(run("run_odd", created_s=1000.5, state="failed", conversation="@c", client=client, kind="tool", tool="t"))
    async with opened(*changes, odd, held("run_held", created_s=2000.0)) as desk:
        rows = await read(desk, RUNS)
        assert tuple(rows[0]) == COLUMNS
        assert [row["id"] for row in rows[:2]] == ["run_held", "run_odd"]
        assert [row["id"] for row in rows[2:]] == [f"run_{n:03}" for n in reversed(range(2 * LIMIT_MOST + 1))]
        assert (rows[0]["state"], rows[0]["pending"]) == ("awaiting_approval", "1")
        assert (rows[1]["conversation"], rows[1]["client"]) == ("'@c", "'=cmd() 1")
        assert rows[1]["created_at"] == "1970-01-01 00:16:40.500"
        assert [row["id"] for row in await read(desk, RUNS + "&state=failed")] == ["run_odd"]
        assert [row["id"] for row in await read(desk, RUNS + "&after=run_001")] == ["run_000"]
        assert [row["id"] for row in await read(desk, RUNS + "&since=1000&kind=tool")] == ["run_odd"]
        assert await read(desk, RUNS, key="spy") == []


async def test_audit_csv_export_contains_all_lines_with_hashes() -> None:
    """Behind a line, or all; with the hashes of the chain."""
    lines = tuple(audit_line(created_s=100.0 + n, caller="=x") for n in range(LIMIT_MOST + 2))
    async with opened(new(audit=lines)) as desk:
        rows = await read(desk, AUDIT, key="root")
        assert tuple(rows[0]) == AUDIT_COLUMNS
        assert [row["seq"] for row in rows] == [str(n + 1) for n in range(LIMIT_MOST + 2)]
        assert rows[0]["caller"] == "'=x" and len(rows[0]["hash"]) == 64
        assert rows[0]["created_at"] == "1970-01-01 00:01:40.000"
        assert [row["seq"] for row in await read(desk, f"{AUDIT}&after={LIMIT_MOST}", key="root")] == ["201", "202"]


@pytest.mark.parametrize(
    ("path", "key", "expected"),
    [
        (RUNS + "&limit=5", "boss", (400, "invalid_field")),
        (RUNS + "&state=asleep", "boss", (400, "invalid_field")),
        (RUNS + "&after=run_9", "boss", (400, "invalid_field")),
        ("/context/runs?format=xml", "boss", (400, "invalid_field")),
        (AUDIT + "&limit=5", "root", (400, "invalid_field")),
        (RUNS, "reader", (403, "scope_missing")),
        (RUNS, "root", (403, "scope_missing")),
        (AUDIT, "boss", (403, "scope_missing")),
    ],
)
async def test_csv_export_refuses_the_same_requests_as_its_list(path: str, key: str, expected: tuple[int, str]) -> None:
    """Before its first line."""
    async with opened(parked()) as desk:
        status, answer = await desk.get(path, key=key)
        assert (status, answer["error"]["code"]) == expected


@pytest.mark.parametrize("path", [RUNS, AUDIT])
async def test_csv_export_head_request_returns_no_rows(path: str) -> None:
    async with opened(parked()) as desk:
        key = "root" if path == AUDIT else "boss"
        async with desk.session.head(desk.url(path), headers={"X-Gateway-Key": key}) as response:
            assert (response.status, await response.read()) == (200, b"")


class Ending(dict[str, Caller]):
    """Keys of which each can be used twice: for the first two parts of a table."""

    def __init__(self, keys: Mapping[str, Caller]) -> None:
        super().__init__(keys)
        self.used = Counter[str]()

    def get(self, name: str, default: Any = None) -> Any:
        self.used[name] += 1
        return super().get(name, default) if self.used[name] <= 2 else default


async def test_interrupted_csv_export_closes_the_connection_early() -> None:
    """Its key was revoked while it was read: the connection ends before the answer does."""
    changes = [going(run_id=f"run_{n:03}", created_s=float(n)) for n in range(LIMIT_MOST + 1)]
    async with opened(*changes) as desk:
        desk.office.keys = Ending(KEYS)
        async with desk.session.get(desk.url(RUNS), headers={"X-Gateway-Key": "boss"}) as response:
            assert response.status == 200
            with pytest.raises(aiohttp.ClientError):
                await response.text()
