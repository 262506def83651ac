"""The page of the gateway's status: figures, configuration without secrets, the verification of the audit log."""

import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.console.pages.status import build_figures
from gateway.console.translation import get_translator
from tests.console.browsing import key, served

EN = get_translator("en")


def point(at: float, *, span_s: float = 60.0, requests: int = 0, overhead_ms: float | None = None) -> dict[str, object]:
    facts = {"errors": 0, "approval_wait_s": None, "pending": 2}
    return {"at": at, "span_s": span_s, "requests": requests, "overhead_ms": overhead_ms, **facts}


async def test_status_page_shows_the_running_gateway_to_an_operator(tmp_path: Path) -> None:
    async with served(tmp_path, key("root")) as browser:
        root = await browser.signed_in("root")
        page = await root.get("/console/status")
        assert (page.status, page.heading) == (200, "Status")
        for text in ("Twolane", "Python", "aiohttp", "Upstreams", "Requests per minute", "Configuration in force"):
            assert text in page.main, text
        assert '"file_operations"' in page.main
        charts = page.root.all("svg", role="img")
        assert any(chart.attributes["aria-label"].startswith("Requests per minute: at least") for chart in charts)


async def test_status_page_hides_configured_secrets(tmp_path: Path) -> None:
    upstreams = [{"name": "up", "base_url": "http://127.0.0.1:9", "api_key": "very-secret-1"}]
    servers = {"notes": {"command": "true", "env": {"TOKEN": "very-secret-2"}, "enabled": False}}
    async with served(tmp_path, key("root"), upstreams=upstreams, mcp={"servers": servers}) as browser:
        page = await (await browser.signed_in("root")).get("/console/status")
        assert "http://127.0.0.1:9" in page.main
        assert "very-secret" not in page.html


async def test_status_page_shows_configuration_problems(tmp_path: Path) -> None:
    upstreams = [{"name": "up", "base_url": "http://127.0.0.1:9"}]
    async with served(tmp_path, key("root"), upstreams=upstreams) as browser:
        root = await browser.signed_in("root")
        problems = (await root.api().get("/context/status")).json["problems"]
        page = await root.get("/console/status")
        notices = [one.text for one in page.root.all("p") if one.attributes.get("class") == "notice warn"]
        assert len(notices) == len(problems)


async def test_the_audit_log_is_verified(tmp_path: Path) -> None:
    async with served(tmp_path, key("root")) as browser:
        root = await browser.signed_in("root")
        approval_id = await root.asks()
        await root.submit(await root.get("/console"), "Approve the call of file_operations")
        await root.until(approval_id)
        status = await root.get("/console/status")
        assert "/console/status/audit" in status.links
        page = await root.get("/console/status/audit")
        assert "The chain of the audit log is whole" in page.main
        (place,) = (link for link in page.links if link.endswith("csv"))
        names, *lines = (await root.get(place)).body.decode().splitlines()
        assert names.startswith("seq,created_at,tenant,") and any(",verdict,file_operations," in line for line in lines)
        part = await root.get("/console/status/audit", HX_Request="true")
        assert part.html.lstrip().startswith('<div id="audit"')
        assert "hx-get" not in part.html


async def test_audit_verification_reports_a_modified_line(tmp_path: Path) -> None:
    async with served(tmp_path, key("root")) as browser:
        root = await browser.signed_in("root")
        approval_id = await root.asks()
        await root.submit(await root.get("/console"), "Approve the call of file_operations")
        await root.until(approval_id)
        with closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as store:
            store.execute("DROP TRIGGER audit_is_not_changed")
            store.execute("UPDATE audit SET tool = 'another' WHERE seq = 1")
        page = await root.get("/console/status/audit?begin=start")
        assert "The audit log was changed after it was written. Line 1 of the audit log" in page.problem


async def test_only_operators_see_the_status(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann", "context", "approve")) as browser:
        ann = await browser.signed_in("ann")
        for path in ("/console/status", "/console/status/audit"):
            assert (await ann.get(path)).status == 403


def test_incomplete_minute_is_left_out_of_count_charts() -> None:
    points = [point(60, requests=120), point(120, requests=60), point(130, span_s=10, requests=1)]
    requests, *_, pending, wait = build_figures(points, step_s=60, t=EN)
    assert requests.chart is not None and pending.chart is not None
    assert (requests.chart.lowest, requests.chart.newest) == ("60", "60")
    assert pending.chart.ends_s == 130
    assert wait.chart is None


def test_figures_show_raw_counts_for_the_first_seconds() -> None:
    requests, *_ = build_figures([point(5, span_s=5, requests=3)], step_s=60, t=EN)
    assert requests.chart is not None
    assert requests.chart.newest == "3"


def test_figures_normalise_longer_points_per_minute() -> None:
    requests, *_ = build_figures([point(600, span_s=120, requests=60)], step_s=60, t=EN)
    assert requests.chart is not None
    assert requests.chart.newest == "30"
