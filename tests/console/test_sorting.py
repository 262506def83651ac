"""Rows in the order that a header links to, on every page with such a table."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from gateway.console.sorting import sort_rows
from gateway.contracts.storage.usage import StoredUsage
from gateway.usage.ledger import format_day
from tests.console.browsing import Seen, key, served
from tests.console.stored_runs import ran, stored
from tests.plugins.stores.records import new

ROWS: list[dict[str, Any]] = [{"n": 2, "at": 1}, {"n": None, "at": 2}, {"n": 3, "at": 3}, {"n": 2, "at": 4}]


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        (None, [1, 2, 3, 4]),
        ("n", [1, 4, 3, 2]),
        ("-n", [3, 1, 4, 2]),
        ("--n", [1, 2, 3, 4]),
        ("secret", [1, 2, 3, 4]),
        ("-", [1, 2, 3, 4]),
    ],
)
def test_sorted_rows_puts_missing_values_last_and_is_stable(wanted: str | None, order: list[int]) -> None:
    assert [row["at"] for row in sort_rows(ROWS, wanted, {"n": itemgetter("n")})] == order


def names(page: Seen) -> list[str]:
    return [one.text for one in page.root.all("th", scope="row")]


def header(page: Seen, label: str) -> tuple[str | None, str]:
    """The order that the header of this name says, and where its link leads."""
    (found,) = [one for one in page.root.all("th", scope="col") if one.text == label]
    (way,) = found.all("a")
    return found.attributes.get("aria-sort"), str(way.attributes["href"])


async def test_runs_are_sorted_by_the_selected_column(tmp_path: Path) -> None:
    """Also in a list that is narrowed; the links keep what it is narrowed by, and turn the order around."""
    await stored(
        tmp_path,
        new(ran("run_1", caller="bob", created_s=100.0, updated_s=190.0)),
        new(ran("run_2", caller="Ann", created_s=110.0, updated_s=120.0)),
        new(ran("run_3", caller="bob", created_s=115.0, updated_s=116.0, state="failed")),
    )
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/runs?kind=chat")
        assert header(page, "Begun") == ("descending", "?kind=chat&sort=begun")
        assert header(page, "Took") == (None, "?kind=chat&sort=-took")
        page = await ann.get("/console/runs" + header(page, "Took")[1])
        assert names(page) == ["run_1", "run_2", "run_3"]
        assert header(page, "Took") == ("descending", "?kind=chat&sort=took")
        assert header(page, "Begun") == (None, "?kind=chat&sort=begun")
        assert names(await ann.get("/console/runs?kind=chat&sort=took")) == ["run_3", "run_2", "run_1"]
        assert names(await ann.get("/console/runs?sort=state")) == ["run_2", "run_1", "run_3"]
        assert names(await ann.get("/console/runs?sort=%3Cb%3E")) == ["run_3", "run_2", "run_1"]
        assert "Only what stands on this page is sorted." not in page.main


async def test_paged_list_states_that_only_the_page_is_sorted(tmp_path: Path) -> None:
    await stored(tmp_path, *(new(ran(f"run_{at}", created_s=100.0 + at)) for at in range(60)))
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/runs?sort=caller")
        assert "Only what stands on this page is sorted." in page.main
        (way,) = (link for link in page.links if "after=" in link)
        page = await ann.get("/console/runs" + way)
        assert header(page, "Caller")[0] == "ascending" and len(names(page)) == 10


async def test_usage_is_sorted_before_its_table_is_cut(tmp_path: Path) -> None:
    """The row with the highest cost comes first, however few tokens it has."""
    async with served(tmp_path, key("root"), usage={"enabled": True}) as browser:
        gateway = browser.gateway.gateway
        day, about = format_day(gateway._process.clock.time()), ("up", "passthrough")
        usage = [StoredUsage(day, "t", "k", f"m{at:03}", *about, "", 1, input=at + 2) for at in range(120)]
        usage.append(StoredUsage(day, "t", "k", "dear", *about, "USD", 1, input=1, cost=10**9))
        await gateway._shared.store.add_usage(usage, writer="w", number=1, now_s=1.0)
        root = await browser.signed_in("root")
        page = await root.get("/console/usage?sort=-cost")
        assert names_of_table(page)[:2] == ["dear", "m119"]
        assert "21 further rows are only in the CSV." in page.main
        assert header(page, "Cost")[0] == "descending"
        assert names_of_table(await root.get("/console/usage?sort=model"))[0] == "dear"
        assert "dear" not in names_of_table(await root.get("/console/usage"))


def names_of_table(page: Seen) -> list[str]:
    """The rows of the table of sums, which is the last one."""
    return [one.text for one in page.root.all("table")[-1].all("th", scope="row")]


async def test_keys_and_limits_tables_keep_their_order_in_live_updates(tmp_path: Path) -> None:
    """A page that keeps itself up to date keeps its order, also when its reader stops that."""
    limits = {"tenants": {name: {"concurrent": most} for name, most in (("a", 5), ("c", 9), ("B", 7))}}
    async with served(tmp_path, key("root"), key("Zoe"), key("ann"), limits=limits) as browser:
        root = await browser.signed_in("root")
        assert names(await root.get("/console/keys?sort=name")) == ["ann", "root", "Zoe"]
        assert names(await root.get("/console/keys?sort=-name")) == ["Zoe", "root", "ann"]
        page = await root.get("/console/limits?sort=-name")
        assert names(page) == ["Tenant c", "Tenant B", "Tenant a"]
        (table,) = page.root.all("table")
        assert table.attributes["hx-get"] == "/console/limits?sort=-name"
        part = await root.get(str(table.attributes["hx-get"]), HX_Request="true")
        assert names(part) == ["Tenant c", "Tenant B", "Tenant a"]
        assert header(part, "Name") == ("descending", "?sort=name")
        assert "?sort=-name&live=off" in page.links


async def test_endpoints_are_sorted_in_each_upstream(tmp_path: Path) -> None:
    ends = [{"url": f"http://127.0.0.1:{port}", "name": name} for port, name in ((9, "b"), (10, "a"))]
    async with served(tmp_path, key("root"), upstreams=[{"name": "up", "endpoints": ends}]) as browser:
        root = await browser.signed_in("root")
        for query, order in (("", "ba"), ("?sort=endpoint", "ab"), ("?sort=-sent", "ba"), ("?sort=state", "ba")):
            page = await root.get(f"/console/status/upstreams{query}")
            assert [name[0] for name in names(page)] == list(order)
