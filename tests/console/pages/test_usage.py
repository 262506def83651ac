"""The page of usage: the tokens of each day, who used them, and what they cost."""

from pathlib import Path

import pytest

from gateway.console.pages.usage import HEIGHT_PX, SHOWN, chart_of, costs_of, sums_of
from gateway.console.translation import translator
from gateway.contracts.usage import StoredUsage
from gateway.usage.ledger import day_of
from tests.console.browsing import key, served

EN = translator("en")
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


def test_a_day_is_a_bar_and_days_without_usage_have_their_place() -> None:
    """The highest one fills the chart; a day with prices and without is one bar; little is still to be seen."""
    rows = [row("2026-11-24", 50, 10), row("2026-11-24", 30, 10, currency="USD", cost=1.0), row("2026-11-26", 0, 0)]
    chart = chart_of([*rows, row("2026-11-25", 1, 0)], since="2026-11-23", days=4, t=EN)
    assert chart is not None
    first, highest, little, none = chart.bars
    assert (first.input_height, none.output_height) == (0, 0)
    assert highest.input_height + highest.output_height == HEIGHT_PX and highest.output_top == 0
    assert highest.input_height == 4 * highest.output_height
    assert little.input_height >= 1.5
    assert [bar.left for bar in chart.bars] == [2.5, 27.5, 52.5, 77.5]
    assert highest.words == "2026-11-24: 80 in, 20 out"
    assert chart.words == "Tokens of each day from 2026-11-23 to 2026-11-26, at most 100."


def test_without_tokens_there_is_no_chart() -> None:
    assert chart_of([row("2026-11-26", 0, 0)], since="2026-11-26", days=1, t=EN) is None


def test_currencies_are_never_added_up() -> None:
    rows = [row("d", 1, 1, currency=name, cost=cost) for name, cost in (("USD", 1.5), ("EUR", 1.0), ("USD", 0.5))]
    assert costs_of([*rows, row("d", 1, 1)]) == [("EUR", 1.0), ("USD", 2.0)]
    assert sums_of(rows)["requests"] == 6


@pytest.mark.parametrize("who", ["root", "user"])
async def test_a_reader_sees_usage(tmp_path: Path, who: str) -> None:
    """A key without `admin` that of its own tenant; names are texts, whatever an upstream wrote."""
    keys = [key("root"), key("user", "context", tenant="ours")]
    async with served(tmp_path, *keys, usage={"enabled": True}) as browser:
        gateway = browser.gateway.gateway
        day, about = day_of(gateway._clock.time()), ("up", "passthrough")
        usage = [StoredUsage(day, "t", "k", "gpt-<b>4</b>", *about, "USD", 3, 1, 0, 1, 1200, 5, 300, 0, 1_500_000_000)]
        usage += [StoredUsage(day, "t", "k", f"m{i}", *about, "", 1, input=1) for i in range(SHOWN)]
        await gateway._shared.store.add_usage(usage, writer="w", now_s=1.0)
        page = await (await browser.signed_in(who)).get("/console/usage?by=model&days=7")
        assert (page.status, page.heading) == (200, "Usage")
        if who == "user":
            assert "Nothing was used in these days." in page.main
            return
        for text in ("gpt-<b>4</b>", "1.50 USD", "1 200", "1 further rows have fewer tokens"):
            assert text in page.main, text
        assert any("Tokens of each day" in one.attributes["aria-label"] for one in page.root.all("svg", role="img"))


async def test_a_reader_takes_the_table_along(tmp_path: Path) -> None:
    """All rows of it, of the days and the sums of the page, for the same tenants; as a file that no browser shows."""
    async with served(tmp_path, key("root"), key("user", "context", tenant="ours"), usage={"enabled": True}) as browser:
        gateway = browser.gateway.gateway
        day, about = day_of(gateway._clock.time()), ("up", "passthrough")
        usage = [StoredUsage(day, "t", "k", f"m{i}", *about, "", 1, input=1) for i in range(SHOWN + 5)]
        await gateway._shared.store.add_usage(usage, writer="w", now_s=1.0)
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
