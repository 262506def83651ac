"""The list of runs, as people open it."""

from pathlib import Path

import orjson
import pytest

from gateway.console.pages.runs import SHOWN, parse_time
from tests.console.browsing import Seen, key, served
from tests.console.stored_runs import lost, ran, read_by_ann, stored
from tests.plugins.stores.records import new, parked

RUNS = "/console/runs"


def rows(page: Seen) -> list[str]:
    """The ids of the runs in the list."""
    return [one.text for one in page.root.all("th", scope="row")]


async def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    """With their state, kind, caller, conversation, duration and what waits; each leads to its own page."""
    waiting = parked("run_2", tenant="team", expires_s=9e9)
    await stored(
        tmp_path,
        new(ran("run_1", conversation="c1")),
        new(ran("run_3", kind="workflow", workflow="report", state="failed", created_s=300.0, updated_s=360.5)),
        new(ran("run_4", tenant="others", created_s=400.0)),
        lost("run_5"),
    )
    assert waiting
    async with served(tmp_path, key("ann", "context"), key("eve", "context", tenant="others")) as browser:
        page = await (await browser.signed_in("ann")).get(RUNS)
        assert (page.status, page.heading) == (200, "Runs")
        assert rows(page) == ["run_3", "run_5", "run_1"]
        first, _, last = page.root.all("tbody")[0].all("tr")
        assert [cell.text for cell in first.all("td")][:3] == ["failed", "workflow report", "ann"]
        assert "60 s" in first.text and "c1" in last.text and "30 s" in last.text
        assert {"/console/runs/run_1", "/console/runs?conversation=c1", "/console/runs?workflow=report"} <= set(
            page.links
        )
        assert rows(await (await browser.signed_in("eve")).get(RUNS)) == ["run_4"]


async def test_tool_run_shows_its_tool_and_escaped_client_name(tmp_path: Path) -> None:
    """Whatever the client calls itself."""
    client = orjson.dumps({"name": "<b>probe", "version": "1.2"}).decode()
    await stored(tmp_path, new(ran("run_1", kind="tool", tool="notes.find", client=client)), new(ran("run_2")))
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(f"{RUNS}?kind=tool")
        assert rows(page) == ["run_1"]
        assert [cell.text for cell in page.root.all("tbody")[0].all("td")][1] == "tool call notes.find"
        assert "<b>probe 1.2" in (await browser.get(f"{RUNS}/run_1")).root.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=failed", ["run_3"]),
        ("kind=chat", ["run_2", "run_1"]),
        ("caller=bob", ["run_2"]),
        ("workflow=report", ["run_3"]),
        ("conversation=c1", ["run_1"]),
        ("since=1970-01-01T00:03", ["run_3", "run_2"]),
        ("since=150&until=1970-01-01T00:04", ["run_2"]),
        ("state=&kind=chat&caller=&workflow=&conversation=&since=&until=&after=run_2", ["run_1"]),
        ("state=completed&kind=chat&caller=ann&until=150", ["run_1"]),
        ("state=rejected", []),
    ],
)
async def test_run_list_is_filtered_and_keeps_the_form_input(tmp_path: Path, query: str, found: list[str]) -> None:
    """And the form keeps what was entered."""
    await stored(
        tmp_path,
        new(ran("run_1", conversation="c1")),
        new(ran("run_2", caller="bob", created_s=200.0)),
        new(ran("run_3", kind="workflow", workflow="report", state="failed", created_s=300.0)),
    )
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(f"{RUNS}?{query}")
        assert (page.status, rows(page)) == (200, found)
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            entered = [one.attributes["value"] for one in page.root.all("input", id=name)]
            chosen = [one.attributes["value"] for one in page.root.all("option", selected="")]
            assert not value or name == "after" or value in (entered or chosen)
        assert found or "There is no such run." in page.main


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("since=soon", 400, "soon is not a time"),
        ("until=2026-13-01T00:00", 400, "is not a time"),
        ("state=asleep", 400, "'state'"),
        ("kind=%3Cb%3E", 400, "'kind'"),
        ("after=run_9", 400, "after"),
    ],
)
async def test_invalid_run_filter_is_reported_beside_the_form(
    tmp_path: Path, query: str, status: int, told: str
) -> None:
    """Beside the form, so that its reader can mend it."""
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(f"{RUNS}?{query}")
        assert page.status == status
        assert told in page.problem
        assert page.root.all("input", name="caller") and "<b>" not in page.html


