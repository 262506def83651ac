"""The page of limits: bars of what is used now, and the requests that were over a limit."""

from pathlib import Path
from typing import Any

import pytest

from gateway.features.limits.console import SHOWN, build_bar, select_fullest
from tests.console.browsing import CHAT, key, served

ASKED = {"model": "demo", "messages": [{"role": "user", "content": "Say hello"}]}


def limit(used: float, most: float, name: str = "requests_per_minute") -> dict[str, Any]:
    return {"scope": "key", "name": "ci", "limit": name, "used": used, "most": most}


@pytest.mark.parametrize(
    ("used", "most", "width", "level"),
    [
        (0, 9, 0, ""),
        (12, 60, 20, ""),
        (48, 60, 80, "near"),
        (9, 9, 100, "full"),
        (12, 9, 100, "full"),
        (0, 0, 100, "full"),
    ],
)
def test_bar_width_and_level_follow_the_used_share(used: float, most: float, width: float, level: str) -> None:
    """It ends at its limit, also where a soft one is exceeded."""
    bar = build_bar(limit(used, most))
    assert (bar.width, bar.level) == (width, level)


def test_limit_figures_are_formatted_by_their_unit() -> None:
    """Costs have two places, tokens groups of three digits; budgets say when they begin anew."""
    cost, tokens = build_bar(limit(171.304, 500, "cost_per_month")), build_bar(limit(1200, 100_000, "tokens_per_day"))
    assert (cost.used, cost.most, cost.renewed) == ("171.30", "500.00", "next month (UTC)")
    assert (tokens.used, tokens.most, tokens.renewed) == ("1\u202f200", "100\u202f000", "tomorrow (UTC)")


def test_limits_page_shows_the_fullest_of_too_many_limits() -> None:
    few = [build_bar(limit(used, 10)) for used in (1, 9, 5)]
    assert select_fullest(few) == few
    many = [build_bar(limit(used, SHOWN * 2)) for used in range(SHOWN + 5)]
    assert [bar.share for bar in select_fullest(many)] == [bar.share for bar in reversed(many[5:])]


async def test_limits_page_shows_used_and_refused_requests(tmp_path: Path) -> None:
    """A key without `admin` sees its own limits and its tenant's; names are texts."""
    keys = [key("root"), {**key("ci", "context"), "limits": {"requests_per_minute": 2}}]
    limits = {"tenants": {"team": {"concurrent": 5}, "<b>x</b>": {"requests_per_minute": 1}}}
    async with served(tmp_path, *keys, limits=limits) as browser:
        ci = await browser.signed_in("ci")
        statuses = [(await ci.api().post(CHAT, ASKED)).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        page = await ci.get("/console/limits")
        assert (page.status, page.heading) == (200, "Limits")
        for text in (
            "Key ci",
            "requests per minute",
            "reached",
            "2 of 2",
            "1, refused",
            "requests under way",
            "0 of 5",
        ):
            assert text in page.main, text
        assert "<b>" not in page.main
        everything = await (await browser.signed_in("root")).get("/console/limits")
        assert "Tenant <b>x</b>" in everything.main and "2 of 2" in everything.main


async def test_uncountable_budget_states_its_reason(tmp_path: Path) -> None:
    """And what to do: its requests are refused although nothing of it is used."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: USD\nprices: [{model: '*', input: 1, output: 1}]")
    sections = {"runtime_keys": {"enabled": True}, "usage": {"enabled": True, "prices": str(prices)}}
    async with served(tmp_path, key("root"), **sections) as browser:
        root = await browser.signed_in("root")
        made = {"name": "ci", "scopes": ["context"], "limits": {"cost_per_day": 5}}
        assert (await root.api().post("/context/keys", made)).status == 201
        page = await root.get("/console/limits")
        assert "0.00 of 5.00" in page.main and "not counted" not in page.main
        await browser.gateway.reload({**browser.config, "usage": {"enabled": True}})
        page = await root.get("/console/limits")
        assert "not counted" in page.main and "its operator has to set 'usage.prices'" in page.main


async def test_limits_table_refreshes_until_live_updates_are_off(tmp_path: Path) -> None:
    limits = {"tenants": {"team": {"concurrent": 5}}}
    async with served(tmp_path, key("root"), limits=limits) as browser:
        root = await browser.signed_in("root")
        (table,) = (await root.get("/console/limits")).root.all("table")
        assert (table.attributes["hx-get"], table.attributes["hx-trigger"]) == ("/console/limits", "every 2s")
        part = await root.get("/console/limits", HX_Request="true")
        assert part.html.lstrip().startswith('<table class="stacked bars" id="limits" hx-get=')
        (still,) = (await root.get("/console/limits?live=off")).root.all("table")
        assert "hx-get" not in still.attributes


async def test_limits_page_without_limits_reports_none(tmp_path: Path) -> None:
    async with served(tmp_path, key("root")) as browser:
        page = await (await browser.signed_in("root")).get("/console/limits")
        assert "Nothing that your key may see has limits." in page.main
        keys = await (await browser.signed_in("root")).get("/console/keys")
        assert "/console/limits" in keys.links
