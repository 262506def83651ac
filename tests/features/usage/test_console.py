"""The page of usage: the tokens of each day, who used them, and what they cost."""

from pathlib import Path

import pytest

from gateway.console.translation import get_translator
from gateway.contracts.storage.usage import StoredUsage
from gateway.features.usage import pages as api_usage
from gateway.features.usage.console import SHOWN, build_split_charts, build_token_chart, sum_costs, sum_counts
from gateway.usage.ledger import format_day
from tests.console.browsing import key, served

EN = get_translator("en")
DAYS = ["2026-11-24", "2026-11-25"]
ROW = {
    "requests": 2,
    "rejected": 0,
    "cut": 0,
    "estimated": 1,
    "cached": 0,
    "reasoning": 0,
    "cost": None,
    "currency": None,
}


def row(day: str, asked: int, answered: int, **more: object) -> dict[str, object]:
    return {**ROW, "day": day, "input": asked, "output": answered, **more}


def test_token_chart_stacks_output_on_input() -> None:
    """A day with prices and without is one bar."""
    rows = [row("2026-11-24", 50, 10), row("2026-11-24", 30, 10, currency="USD", cost=1.0)]
    chart = build_token_chart([*rows, row("2026-11-25", 0, 0)], DAYS, t=EN)
    assert chart is not None
    assert chart.bars[0].words == "2026-11-24: Input 80, Output 20"
    assert chart.words == "Tokens of each day, from 2026-11-24 to 2026-11-25, at most 100. Input 80, Output 20"
    assert build_token_chart([row("2026-11-25", 0, 0)], DAYS, t=EN) is None


def test_usage_charts_are_split_by_model_and_currency() -> None:
    """A chart for each currency; a name looks alike in all, and one that no answer gave is a dash."""
    rows = [
        row("2026-11-24", 5, 5, model="dear", currency="USD", cost=2.5),
        row("2026-11-24", 50, 50, model="m<b>", currency="USD", cost=0.001),
        row("2026-11-25", 1, 0, model=""),
        row("2026-11-25", 1, 0, model="dear", currency="EUR", cost=1.0),
    ]
    tokens, euros, dollars = build_split_charts(rows, "model", DAYS, t=EN)
    assert tokens.title == "Tokens of each day by Model"
    assert [(part.label, part.style) for part in tokens.parts] == [("m<b>", 1), ("dear", 2), ("–", 3)]
    assert dollars.title == "Cost of each day by Model, in USD"
    assert [(part.label, part.style) for part in dollars.parts] == [("dear", 2), ("m<b>", 1)]
    assert dollars.totals == ["2.50", "0.0010"]
    assert [(part.label, part.style) for part in euros.parts] == [("dear", 2)]
    assert build_split_charts([], "model", DAYS, t=EN) == []


def test_currencies_are_never_added_up() -> None:
    rows = [row("d", 1, 1, currency=name, cost=cost) for name, cost in (("USD", 1.5), ("EUR", 1.0), ("USD", 0.5))]
    assert sum_costs([*rows, row("d", 1, 1)]) == [("EUR", 1.0), ("USD", 2.0)]
    assert sum_counts(rows)["requests"] == 6


@pytest.mark.parametrize("who", ["root", "user"])
async def test_usage_page_shows_the_tenants_of_the_key_with_escaped_names(tmp_path: Path, who: str) -> None:
    """A key without `admin` that of its own tenant; names are texts, whatever an upstream wrote."""
    keys = [key("root"), key("user", "context", tenant="ours")]
    async with served(tmp_path, *keys, usage={"enabled": True}) as browser:
        gateway = browser.gateway.gateway
        day, about = format_day(gateway._process.clock.time()), ("up", "passthrough")
        usage = [StoredUsage(day, "t", "k", "gpt-<b>4</b>", *about, "USD", 3, 1, 0, 1, 1200, 5, 300, 0, 1_500_000_000)]
        usage += [StoredUsage(day, "t", "k", f"m{i}", *about, "", 1, input=1) for i in range(SHOWN)]
        await gateway._shared.store.add_usage(usage, writer="w", number=1, now_s=1.0)
        page = await (await browser.signed_in(who)).get("/console/usage?by=model&days=7")
        assert (page.status, page.heading) == (200, "Usage")
        if who == "user":
            assert "Nothing was used in these days." in page.main
            return
        for text in ("gpt-<b>4</b>", "1.50 USD", "1 200", "1 further rows are only in the CSV"):
            assert text in page.main, text
        words = [str(one.attributes["aria-label"]) for one in page.root.all("svg", role="img")]
        assert [each.partition(",")[0] for each in words] == [
            "Tokens of each day",
            "Tokens of each day by Model",
            "Cost of each day by Model",
        ]
        assert "gpt-<b>4</b> 1.50" in words[2]


async def test_usage_page_omits_the_split_charts_for_too_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says so, and has the first chart and the table all the same."""
    monkeypatch.setattr(api_usage, "ROWS_MOST", 3)
    async with served(tmp_path, key("root"), usage={"enabled": True}) as browser:
        gateway = browser.gateway.gateway
        today, about = gateway._process.clock.time(), ("up", "passthrough")
        days = [format_day(today), format_day(today - 86400)]
        usage = [StoredUsage(day, "t", "k", name, *about, "", 1, input=1) for name in ("m1", "m2") for day in days]
        await gateway._shared.store.add_usage(usage, writer="w", number=1, now_s=1.0)
        page = await (await browser.signed_in("root")).get("/console/usage")
        assert page.status == 200 and len(page.root.all("svg", role="img")) == 1
        assert "too much usage to split it by day" in page.main and "m2" in page.main


async def test_usage_csv_contains_all_rows_of_the_tenant(tmp_path: Path) -> None:
    """All rows of it, of the days and the sums of the page, for the same tenants; as a file that no browser shows."""
    async with served(tmp_path, key("root"), key("user", "context", tenant="ours"), usage={"enabled": True}) as browser:
        gateway = browser.gateway.gateway
        day, about = format_day(gateway._process.clock.time()), ("up", "passthrough")
        usage = [StoredUsage(day, "t", "k", f"m{i}", *about, "", 1, input=1) for i in range(SHOWN + 5)]
        await gateway._shared.store.add_usage(usage, writer="w", number=1, now_s=1.0)
        root, user = await browser.signed_in("root"), await browser.signed_in("user")
        page = await root.get("/console/usage?by=model&days=7")
        (place,) = [one for one in page.links if one.startswith("/console/usage/csv")]
        assert (await root.get(place, method="HEAD")).status == 200
        table = await root.get(place)
        lines = table.body.decode().splitlines()
        assert lines[0].startswith("model,requests,") and len(lines) == 1 + SHOWN + 5
        assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert table.headers["Content-Disposition"].startswith('attachment; filename="usage-')
        assert "default-src 'none'" in table.headers["Content-Security-Policy"]
        assert len((await user.get(place)).body.decode().splitlines()) == 1
        assert (await root.get("/console/usage/csv?by=secret&days=x")).body.startswith(b"model,")