async def test_run_list_is_paged_with_its_filter(tmp_path: Path) -> None:
    """The way on keeps what the list is narrowed by."""
    await stored(
        tmp_path, *(new(ran(f"run_{n:03}", created_s=100.0 + n, conversation="a b")) for n in range(SHOWN + 1))
    )
    async with read_by_ann(tmp_path) as browser:
        first = await browser.get(f"{RUNS}?conversation=a+b&kind=chat")
        assert len(rows(first)) == SHOWN
        (way,) = (link for link in first.links if "after=" in link)
        second = await browser.get(RUNS + way)
        assert rows(second) == ["run_000"]
        assert not [link for link in second.links if "after=" in link and "sort=" not in link]


async def test_empty_run_list_links_to_playground_and_workflows(tmp_path: Path) -> None:
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(RUNS)
        assert (page.status, page.problem) == (200, "")
        assert "Nothing has run yet." in page.main
        assert {"/console/playground", "/console/workflows"} <= set(page.links)


async def test_hostile_names_in_the_run_list_are_escaped(tmp_path: Path) -> None:
    """They change nothing of the page, and lead nowhere else."""
    await stored(
        tmp_path,
        new(
            ran(
                "run_1",
                conversation='"><script>x</script>\u202e',
                kind="workflow",
                workflow="javascript:x?y#z&state=failed",
            )
        ),
    )
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(RUNS)
        assert "<script>x" not in page.html and "\u202e" not in page.html and "\\u{202e}" in page.main
        (place,) = (link for link in page.links if "workflow=" in link)
        assert place == "/console/runs?workflow=javascript%3Ax%3Fy%23z%26state%3Dfailed"


@pytest.mark.parametrize(("scopes", "status"), [(("context",), 200), (("approve",), 200), (("admin",), 403)])
async def test_run_list_is_open_to_context_and_approve_scopes(
    tmp_path: Path, scopes: tuple[str, ...], status: int
) -> None:
    async with served(tmp_path, key("ann", *scopes)) as browser:
        assert (await (await browser.signed_in("ann")).get(RUNS)).status == status


def test_form_times_without_a_zone_are_read_as_utc() -> None:
    """One with a zone keeps it; Unix seconds are passed on."""
    assert parse_time({"since": "2026-01-31T08:00"}, "since") == "1769846400"
    assert parse_time({"since": "2026-01-31T09:00+01:00"}, "since") == "1769846400"
    assert parse_time({"since": "1769846400.5"}, "since") == "1769846400.5"
    assert parse_time({}, "since") is None
    with pytest.raises(ValueError, match="soon"):
        parse_time({"since": "soon"}, "since")


async def test_runs_csv_contains_all_filtered_runs(tmp_path: Path) -> None:
    """All of them, or all that the page is narrowed to; as a file that no browser shows."""
    await stored(
        tmp_path,
        *(new(ran(f"run_{n:03}", created_s=100.0 + n)) for n in range(SHOWN + 5)),
        new(ran("run_odd", created_s=50.0, conversation="=a b", caller="bob")),
    )
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(RUNS)
        assert "All runs as CSV" in page.main
        (place,) = (link for link in page.links if link.startswith("/console/runs/csv"))
        table = await browser.get(place)
        assert len(table.body.decode().splitlines()) == 1 + SHOWN + 6
        assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert table.headers["Content-Disposition"] == 'attachment; filename="runs.csv"'
        assert "default-src 'none'" in table.headers["Content-Security-Policy"]
        assert (await browser.get(place, method="HEAD")).body == b""
        page = await browser.get(f"{RUNS}?conversation=%3Da+b&until=1970-01-01T00:01&sort=caller")
        (place,) = (link for link in page.links if link.startswith("/console/runs/csv"))
        names, row = (await browser.get(place)).body.decode().splitlines()
        assert names.startswith("id,kind,state,") and row.startswith("run_odd,") and ",'=a b,bob," in row
        wrong = await browser.get("/console/runs/csv?since=soon")
        assert wrong.status == 400 and "soon is not a time" in wrong.text


async def test_runs_csv_is_limited_to_the_tenant_of_the_user(tmp_path: Path) -> None:
    await stored(tmp_path, new(ran("run_1")), new(ran("run_2", tenant="others")))
    async with served(tmp_path, key("ann", "context"), key("op", "admin")) as browser:
        table = await (await browser.signed_in("ann")).get("/console/runs/csv")
        assert b"run_1" in table.body and b"run_2" not in table.body
        assert (await (await browser.signed_in("op")).get("/console/runs/csv")).status == 403
